"""La ficha y el Modelfile: dicen la verdad de cada modelo y se pueden seguir al pie de la letra."""

import contextlib
import io
from pathlib import Path

import pytest

from enlace.export.card import UNKNOWN, Facts, model_card
from enlace.export.huggingface import write_huggingface
from enlace.export.modelfile import modelfile
from enlace.export.source import Source
from enlace.figures import size
from tests.export.support_export import SETTINGS, random_source
from tests.export.test_export_model import CORPUS, METRICS


def _card(source: Source, folder: Path, facts: Facts = UNKNOWN, license_name: str = "") -> str:
    write_huggingface(source, folder, SETTINGS)
    settings = SETTINGS.model_copy(update={"license": license_name})
    return model_card(source, settings, facts, sorted(folder.iterdir()), ["prueba-F16.gguf"])


def test_un_modelo_solo_preentrenado_no_promete_conversar(tmp_path: Path) -> None:
    text = _card(random_source(), tmp_path)
    assert "**Completa texto; todavía no conversa.**" in text
    assert "Conversa en español" not in text
    assert "El informe del corpus no acompañaba" in text
    assert "license:" not in text


def test_la_ficha_cuenta_licencias_medidas_y_linaje(tmp_path: Path) -> None:
    source = random_source(data__format="chat")
    text = _card(source, tmp_path, Facts(CORPUS, METRICS), "cc-by-4.0")
    assert text.startswith("---\nlanguage: es\n")
    assert "license: cc-by-4.0" in text
    assert "**Conversa en español.**" in text
    assert "110 documentos en español" in text
    assert f"10 documentos ({size(10_000)}) que solo sirven para medirlo" in text
    assert "| CC0 | 100 |" in text
    assert "| sin declarar | 20 |" in text
    assert "| Bits por byte | 2,3300 |" in text
    assert "| model.safetensors |" in text
    assert source.manifest["identity"] in text


@pytest.mark.slow
@pytest.mark.parametrize("chats", [True, False])
def test_el_ejemplo_de_python_de_la_ficha_funciona(chats: bool, tmp_path: Path) -> None:
    text = _card(random_source(data__format="chat" if chats else "text"), tmp_path)
    example = text.split("```python\n")[1].split("```")[0]
    written = io.StringIO()
    with contextlib.redirect_stdout(written), contextlib.chdir(tmp_path):
        exec(compile(example, "ficha", "exec"), {})
    assert written.getvalue().startswith("user" if chats else "Había una vez")


@pytest.mark.parametrize("chats", [True, False])
def test_modelfile(chats: bool) -> None:
    text = modelfile(random_source(data__format="chat" if chats else "text"), "x.gguf", SETTINGS)
    lines = text.splitlines()
    assert "FROM ./x.gguf" in lines
    assert "PARAMETER num_ctx 256" in lines
    assert "PARAMETER temperature 0.7" in lines
    assert 'PARAMETER stop "<|endoftext|>"' in lines
    assert ('PARAMETER stop "<|im_end|>"' in lines) == chats
    template = text.split('TEMPLATE """')[1].split('"""')[0]
    if chats:
        assert template == (
            "{{- range .Messages }}<|im_start|>{{ .Role }}\n{{ .Content }}<|im_end|>\n"
            "{{ end }}<|im_start|>assistant\n"
        )
    else:
        assert template == "{{ .Prompt }}"
