"""llama.cpp de verdad detrás de la puerta: muestrea como la terminal y se vuelve a abrir."""

import asyncio
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from enlace.errors import ServeError
from enlace.export.gguf_writer import write_gguf
from enlace.model.sampling import Sampling, penalize, warp_logits
from enlace.serve import engine
from enlace.serve.engine import EngineError, LlamaEngine
from enlace.serve.requests import CompletionRequest, sampling_settings
from enlace.serve.served import Served
from tests.export.support_export import SETTINGS, random_source
from tests.serve.support_serve import served

pytestmark = pytest.mark.slow
GREEDY = {"n_predict": 6, "temperature": 0, "repeat_penalty": 1.0}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Served:
    path = tmp_path_factory.mktemp("gguf") / "prueba-F32.gguf"
    write_gguf(random_source(), path, "f32", SETTINGS)
    return replace(served(), gguf=path)


@pytest.mark.parametrize(
    "wanted", [Sampling(0.8, 30, 0.9, 0.02, 1.7), Sampling(2.0, 0, 0.97, 0.0, 1.2)]
)
def test_muestrea_con_las_probabilidades_de_la_terminal(model: Served, wanted: Sampling) -> None:
    # Más de 64 tokens: lo que llama.cpp penaliza si no se le dice otra cosa.
    ids = model.tokenizer.encode("La luna y el mar, la noche y la luna. " * 9)
    request = CompletionRequest(
        prompt="",
        temperature=wanted.temperature,
        top_k=wanted.top_k,
        top_p=wanted.top_p,
        min_p=wanted.min_p,
        repetition_penalty=wanted.repetition_penalty,
    )
    asked = sampling_settings(model, request, 9)
    asked |= {"prompt": ids, "n_predict": 1, "n_probs": 2000, "post_sampling_probs": True}

    async def theirs() -> dict[int, float]:
        llama = LlamaEngine(model.gguf, model.context, 1)
        await llama.open()
        try:
            assert llama._session is not None
            entries: list[Any] = []
            # Solo cuenta los candidatos si el que sale es un carácter entero: se prueban semillas.
            for seed in range(40):
                body = asked | {"seed": seed}
                async with llama._session.post("/completion", json=body) as response:
                    entries = (await response.json()).get("completion_probabilities", [])
                if entries:
                    break
            (entry,) = entries
            return {top["id"]: top["prob"] for top in entry["top_probs"] if top["prob"] > 0}
        finally:
            await llama.close()

    context = torch.tensor([ids])
    with torch.no_grad():
        logits, _ = random_source().model(context)
    penalized = penalize(logits[:, -1], context, wanted.repetition_penalty)
    expected = torch.softmax(warp_logits(penalized, wanted), -1)[0]
    found = asyncio.run(theirs())
    kept = set(expected.nonzero().flatten().tolist())
    # En el borde, dos candidatos casi iguales pueden cambiarse: la caché de llama.cpp es de fp16.
    edge = 1.1 * min(found.values())
    for identifier in found.keys() ^ kept:
        assert max(found.get(identifier, 0.0), float(expected[identifier])) < edge
    assert len(found.keys() & kept) > 4
    for identifier in found.keys() & kept:
        assert found[identifier] == pytest.approx(float(expected[identifier]), abs=5e-3)


def test_si_se_cae_se_vuelve_a_abrir_y_si_se_cae_en_seguida_se_dice(
    model: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def say(llama: LlamaEngine) -> str:
        return "".join([piece.text async for piece in llama.stream([20, 40], GREEDY)])

    async def run() -> None:
        llama = LlamaEngine(model.gguf, model.context, 1)
        await llama.open()
        try:
            said = await say(llama)
            monkeypatch.setattr(engine, "_TOO_SOON", 0.0)
            keeping = asyncio.create_task(llama.keep_open())
            first = llama.pid
            assert first is not None
            os.kill(first, signal.SIGKILL)
            async with asyncio.timeout(30):
                while llama.pid in (first, None) or llama._session is None:
                    await asyncio.sleep(0.05)
            assert await say(llama) == said
            monkeypatch.setattr(engine, "_TOO_SOON", 1e9)
            second = llama.pid
            assert second is not None
            os.kill(second, signal.SIGKILL)
            with pytest.raises(ServeError, match=r"llama\.cpp se ha parado"):
                await keeping
        finally:
            await llama.close()
        with pytest.raises(EngineError):
            await say(llama)

    asyncio.run(run())


def test_un_gguf_que_llama_cpp_no_entiende_es_un_error(tmp_path: Path) -> None:
    path = tmp_path / "roto.gguf"
    path.write_bytes(b"GGUF" + bytes(400))

    async def run() -> None:
        with pytest.raises(ServeError, match=r"llama\.cpp no pudo abrir .*roto\.gguf"):
            await LlamaEngine(path, 256, 1).open()

    asyncio.run(run())
