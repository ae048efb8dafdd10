"""Etapa corpus: del texto de origen a documentos limpios, sin repetidos y repartidos."""

from pathlib import Path

from enlace.data.preparation.build import build_corpus
from enlace.paths import CORPUS, CORPUS_REPORT
from enlace.reports.corpus import write_corpus_report
from stages.start import stage


def main() -> None:
    """Lee `data.source`, escribe `data/corpus` y cuenta en un informe qué entró y qué no."""
    with stage("corpus") as view:
        report = build_corpus(Path(view.data.source), CORPUS, view.data)
        write_corpus_report(report, CORPUS_REPORT)
        print(f"informe del corpus: {CORPUS_REPORT.with_suffix('.html')}")


if __name__ == "__main__":
    main()
