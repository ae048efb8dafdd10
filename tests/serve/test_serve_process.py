"""El servidor entero, con un GGUF y un llama.cpp de verdad: qué sirve, a quién y cómo acaba."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from enlace.errors import CheckpointError, ServeError
from enlace.export import build
from enlace.export.build import export_model
from enlace.inference.engine import Outcome, Request, open_engine
from enlace.model.sampling import Sampling
from enlace.serve.served import open_served
from enlace.workspace.generate import new_talk
from tests.export.support_export import SETTINGS, trained_folder

if TYPE_CHECKING:
    import openai

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
TALK = [{"role": "user", "content": "¿Qué tal el día?"}]
EXACT = "prueba-F32.gguf"
CROWD = 200
LEAK = 24 * 2**20
STOPS_WITHIN = 20.0


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Una exportación sin sus comprobaciones, que aquí no se miran."""
    folder = tmp_path_factory.mktemp("servido")
    settings = SETTINGS.model_copy(update={"gguf": ("f32", "f16", "q8_0"), "temperature": 0.25})
    nothing: dict[str, Any] = {}
    chat: dict[str, Any] = {"data.format": "chat"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "_prove", lambda *_: nothing)
        model = trained_folder(folder, **chat)
        export_model(model, folder / "exported", settings)
    return folder / "exported"


@dataclass
class Serving:
    """Un `enlace serve` en marcha."""

    process: subprocess.Popen[str]
    port: int

    @property
    def child(self) -> int:
        """El proceso de llama.cpp."""
        task = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return int(task.read_text().split()[0])

    @property
    def client(self) -> "openai.OpenAI":
        """El cliente de verdad, apuntando aquí."""
        # Importarlo tarda más de un segundo, y esto se lee también sin las pruebas largas.
        import openai

        return openai.OpenAI(base_url=f"http://127.0.0.1:{self.port}/v1", api_key="no hace falta")


def _start(folder: Path, *options: str) -> Serving:
    command = [sys.executable, "-m", "enlace.cli", "serve", str(folder), "--port", "0", *options]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT,
        env=environment,
    )  # fmt: skip
    assert process.stdout is not None
    for line in process.stdout:
        if found := re.match(r"http://127\.0\.0\.1:(\d+)", line):
            assert "Ctrl-C" in process.stdout.readline()
            return Serving(process, int(found[1]))
    raise AssertionError("no ha llegado a estar listo")


@pytest.fixture(scope="module")
def serving(exported: Path) -> Iterator[Serving]:
    serving = _start(exported, "--gguf", EXACT)
    yield serving
    serving.process.terminate()
    output, _ = serving.process.communicate(timeout=30)
    assert (serving.process.returncode, output) == (0, "")


def test_el_cliente_de_openai_recibe_lo_mismo_que_la_terminal(
    serving: Serving, exported: Path
) -> None:
    ours = open_engine(exported, exported)
    prompt = new_talk(ours).ask(TALK[0]["content"], 0)
    asked = Request(12, Sampling(0.0))
    expected = "".join(ours.stream(prompt.ids, asked, ours.generator(0), Outcome()))
    with serving.client as client:
        assert [model.id for model in client.models.list()] == ["prueba"]
        options: Any = {"model": "prueba", "messages": TALK, "max_tokens": 12, "temperature": 0}
        extra = {"repetition_penalty": 1.0}
        answer = client.chat.completions.create(**options, extra_body=extra)
        assert answer.choices[0].message.content == expected
        assert answer.usage.prompt_tokens == len(prompt.ids)
        stream = client.chat.completions.create(**options, extra_body=extra, stream=True)
        pieces = [chunk.choices[0].delta.content or "" for chunk in stream]
        assert "".join(pieces) == expected
        assert len([piece for piece in pieces if piece]) > 3
        text = client.completions.create(
            model="prueba", prompt="Había una vez", max_tokens=5, stop=["\n\n"], seed=3
        )
        assert text.usage is not None
        assert text.usage.completion_tokens <= 5
        again = client.completions.create(
            model="prueba", prompt="Había una vez", max_tokens=5, stop=["\n\n"], seed=3
        )
        assert again.choices[0].text == text.choices[0].text


def test_el_cliente_de_openai_entiende_los_errores(serving: Serving) -> None:
    import openai

    with serving.client as client:
        long: Any = [{"role": "user", "content": "palabra " * 900}]
        with pytest.raises(openai.BadRequestError) as caught:
            client.chat.completions.create(model="prueba", messages=long)
        assert caught.value.code == "context_length_exceeded"
        with pytest.raises(openai.NotFoundError):
            client.completions.create(model="otro", prompt="a")
        with pytest.raises(openai.NotFoundError):
            client.embeddings.create(model="prueba", input="a")
        with pytest.raises(openai.BadRequestError, match="tools"):
            client.chat.completions.create(model="prueba", messages=TALK, tools=[])  # type: ignore[arg-type]


def test_doscientos_a_la_vez_y_la_mitad_con_malas_maneras(serving: Serving) -> None:
    asked = {"messages": TALK, "max_tokens": 6, "temperature": 0}
    with serving.client as client:
        answer = client.chat.completions.create(model="prueba", **asked)  # type: ignore[call-overload]
    given = json.dumps({"asked": asked, "expected": answer.choices[0].message.content})
    before: list[dict[str, int]] = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-m", "tests.serve.crowd", str(serving.port), str(CROWD)],
            input=given, capture_output=True, text=True, cwd=ROOT, check=True,
        )  # fmt: skip
        assert json.loads(done.stdout) == {"bien": CROWD * 4 // 10}
        before.append(_settled(serving))
    first, second = before
    for what in ("descriptores", "hilos"):
        assert second[what] <= first[what], what
    assert second["memoria"] < first["memoria"] + LEAK


def _settled(serving: Serving) -> dict[str, int]:
    """Lo que usan los dos procesos, cuando ya no queda ninguna conexión."""
    for _ in range(100):
        found = {"descriptores": 0, "hilos": 0, "memoria": 0}
        for pid in (serving.process.pid, serving.child):
            found["descriptores"] += len(list(Path(f"/proc/{pid}/fd").iterdir()))
            status = Path(f"/proc/{pid}/status").read_text()
            found["hilos"] += int(re.findall(r"Threads:\s+(\d+)", status)[0])
            found["memoria"] += int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) * 1024
        connections = Path(f"/proc/{serving.process.pid}/net/tcp").read_text()
        # 01 es ESTABLISHED; el puerto local va en hexadecimal.
        if not re.search(rf":{serving.port:04X} \S+ 01 ", connections):
            return found
        time.sleep(0.1)
    raise AssertionError("quedan conexiones abiertas")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_al_pararlo_no_queda_nada(exported: Path, number: signal.Signals) -> None:
    serving = _start(exported)
    child, client = serving.child, serving.client

    import openai

    def talk() -> None:
        options: Any = {"model": "prueba", "prompt": "a", "max_tokens": 250, "stream": True}
        with client, suppress(openai.APIError):
            list(client.completions.create(**options))

    talking = threading.Thread(target=talk)
    started = time.monotonic()
    if number == signal.SIGKILL:
        serving.process.kill()
    else:
        talking.start()
        serving.process.send_signal(number)
        talking.join(STOPS_WITHIN)
    output, _ = serving.process.communicate(timeout=STOPS_WITHIN)
    assert (serving.process.returncode, output) == (-9 if number == signal.SIGKILL else 0, "")
    while Path(f"/proc/{child}").exists():
        assert time.monotonic() - started < STOPS_WITHIN
        time.sleep(0.02)


def test_sin_decir_nada_se_sirve_el_mejor_para_una_cpu(exported: Path) -> None:
    found = open_served(exported)
    assert (found.gguf.name, found.format) == ("prueba-Q8_0.gguf", "Q8_0")
    assert (found.name, found.chats, found.sampling.temperature) == ("prueba", True, 0.25)
    assert open_served(exported, EXACT).format == "F32"
    with pytest.raises(ServeError, match=r"tiene prueba-Q8_0\.gguf, prueba-F16\.gguf"):
        open_served(exported, "otro.gguf")


@pytest.mark.parametrize("name", ["prueba-Q8_0.gguf", "tokenizer.json", "enlace.json"])
def test_un_bit_cambiado_se_nombra_antes_de_abrir_nada(
    exported: Path, tmp_path: Path, name: str
) -> None:
    copy = shutil.copytree(exported, tmp_path / "copia")
    content = bytearray((copy / name).read_bytes())
    content[len(content) // 2] ^= 1
    (copy / name).write_bytes(content)
    with pytest.raises(CheckpointError, match=name):
        open_served(copy)
