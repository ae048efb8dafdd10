"""Etapa tokenize: de documentos a tokenizador y shards."""

from enlace.data.sharding import build_shards, build_tokenizer
from enlace.data.vocabulary import measure_tokenizer
from enlace.files import write_text
from enlace.paths import CORPUS, SHARDS, TOKENIZER
from enlace.reports.tokenizer import tokenizer_markdown
from enlace.train.parent import find_parent, inherit_tokenizer
from stages.start import stage


def main() -> None:
    """Entrena el tokenizador sobre el corpus (o hereda el del padre) y escribe los shards."""
    with stage("tokenize") as view:
        parent = find_parent(view.train)
        if parent is None:
            report = build_tokenizer(CORPUS, TOKENIZER, view.data, view.model.vocab_size)
        else:
            inherit_tokenizer(parent, TOKENIZER)
            report = measure_tokenizer(CORPUS, TOKENIZER, view.model.vocab_size)
            print(f"tokenizador heredado de {parent.config.run_name}")
        write_text(TOKENIZER / "report.md", tokenizer_markdown(report))
        model = view.model
        build_shards(CORPUS, TOKENIZER, SHARDS, view.data, model.vocab_size, model.seq_len)


if __name__ == "__main__":
    main()
