"""El formato safetensors: los mismos bytes que la biblioteca, y cabeceras hostiles rechazadas."""

import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from enlace.errors import CheckpointError
from enlace.train.container import check_header, plan, read_tensors
from enlace.train.disk import write_hashed
from enlace.train.snapshot import HostBuffer

DTYPES = [
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.bool,
]


def many_tensors() -> dict[str, Tensor]:
    """De todos los dtypes, con formas raras: vacía, escalar, no contigua, nombres con tildes."""
    generator = torch.Generator().manual_seed(3)
    tensors = {}
    for dtype in DTYPES:
        values = torch.randint(0, 2, (3, 5), generator=generator)
        tensors[f"b/{dtype}"] = values.to(dtype)
        tensors[f"a/{dtype}"] = torch.ones((), dtype=dtype)
        tensors[f"vacío/{dtype}"] = torch.zeros((0, 3), dtype=dtype)
    return tensors


def write_own(path: Path, tensors: dict[str, Tensor], buffer: HostBuffer | None = None) -> str:
    return write_hashed(path, (buffer or HostBuffer(pinned=False)).fill(tensors))


def test_los_bytes_son_los_de_la_biblioteca(tmp_path: Path) -> None:
    tensors = many_tensors()
    write_own(tmp_path / "a", tensors)
    save_file(tensors, tmp_path / "b", metadata={"format": "pt"})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_se_lee_lo_que_se_escribio_tambien_lo_no_contiguo(tmp_path: Path) -> None:
    tensors = many_tensors() | {"t": torch.arange(6.0).view(2, 3).T}
    write_own(tmp_path / "x.safetensors", tensors)
    found = read_tensors(tmp_path / "x.safetensors")
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor), name


def test_sin_tensores_tambien_es_un_fichero(tmp_path: Path) -> None:
    write_own(tmp_path / "x.safetensors", {})
    assert read_tensors(tmp_path / "x.safetensors") == {}
    with safe_open(tmp_path / "x.safetensors", "pt") as file:
        assert file.metadata() == {"format": "pt"}


def test_el_bufer_se_reutiliza_y_la_copia_no_sigue_al_original(tmp_path: Path) -> None:
    buffer, tensor = HostBuffer(pinned=False), torch.ones(64)
    buffer.reserve({"w": tensor, "otro": torch.empty(64, device="meta")})
    _, first = buffer.fill({"w": tensor, "otro": tensor})
    tensor.zero_()
    assert bytes(first[:4]) == bytes(torch.ones(1).numpy())
    # Menos tensores en el mismo sitio: el fichero es solo suyo.
    write_own(tmp_path / "x.safetensors", {"w": tensor}, buffer)
    _, second = buffer.fill({"w": tensor})
    assert len(second) == 4 * 64
    assert torch.equal(load_file(tmp_path / "x.safetensors")["w"], tensor)
    assert bytes(first[: 4 * 64]) == bytes(second)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff" * 8,
        (1 << 40).to_bytes(8, "little") + b"{}",
        (2).to_bytes(8, "little") + b"[]",
        (8).to_bytes(8, "little") + b'{"a": 1}',
        (200).to_bytes(8, "little") + b"[" * 200,
    ],
)
def test_una_cabecera_absurda_no_se_llega_a_usar(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"x\.safetensors"):
        read_tensors(path)


GOOD: dict[str, Any] = {
    "a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
    "b": {"dtype": "I8", "shape": [8], "data_offsets": [8, 16]},
}


def write_header(path: Path, header: str | dict[str, Any], payload: int = 16) -> Path:
    text = (header if isinstance(header, str) else json.dumps(header)).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(payload))
    return path


def entry(**changes: Any) -> dict[str, Any]:
    return GOOD | {"b": GOOD["b"] | changes}


HOSTILE: dict[str, str | dict[str, Any]] = {
    "dtype desconocido": entry(dtype="F4"),
    "dtype que no es texto": entry(dtype=["I8"]),
    "forma negativa": entry(shape=[-8]),
    "dos negativos dan positivo": entry(shape=[-2, -4]),
    "forma con decimales": entry(shape=[8.0]),
    "forma con lógicos": entry(shape=[True, 8]),
    "demasiadas dimensiones": entry(shape=[8] + [1] * 8),
    "forma desbordante": entry(shape=[2**40, 2**40]),
    "no mide lo que dice": entry(shape=[9]),
    "solape": entry(data_offsets=[4, 12]),
    "hueco": entry(data_offsets=[9, 17]),
    "posiciones al revés": entry(data_offsets=[16, 8]),
    "posiciones negativas": entry(data_offsets=[-8, 0]),
    "tres posiciones": entry(data_offsets=[8, 12, 16]),
    "fuera del fichero": entry(shape=[9], data_offsets=[8, 17]),
    "claves de más": entry(otra=1),
    "sin forma": GOOD | {"b": {"dtype": "I8", "data_offsets": [8, 16]}},
    "no es un objeto": GOOD | {"b": 3},
    "nombre vacío": {"": GOOD["a"], "b": GOOD["b"]},
    "nombre con control": {"a\n": GOOD["a"], "b": GOOD["b"]},
    "nombre desmedido": {"a" * 513: GOOD["a"], "b": GOOD["b"]},
    "metadatos que no son textos": GOOD | {"__metadata__": {"a": 1}},
    "nombre repetido": json.dumps(GOOD)[:-1] + ', "a": ' + json.dumps(GOOD["a"]) + "}",
    "clave repetida": json.dumps(GOOD).replace('"dtype": "I8"', '"dtype": "I8", "dtype": "U8"'),
    "NaN": json.dumps(GOOD)[:-1] + ', "c": NaN}',
    "infinito disfrazado": json.dumps(GOOD).replace("[8]", "[1e999]"),
    "anidamiento": json.dumps(GOOD)[:-1] + ', "c": ' + "[" * 200 + "]" * 200 + "}",
    "anidamiento sin fin": json.dumps(GOOD)[:-1] + ', "c": ' + "[" * 200_000 + "}",
    "no es JSON": "{" * 30,
}


def test_la_cabecera_de_partida_es_buena(tmp_path: Path) -> None:
    assert check_header(write_header(tmp_path / "x.safetensors", GOOD)) == GOOD


@pytest.mark.parametrize("case", HOSTILE)
def test_una_cabecera_hostil_se_rechaza(case: str, tmp_path: Path) -> None:
    path = write_header(tmp_path / "x.safetensors", HOSTILE[case])
    with pytest.raises(CheckpointError, match=r"x\.safetensors"):
        read_tensors(path)


def test_un_pickle_con_otro_nombre_no_ejecuta_nada(tmp_path: Path) -> None:
    """Con `pickle.load` esta carga crea un fichero; con el lector de enlace, no pasa nada."""
    proof = tmp_path / "ejecutado"

    class Payload:
        def __reduce__(self) -> tuple[Any, tuple[str]]:
            return os.mkdir, (str(proof),)

    path = tmp_path / "model.safetensors"
    path.write_bytes(pickle.dumps(Payload()))
    with pytest.raises(CheckpointError, match="no es safetensors"):
        read_tensors(path)
    assert not proof.exists()
    with path.open("rb") as stream:
        pickle.load(stream)
    assert proof.is_dir()


def test_un_zip_de_torch_tampoco(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    torch.save({"w": torch.ones(2)}, path)
    with pytest.raises(CheckpointError, match="no es safetensors"):
        read_tensors(path)


def test_planear_no_necesita_los_datos() -> None:
    real = {"w": torch.ones(3, 2), "s": torch.ones(())}
    assert plan({name: tensor.to("meta") for name, tensor in real.items()}) == plan(real)
