"""Etapa evaluate: medir el modelo terminado y escribir muestras e informe."""

from enlace.data.streams import validation_batches
from enlace.data.tokenizer import load_tokenizer
from enlace.evaluation.byte_counts import bytes_per_id
from enlace.evaluation.loss import evaluate_loss
from enlace.evaluation.report import EvaluationReport, lineage_of, write_evaluation_report
from enlace.evaluation.samples import generate_samples
from enlace.paths import EVALUATION_REPORTS, MODEL, PRETRAIN_REPORTS, SHARDS
from enlace.reports.curve import read_curve
from enlace.train.export import load_model, read_manifest
from stages.device import open_announced
from stages.start import stage


def main() -> None:
    """Mide toda la validación, continúa los principios de texto y escribe el informe."""
    with stage("evaluate") as view:
        hardware, evaluation = view.hardware, view.data.evaluation
        backend = open_announced(hardware)
        model, config = load_model(MODEL, backend.sdpa_backend, backend.device)
        tokenizer = load_tokenizer(MODEL)
        batches = validation_batches(
            SHARDS, "val", config.model.seq_len, hardware.micro_batch, 0, config.model.vocab_size
        )
        sizes = bytes_per_id(tokenizer, config.model.vocab_size)
        report = EvaluationReport(
            figures=evaluate_loss(model, batches, backend, sizes),
            samples=generate_samples(
                model, tokenizer, evaluation, backend, chat=config.data.format == "chat"
            ),
            evaluation=evaluation,
            vocab_size=config.model.vocab_size,
            lineage=lineage_of(read_manifest(MODEL)),
            curve=read_curve(PRETRAIN_REPORTS / "train.tsv"),
        )
        write_evaluation_report(report, EVALUATION_REPORTS)
        print(f"informe en {EVALUATION_REPORTS}/report.html")


if __name__ == "__main__":
    main()
