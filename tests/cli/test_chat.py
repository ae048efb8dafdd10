"""`enlace chat`: turnos, órdenes, cortes y contexto, con modelos diminutos y sin terminal."""

import io
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from enlace.data.chat import render_turns, turn_markers
from enlace.data.documents import Turn
from enlace.data.tokenizer import ByteTokenizer
from enlace.errors import CheckpointError, ConfigError
from enlace.inference.conversation import Conversation, Prompt, Text, TooLongError
from enlace.inference.engine import Engine, Outcome, Request, open_backend, open_engine
from enlace.inference.text_stream import TextStream
from enlace.model.sampling import Sampling
from enlace.model.transformer import Transformer
from enlace.train.container import read_tensors
from enlace.train.tensors import load_model_tensors
from enlace.workspace.chat import Terminal, chat
from tests.export.support_export import random_source, small_tokenizer, trained_folder

REQUEST = Request(12, Sampling(0.0))


@cache
def _engine(data_format: str) -> Engine:
    source = random_source()
    data = source.config.data.model_copy(update={"format": data_format})
    config = source.config.model_copy(update={"data": data})
    return Engine(source.model, config, source.tokenizer, open_backend(config))


def _talk(engine: Engine, lines: str, request: Request = REQUEST, system: str = "") -> list[str]:
    """Lo que sale y las notas, de hablar sin terminal."""
    out, notes = io.StringIO(), io.StringIO()
    chat(engine, request, 5, Terminal(io.StringIO(lines), out, notes), system)
    return [out.getvalue(), notes.getvalue()]


def _alone(engine: Engine, ids: list[int], request: Request = REQUEST) -> tuple[str, list[int]]:
    """La respuesta de un modelo recién abierto, que no recuerda nada."""
    engine._cached, outcome = [], Outcome()
    text = "".join(engine.stream(ids, request, engine.generator(5), outcome))
    return text, outcome.ids


def test_varios_turnos_leen_lo_dicho_como_al_entrenar() -> None:
    engine, tokenizer = _engine("chat"), small_tokenizer()
    out, _ = _talk(engine, "¿Qué tal?\nCamio\u0301n\n", system="Responde.")
    turns: list[tuple[str, Any]] = [("system", tokenizer.encode("Responde."))]
    expected = ""
    for question in ("¿Qué tal?", "Camión"):
        turns.append(("user", tokenizer.encode(question)))
        ids, _ = render_turns(
            tuple(Turn(role, "") for role, _ in turns),  # type: ignore[arg-type]
            [ids for _, ids in turns],
            turn_markers(tokenizer),
        )
        opening = [tokenizer.turn_start_id, *tokenizer.encode("assistant\n")]
        text, answer = _alone(engine, [*map(int, ids), *opening])
        expected += text + "\n"
        turns.append(("assistant", answer))
    assert out == expected


def test_nuevo_olvida_y_salir_acaba() -> None:
    engine = _engine("chat")
    once, _ = _talk(engine, "Hola\n")
    out, notes = _talk(engine, "Hola\n/nuevo\nHola\n/nada\n\n/salir\nHola\n")
    assert out == once * 2
    assert "empezamos de nuevo" in notes
    assert "/nada" in notes
    assert "/salir" in _talk(engine, "/ayuda\n")[0]


def test_un_modelo_preentrenado_dice_que_no_conversa_y_continua() -> None:
    engine = _engine("text")
    out, notes = _talk(engine, "Había una vez\n\n")
    ids = small_tokenizer().encode("Había una vez")
    first, new = _alone(engine, ids)
    second, _ = _alone(engine, [*ids, *new])
    assert out == f"{first}\n{second}\n"
    assert "completa texto; todavía no conversa" in notes
    with pytest.raises(ConfigError, match="--system"):
        _talk(engine, "x\n", system="Sé amable.")


def test_lo_mas_viejo_se_olvida_y_el_sistema_no() -> None:
    tokenizer = small_tokenizer()
    talk = Conversation(tokenizer, 90, "Responde.")
    head = Conversation(tokenizer, 90, "Responde.").ask("a", 0).ids[:6]
    forgotten = []
    for number in range(8):
        prompt = talk.ask(f"pregunta número {number}", 20)
        assert len(prompt.ids) + 20 <= 90
        assert prompt.ids[:6] == head
        assert f"número {number}" in tokenizer.decode(prompt.ids)
        forgotten.append(prompt.forgotten)
        talk.answer(tokenizer.encode("respuesta"), "respuesta")
    assert forgotten[0] == 0
    assert set(forgotten[-3:]) == {2}  # pregunta y respuesta, juntas
    last = "número 7"
    with pytest.raises(TooLongError, match="entre 1 y 89"):
        talk.ask("hola " * 90, 20)
    assert last in tokenizer.decode(talk.ask("otra", 20).ids)  # el rechazo no ha olvidado nada


def test_un_texto_que_llena_el_contexto_sigue_con_lo_ultimo() -> None:
    text = Text(ByteTokenizer(), 32)
    assert text.ask("a" * 20, 8) == Prompt([*b"a" * 20], 0)
    text.answer([*b"b" * 8], "b" * 8)
    prompt = text.ask("", 8)
    assert (bytes(prompt.ids), prompt.forgotten) == (b"a" * 16 + b"b" * 8, 4)
    with pytest.raises(TooLongError):
        text.ask("a" * 32, 8)


def test_se_dice_lo_que_se_olvida_y_el_final_del_contexto() -> None:
    engine = _engine("chat")
    _, notes = _talk(engine, "Hola, ¿qué tal estás hoy?\n" * 12, Request(60, Sampling(0.0)))
    assert "olvido lo más antiguo" in notes
    _, notes = _talk(engine, "ñandú " * 55 + "\n", Request(1000, Sampling(0.0)))
    assert "los 256 tokens" in notes or "entre 1 y 255" in notes
    _, notes = _talk(engine, "ñandú " * 400 + "\n")
    assert "acórtalo" in notes


class _Interrupted(io.StringIO):
    """Una salida en la que alguien pulsa Ctrl-C tras unos trozos."""

    pieces = 0

    def write(self, text: str) -> int:
        self.pieces += 1
        if self.pieces == 4:
            raise KeyboardInterrupt
        return super().write(text)


def test_ctrl_c_corta_la_respuesta_y_la_conversacion_sigue() -> None:
    engine, out, notes = _engine("text"), _Interrupted(), io.StringIO()
    chat(engine, REQUEST, 5, Terminal(io.StringIO("Había\nUna vez\n"), out, notes))
    expected, _ = _alone(engine, small_tokenizer().encode("Una vez"))
    assert "cortado" in notes.getvalue()
    assert out.getvalue().endswith(f"\n{expected}\n")


def test_la_misma_semilla_da_la_misma_conversacion() -> None:
    engine, request = _engine("chat"), Request(12, Sampling(1.5, 40, 0.95, 0.01, 1.1))
    lines = "Hola\n¿Y ahora?\n"
    assert _talk(engine, lines, request) == _talk(engine, lines, request)


@pytest.mark.parametrize("kind", ["bpe", "byte"])
def test_nunca_sale_medio_caracter_y_nada_se_pierde(kind: str) -> None:
    tokenizer = small_tokenizer() if kind == "bpe" else ByteTokenizer()
    text = "¿Ñandú? 👨‍👩‍👧 café 日本 fin"
    stream = TextStream(tokenizer)
    pieces = [stream.push(each) for each in tokenizer.encode(text)]
    assert "".join(pieces) == text
    assert "\ufffd" not in "".join(pieces)
    broken = TextStream(tokenizer)
    assert "".join(map(broken.push, tokenizer.encode("aé")[:-1])) + broken.close() in ("a", "aé")


@pytest.mark.parametrize("stop", ["FIN", "n FI", "\n"])
def test_la_parada_no_sale_aunque_llegue_a_trozos(stop: str) -> None:
    text = "un buen FI de FIN\ny más"
    stream = TextStream(ByteTokenizer(), ["zzz", stop])
    pieces = [stream.push(byte) for byte in text.encode()]
    assert "".join(pieces) == text[: text.index(stop)]
    assert stream.stopped
    assert stream.close() == ""


def test_lo_retenido_sale_si_no_era_la_parada() -> None:
    stream = TextStream(ByteTokenizer(), ["FIN"])
    assert "".join(map(stream.push, b"el FI")) == "el "
    assert stream.close() == "FI"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Un modelo BPE entregado de verdad."""
    return trained_folder(tmp_path_factory.mktemp("chat"))


@pytest.mark.parametrize("name", ["model", "state"])
def test_abre_un_modelo_o_un_checkpoint_y_dice_lo_que_sus_pesos(model: Path, name: str) -> None:
    ids = small_tokenizer().encode("Había")
    engine = open_engine(model.parent / name, model)
    plain = Transformer(engine.config.model, "math")
    load_model_tensors(plain, read_tensors(model.parent / name / "model.safetensors"), model)
    expected = plain.generate(torch.tensor([ids]), 12, 0.0, stop_ids=[0])[0, len(ids) :].tolist()
    assert _alone(engine, ids)[1] == [each for each in expected if each]


def test_el_tokenizador_de_fuera_debe_ser_el_suyo(model: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    shutil.copytree(model.parent / "state", state)
    (state / "tokenizer.json").unlink()
    with pytest.raises(CheckpointError, match="no es el tokenizador"):
        open_engine(state, model)
