"""Etapa corpus: del texto de origen a documentos limpios, sin repetidos y repartidos."""

from pathlib import Path

from enlace.data.preparation import build_corpus
from enlace.paths import CORPUS
from stages.start import stage


def main() -> None:
    """Lee `data.source`, escribe `data/corpus` y resume qué entró y qué se descartó."""
    with stage("corpus") as view:
        build_corpus(Path(view.data.source), CORPUS, view.data)


if __name__ == "__main__":
    main()
