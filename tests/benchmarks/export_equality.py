"""Cuánto se parecen al modelo sus exportaciones: pesos al azar, tiny-50m y los modelos que se den.

    python -m tests.benchmarks.export_equality [CARPETA …]

Escribe una tabla: la mayor diferencia de logits con transformers y con llama.cpp en F32, y lo que
cambian F16 y Q8_0. Cada CARPETA es un modelo terminado, como checkpoints/model.
"""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch

from enlace.config.export import GgufType
from enlace.config.load import load_config
from enlace.data.tokenizer import TextTokenizer, train_bpe
from enlace.export.gguf_writer import write_gguf
from enlace.export.huggingface import write_huggingface
from enlace.export.proof import check_format, check_huggingface, check_llama
from enlace.export.reference import Reference
from enlace.export.source import Source, read_source
from enlace.figures import number, percent, scientific, size
from enlace.model.transformer import Transformer
from enlace.reports import markdown
from tests.export.support_export import ROOT, SETTINGS, random_source

FORMATS: tuple[GgufType, ...] = ("f16", "q8_0")


def tiny_50m() -> Source:
    """tiny-50m con pesos al azar y el vocabulario que dé la muestra; las demás filas sobran."""
    config = load_config(ROOT / "configs/runs/pretrain-2060.yaml")
    texts = [file.read_text("utf-8") for file in sorted((ROOT / "data/sample").rglob("*.txt"))]
    tokenizer = TextTokenizer(train_bpe(texts, config.model.vocab_size, 2))
    torch.manual_seed(11)
    model = Transformer(config.model, "math").eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return Source(Path("tiny-50m"), model, config, tokenizer, {})


def models(folders: list[str]) -> Iterator[tuple[str, Source]]:
    """Los modelos que se miden, con su nombre."""
    yield "diminuto con QK-norm, al azar", random_source()
    yield "diminuto sin QK-norm, al azar", random_source(model__qk_norm=False)
    yield "tiny-50m, al azar", tiny_50m()
    for folder in folders:
        yield Path(folder).name, read_source(Path(folder))


def measure(name: str, source: Source) -> list[str]:
    """Una fila de la tabla."""
    reference = Reference(source)
    spread = torch.stack([case.logits_TV[-1] for case in reference.cases]).std().item()
    with tempfile.TemporaryDirectory() as scratch:
        folder, path = Path(scratch) / "hf", Path(scratch) / "modelo.gguf"
        folder.mkdir()
        write_huggingface(source, folder, SETTINGS)
        theirs = check_huggingface(reference, folder)
        write_gguf(source, path, "f32", SETTINGS)
        exact = check_llama(reference, path)
        row = [name, number(spread, 1), scientific(theirs.logit_difference, 1)]
        row += [scientific(exact.logit_difference, 1), str(theirs.ties + exact.ties)]
        for dtype in FORMATS:
            write_gguf(source, path, dtype, SETTINGS)
            found = check_format(reference, path, dtype)
            row.append(
                f"{scientific(found.mean_difference, 1)}; {percent(found.same_best, 0)}; "
                f"{size(path.stat().st_size)}"
            )
    return row


def main() -> None:
    """Mide y escribe la tabla."""
    header = ["modelo", "logits (desviación)", "transformers", "llama.cpp F32", "empates"]
    header += [f"{dtype.upper()}: media; mismo mejor; tamaño" for dtype in FORMATS]
    rows = []
    for name, source in models(sys.argv[1:]):
        rows.append(measure(name, source))
        sys.stderr.write(f"{name}: medido\n")
    sys.stdout.write(markdown.table(header, rows))


if __name__ == "__main__":
    main()
