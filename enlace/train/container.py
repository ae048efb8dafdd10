"""El formato safetensors: la cabecera que se escribe y la que se comprueba antes de leer.

Ocho bytes con la longitud de la cabecera, la cabecera (JSON con dtype, forma y posiciones de cada
tensor) y los datos seguidos. Se escribe aquí, y no con la biblioteca, para que los bytes vayan del
búfer al disco sin otra copia y el SHA-256 se calcule de camino; el resultado es el mismo, byte a
byte. La especificación: https://github.com/huggingface/safetensors#format
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from enlace.errors import CheckpointError, fault_of
from enlace.train.untrusted import check_regular, parse_json_object

_CODES = {
    torch.int64: "I64",
    torch.float64: "F64",
    torch.float32: "F32",
    torch.int32: "I32",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
"""Los dtypes que se escriben, en el orden en que la biblioteca pone los tensores: de más a menos
bytes, para que cada uno empiece alineado."""
_SIZES = {code: dtype.itemsize for dtype, code in _CODES.items()}
_METADATA = {"format": "pt"}
_METADATA_KEY = "__metadata__"
_LENGTH_BYTES = 8
_MAX_HEADER_BYTES = 1 << 24
_MAX_NAME_CHARS = 512
_MAX_DIMENSIONS = 8


class Layout(NamedTuple):
    """Dónde va cada cosa en un fichero.

    `header` incluye su longitud; `spans` son las posiciones (principio, fin) de cada tensor dentro
    de los datos, que miden `size` bytes.
    """

    header: bytes
    spans: dict[str, tuple[int, int]]
    size: int


def plan(tensors: Mapping[str, Tensor]) -> Layout:
    """Reparte el fichero entre `tensors`, de los que solo mira forma y dtype (pueden ser meta)."""
    ranks = {dtype: rank for rank, dtype in enumerate(_CODES)}
    ordered = sorted(tensors, key=lambda name: (ranks[tensors[name].dtype], name))
    entries: dict[str, Any] = {_METADATA_KEY: _METADATA}
    spans, position = {}, 0
    for name in ordered:
        tensor = tensors[name]
        spans[name] = (position, position + tensor.numel() * tensor.element_size())
        position = spans[name][1]
        entries[name] = {
            "dtype": _CODES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": list(spans[name]),
        }
    text = json.dumps(entries, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
    text += b" " * (-len(text) % _LENGTH_BYTES)
    return Layout(len(text).to_bytes(_LENGTH_BYTES, "little") + text, spans, position)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Lee un fichero safetensors en CPU, tras comprobar que su cabecera es razonable.

    Raises:
        CheckpointError: el fichero no existe, está cortado o no es safetensors.
    """
    check_header(path)
    try:
        return cast(dict[str, Tensor], load_file(path))
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path} no se puede leer: {fault_of(error)}") from error


def check_header(path: Path) -> dict[str, Any]:
    """La cabecera de un safetensors, comprobada entera antes de usar nada de ella.

    Los tensores deben llenar los datos sin huecos ni solapes, y cada uno, medir lo que dicen su
    forma y su dtype. Un pickle o un zip con otro nombre no pasa de la longitud.

    Raises:
        CheckpointError: la cabecera es desmedida, ilegible o no casa con el fichero.
    """
    size = check_regular(path).st_size
    try:
        with path.open("rb") as stream:
            length = int.from_bytes(stream.read(_LENGTH_BYTES), "little")
            if length > min(_MAX_HEADER_BYTES, size - _LENGTH_BYTES):
                raise CheckpointError(
                    f"{path} está cortado o no es safetensors: su cabecera dice medir {length} "
                    f"bytes y el fichero tiene {size}"
                )
            content = stream.read(length)
    except OSError as error:
        raise CheckpointError(f"{path} no se puede leer: {fault_of(error)}") from error
    try:
        header = parse_json_object(content)
        _check_metadata(header.pop(_METADATA_KEY, {}))
        spans = sorted(_span(name, entry) for name, entry in header.items())
    except ValueError as error:
        raise CheckpointError(f"{path} no es safetensors: cabecera ilegible: {error}") from error
    _check_filled(path, spans, size - _LENGTH_BYTES - length)
    return header


def _check_metadata(metadata: object) -> None:
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise ValueError(f"{_METADATA_KEY} no es un objeto de textos")


def _span(name: str, entry: object) -> tuple[int, int]:
    """Las posiciones de un tensor, si su nombre, su dtype y su forma son de fiar."""
    if not 0 < len(name) <= _MAX_NAME_CHARS or not name.isprintable():
        raise ValueError(f"el nombre {name[:_MAX_NAME_CHARS]!r} no es de un tensor")
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise ValueError(f"{name} no tiene dtype, shape y data_offsets")
    code, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(code, str) or code not in _SIZES:
        raise ValueError(f"{name} tiene el dtype {code!r}, que enlace no escribe")
    if not _naturals(shape) or len(shape) > _MAX_DIMENSIONS:
        raise ValueError(f"{name} tiene una forma imposible")
    if not _naturals(offsets) or len(offsets) != len(("begin", "end")):
        raise ValueError(f"{name} tiene unas posiciones imposibles")
    begin, end = offsets
    if end - begin != math.prod(shape) * _SIZES[code]:
        raise ValueError(f"{name} no mide lo que dicen su forma y su dtype")
    return begin, end


def _naturals(values: object) -> bool:
    return isinstance(values, list) and all(type(v) is int and v >= 0 for v in values)


def _check_filled(path: Path, spans: list[tuple[int, int]], payload: int) -> None:
    position = 0
    for begin, end in spans:
        if begin != position:
            fault = "se solapan" if begin < position else "dejan un hueco"
            raise CheckpointError(f"{path} no es de fiar: sus tensores {fault} en {position}")
        position = end
    if position != payload:
        raise CheckpointError(
            f"{path} está cortado: sus tensores ocupan {position} bytes y hay {payload}"
        )
