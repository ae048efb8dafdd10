"""Entrenamiento del BPE por bytes y el plano de sus ids.

Plano: 0 `<|endoftext|>` (separa documentos y acaba), 1 `<|pad|>`, 2 `<|im_start|>`, 3 `<|im_end|>`,
4–15 reservados, 16–271 los 256 bytes, y después las fusiones. El pre-tokenizador es el de Qwen2,
que llama.cpp y Ollama reproducen sin diferencias; no hay normalizador porque ningún motor GGUF lo
aplicaría: el NFC se hace al limpiar el corpus.
"""

import json
from collections.abc import Iterable
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from enlace.config.schema import BYTE_VOCABULARY, FIRST_BPE_ID
from enlace.errors import DataError

END_OF_TEXT, PAD, TURN_START, TURN_END = "<|endoftext|>", "<|pad|>", "<|im_start|>", "<|im_end|>"
_NAMED = (END_OF_TEXT, PAD, TURN_START, TURN_END)
SPECIAL_TOKENS = (
    *_NAMED,
    *(f"<|reserved_{number}|>" for number in range(len(_NAMED), FIRST_BPE_ID)),
)
# huggingface.co/Qwen/Qwen2-0.5B, tokenizer.json: `pre = "qwen2"` en GGUF.
QWEN2_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def train_bpe(texts: Iterable[str], vocab_size: int, min_frequency: int) -> str:
    """Entrena un BPE de, como mucho, `vocab_size` ids y devuelve su `tokenizer.json`.

    Con los mismos textos en el mismo orden, los mismos bytes. Si el texto no da para tantas
    fusiones de `min_frequency` apariciones, el vocabulario sale menor: quien llama lo dice.

    Raises:
        DataError: `vocab_size` no deja sitio para los bytes, o alguna fusión quedó inalcanzable.
    """
    smallest = FIRST_BPE_ID + BYTE_VOCABULARY
    if vocab_size < smallest:
        raise DataError(
            f"model.vocab_size={vocab_size} no llega para los {FIRST_BPE_ID} ids especiales y los "
            f"{BYTE_VOCABULARY} bytes; pon al menos {smallest}"
        )
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(QWEN2_PATTERN), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=min_frequency,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    unreachable = unreachable_tokens(tokenizer)
    if unreachable:
        raise DataError(
            f"el BPE entrenado tiene {len(unreachable)} tokens que ninguna fusión alcanza "
            f"(el primero: {unreachable[0]!r}); cambia data.tokenizer.min_frequency"
        )
    check_layout(tokenizer, "el BPE recién entrenado")
    return str(tokenizer.to_str(pretty=True)) + "\n"


def unreachable_tokens(tokenizer: Tokenizer) -> list[str]:
    """Los tokens de texto que el propio BPE no produce al codificar su cadena: filas muertas."""
    vocabulary = tokenizer.get_vocab(with_added_tokens=False)
    special = set(SPECIAL_TOKENS)
    return [
        token
        for token, identifier in sorted(vocabulary.items(), key=lambda pair: pair[1])
        if token not in special and [p.id for p in tokenizer.model.tokenize(token)] != [identifier]
    ]


def check_layout(tokenizer: Tokenizer, where: str) -> None:
    """Comprueba el plano de ids, el pre-tokenizador y que no haya normalizador.

    Raises:
        DataError: es un `tokenizer.json` de otra procedencia.
    """
    content: dict[str, Any] = json.loads(tokenizer.to_str())
    for identifier, token in enumerate(SPECIAL_TOKENS):
        if tokenizer.token_to_id(token) != identifier:
            raise DataError(
                f"{where}: {token} tiene el id {tokenizer.token_to_id(token)} y debe tener el "
                f"{identifier}; vuelve a entrenarlo (dvc repro -f tokenize)"
            )
    bytes_found = {tokenizer.id_to_token(FIRST_BPE_ID + n) for n in range(BYTE_VOCABULARY)}
    if bytes_found != set(pre_tokenizers.ByteLevel.alphabet()):
        raise DataError(
            f"{where}: los ids {FIRST_BPE_ID}–{FIRST_BPE_ID + BYTE_VOCABULARY - 1} no son los 256 "
            "bytes; vuelve a entrenarlo (dvc repro -f tokenize)"
        )
    if content["normalizer"] is not None or QWEN2_PATTERN not in _strings(content["pre_tokenizer"]):
        raise DataError(
            f"{where}: tiene normalizador u otro pre-tokenizador; "
            "vuelve a entrenarlo (dvc repro -f tokenize)"
        )


def _strings(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for item in value.values() for text in _strings(item)]
    if isinstance(value, list):
        return [text for item in value for text in _strings(item)]
    return [value] if isinstance(value, str) else []
