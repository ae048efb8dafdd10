"""Cada manera conocida de estropear una exportación se detecta y se nombra.

Se planta el fallo en lo ya escrito, o en lo que lo escribe, y la comprobación debe negarse.
"""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import gguf
import pytest
from safetensors.torch import load_file, save_file

from enlace.errors import ExportError
from enlace.export import gguf_writer
from enlace.export.gguf_writer import write_gguf
from enlace.export.huggingface import write_huggingface
from enlace.export.proof import check_format, check_huggingface, check_llama
from enlace.export.reference import Reference
from enlace.export.source import Source
from tests.export.support_export import SETTINGS, random_source


@pytest.fixture(scope="module")
def qwen3() -> Reference:
    return Reference(random_source(data__format="chat"))


@pytest.fixture(scope="module")
def llama() -> Reference:
    return Reference(random_source(model__qk_norm=False))


def _edit(path: Path, **changes: Any) -> None:
    content = json.loads(path.read_text("utf-8"))
    for key, value in changes.items():
        if value is None:
            del content[key]
        else:
            content[key] = value
    path.write_text(json.dumps(content), "utf-8")


def _flip(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    weights["model.layers.0.self_attn.k_proj.weight"][3, 5] += 0.5
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def _swap_pairs(folder: Path) -> None:
    """Filas de q y k en el orden de Meta."""
    weights = load_file(folder / "model.safetensors")
    for name in [name for name in weights if "q_proj" in name or "k_proj" in name]:
        rows = weights[name]
        weights[name] = rows.reshape(-1, 2, 8, rows.shape[1]).transpose(1, 2).reshape_as(rows)
    weights = {name: tensor.contiguous() for name, tensor in weights.items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def _template(folder: Path) -> None:
    path = folder / "chat_template.jinja"
    path.write_text(path.read_text("utf-8").replace("'\\n' + message", "message"), "utf-8")


def _other_regex(folder: Path) -> None:
    path = folder / "tokenizer.json"
    text = path.read_text("utf-8")
    prefix = r"[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
    assert prefix in text
    path.write_text(text.replace(prefix, r"\\p{L}+"), "utf-8")


HUGGINGFACE: dict[str, tuple[Callable[[Path], None], str]] = {
    "un peso cambiado": (_flip, "logits de transformers"),
    "las filas de q y k en otro orden": (_swap_pairs, "logits de transformers"),
    "otro épsilon": (
        lambda folder: _edit(folder / "config.json", rms_norm_eps=1e-6),
        "logits de transformers",
    ),
    "otra base de RoPE": (
        lambda folder: _edit(
            folder / "config.json",
            rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        ),
        "logits de transformers",
    ),
    "otra expresión regular": (_other_regex, "parte de otra manera"),
    "sin tokenizer_class se normaliza": (
        lambda folder: _edit(folder / "tokenizer_config.json", tokenizer_class=None),
        "parte de otra manera",
    ),
    "otra plantilla": (_template, "plantilla"),
}


def _some(names: Iterable[str], quick: set[str]) -> list[Any]:
    """Los casos de siempre y, aparte, los que solo corren con las pruebas largas."""
    return [name if name in quick else pytest.param(name, marks=pytest.mark.slow) for name in names]


QUICK = {"un peso cambiado", "otra base de RoPE", "sin tokenizer_class se normaliza"}


@pytest.mark.parametrize("name", _some(HUGGINGFACE, QUICK))
def test_transformers_nota(name: str, qwen3: Reference, tmp_path: Path) -> None:
    write_huggingface(qwen3.source, tmp_path, SETTINGS)
    damage, said = HUGGINGFACE[name]
    damage(tmp_path)
    with pytest.raises(ExportError, match=said):
        check_huggingface(qwen3, tmp_path)


def _no_alternation(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(gguf_writer, "interleaved", lambda values, heads: values)


def _reserved_unused(patch: pytest.MonkeyPatch) -> None:
    real = gguf_writer.vocabulary

    def unused(source: Source) -> gguf_writer.Vocabulary:
        found = real(source)
        return found._replace(types=[5 if kind == 3 else kind for kind in found.types])

    patch.setattr(gguf_writer, "vocabulary", unused)


def _other_eps(patch: pytest.MonkeyPatch) -> None:
    real = gguf.GGUFWriter.add_layer_norm_rms_eps
    patch.setattr(gguf.GGUFWriter, "add_layer_norm_rms_eps", lambda self, _: real(self, 1e-6))


def _other_template(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(gguf_writer, "jinja_template", lambda chats: "{{ messages[0]['content'] }}")


LLAMA: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], str]] = {
    "filas sin alternar": (_no_alternation, "logits de llama.cpp"),
    "la expresión regular de gpt-2": (
        lambda patch: patch.setattr(gguf_writer, "_PRE_TOKENIZER", "gpt-2"),
        "parte de otra manera",
    ),
    "la expresión regular de gpt-4o": (
        lambda patch: patch.setattr(gguf_writer, "_PRE_TOKENIZER", "gpt-4o"),
        "parte de otra manera el texto «mayúsculas con tilde»",
    ),
    "reservados sin usar": (_reserved_unused, "parte de otra manera"),
    "otro épsilon": (_other_eps, "logits de llama.cpp"),
    "otra plantilla": (_other_template, "plantilla"),
}


@pytest.mark.parametrize("name", _some(LLAMA, {"filas sin alternar", "otra plantilla"}))
def test_llama_cpp_nota(
    name: str, llama: Reference, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant, said = LLAMA[name]
    plant(monkeypatch)
    write_gguf(llama.source, tmp_path / "modelo.gguf", "f32", SETTINGS)
    with pytest.raises(ExportError, match=said):
        check_llama(llama, tmp_path / "modelo.gguf")


@pytest.mark.slow
def test_qwen3_con_las_filas_alternadas_se_nota(
    qwen3: Reference, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = gguf_writer.gguf_tensors

    def alternated(source: Source) -> dict[str, Any]:
        heads = {"attn_q.weight": 4, "attn_k.weight": 2}
        return {
            name: gguf_writer.interleaved(values, heads[name.split(".", 2)[-1]])
            if name.split(".", 2)[-1] in heads
            else values
            for name, values in real(source).items()
        }

    with monkeypatch.context() as patch:
        patch.setattr(gguf_writer, "gguf_tensors", alternated)
        write_gguf(qwen3.source, tmp_path / "modelo.gguf", "f32", SETTINGS)
    with pytest.raises(ExportError, match=r"logits de llama\.cpp"):
        check_llama(qwen3, tmp_path / "modelo.gguf")
    with pytest.raises(ExportError, match=r"el tensor blk.0.attn_[qk].weight no es el del modelo"):
        check_format(qwen3, tmp_path / "modelo.gguf", "f32")


def test_un_byte_cambiado_en_un_formato_se_nota(qwen3: Reference, tmp_path: Path) -> None:
    path = tmp_path / "modelo.gguf"
    write_gguf(qwen3.source, path, "q8_0", SETTINGS)
    content = bytearray(path.read_bytes())
    content[-100] ^= 1
    path.write_bytes(content)
    with pytest.raises(ExportError, match="no es el del modelo"):
        check_format(qwen3, path, "q8_0")


def test_un_gguf_a_medias_no_se_abre(qwen3: Reference, tmp_path: Path) -> None:
    path = tmp_path / "modelo.gguf"
    write_gguf(qwen3.source, path, "f32", SETTINGS)
    path.write_bytes(path.read_bytes()[:-5000])
    with pytest.raises(ExportError, match=r"llama.cpp no pudo abrir modelo.gguf"):
        check_llama(qwen3, path)
