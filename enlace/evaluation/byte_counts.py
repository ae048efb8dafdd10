"""Cuántos bytes UTF-8 de texto representa cada id, para los bits por byte."""

import json
from typing import Any

import torch

from enlace.data.tokenizer import Tokenizer
from enlace.errors import DataError


def bytes_per_id(tokenizer: Tokenizer, vocab_size: int) -> torch.Tensor:
    """Bytes de cada id: (V,) int64 en CPU.

    En un vocabulario por bytes cada carácter de un símbolo es un byte, así que la longitud del
    símbolo es la cuenta. Los tokens especiales, el separador (con `kind: byte` es el id 0) y las
    filas del modelo que el tokenizador no usa no son texto: cero.

    Args:
        tokenizer: cualquiera de los dos.
        vocab_size: filas V del modelo.

    Raises:
        DataError: el tokenizador tiene ids que no caben en `vocab_size`.
    """
    if tokenizer.vocab_size > vocab_size:
        raise DataError(
            f"el tokenizador tiene {tokenizer.vocab_size} ids y el modelo solo "
            f"model.vocab_size={vocab_size} filas; usa el tokenizador con que se entrenó"
        )
    content: dict[str, Any] = json.loads(tokenizer.to_json())
    counts = torch.zeros(vocab_size, dtype=torch.int64)
    for symbol, identifier in content["model"]["vocab"].items():
        counts[identifier] = len(symbol)
    for token in content["added_tokens"]:
        counts[token["id"]] = 0
    counts[tokenizer.eos_id] = 0
    return counts
