"""Etapa tokenize: de documentos a tokenizador y shards."""

from enlace.data.sharding import build_shards, build_tokenizer
from enlace.paths import CORPUS, SHARDS, TOKENIZER
from stages.start import stage


def main() -> None:
    """Entrena el tokenizador sobre el corpus y escribe los shards con su índice."""
    with stage("tokenize") as view:
        build_tokenizer(CORPUS, TOKENIZER, view.data, view.model.vocab_size)
        build_shards(CORPUS, TOKENIZER, SHARDS, view.data, view.model.vocab_size)


if __name__ == "__main__":
    main()
