"""Los límites: quien llega lento, se va, escribe basura o pide demasiado no estorba a los demás."""

import asyncio
import gzip
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from tests.serve.support_serve import (
    QUICK,
    TEXT,
    FakeEngine,
    Server,
    changed,
    events,
    post_bytes,
    running,
    until,
)

COMPLETE = "/v1/completions"
SLOW = 0.05


def _run(
    job: Callable[[Server, FakeEngine], Awaitable[Any]],
    engine: FakeEngine | None = None,
    **settings: Any,
) -> Any:
    engine = engine or FakeEngine()

    async def run() -> Any:
        async with asyncio.timeout(20), running(engine, **settings) as server:
            return await job(server, engine)

    return asyncio.run(run())


async def _others_are_fine(server: Server) -> None:
    status, answer = await server.post(COMPLETE, TEXT)
    assert (status, answer["choices"][0]["text"]) == (200, "¡Hola, niña!")


def test_quien_no_acaba_sus_cabeceras_o_no_pide_nada_se_cierra() -> None:
    async def job(server: Server, _: FakeEngine) -> None:
        half = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Len"
        opened = [await server.raw(data) for data in (half, b"", b"G")]
        done = [await server.raw(b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n")]
        await _others_are_fine(server)
        for reader, writer in [*opened, *done]:
            await reader.read()  # acaba cuando el servidor cierra
            writer.close()

    _run(job)


def test_un_cuerpo_que_no_llega_recibe_un_408_y_uno_a_gotas_tambien() -> None:
    async def job(server: Server, engine: FakeEngine) -> None:
        reader, writer = await server.raw(post_bytes(COMPLETE, b'{"pro', 500))
        drops = asyncio.create_task(_drip(writer))
        await _others_are_fine(server)
        assert b" 408 " in await reader.readline()
        drops.cancel()
        writer.close()
        assert len(engine.asked) == 1

    _run(job)


async def _drip(writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b" ")
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("chunked", [False, True])
def test_un_cuerpo_demasiado_grande_se_rechaza_sin_leerlo_entero(chunked: bool) -> None:
    big = b'{"prompt": "' + b"a" * QUICK.body_bytes + b'"}'

    async def parts() -> Any:
        yield big

    async def job(server: Server, engine: FakeEngine) -> None:
        data: Any = parts() if chunked else big
        headers = {"Content-Type": "application/json"}
        async with server.client.post(server.url + COMPLETE, data=data, headers=headers) as got:
            assert got.status == 413
            assert str(QUICK.body_bytes) in (await got.json())["error"]["message"]
        assert engine.asked == []
        await _others_are_fine(server)

    _run(job)


def test_un_cuerpo_comprimido_no_se_abre() -> None:
    bomb = gzip.compress(b'{"prompt": "' + b"a" * 1_000_000 + b'"}')[: QUICK.body_bytes]

    async def job(server: Server, _: FakeEngine) -> None:
        headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
        async with server.client.post(server.url + COMPLETE, data=bomb, headers=headers) as got:
            assert got.status == 415
        await _others_are_fine(server)

    _run(job)


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/9.9\r\n\r\n",
        b"\x00" * 500 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X-A: " + b"a" * 20_000 + b"\r\n\r\n",
        post_bytes(COMPLETE, b"\xff\xfe\x00", 3),
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ],
    ids=["tls", "versión", "ceros", "cabecera", "cuerpo", "longitud", "contrabando"],
)
def test_la_basura_se_rechaza_y_se_olvida(
    garbage: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    async def job(server: Server, engine: FakeEngine) -> None:
        reader, writer = await server.raw(garbage)
        status: list[bytes] = []
        with suppress(ConnectionResetError):  # cerrada antes de leer lo que sobraba
            status = (await reader.readline()).split()
        assert not status or status[1].startswith(b"4")
        writer.close()
        assert engine.asked == []
        await _others_are_fine(server)

    _run(job)
    assert capfd.readouterr() == ("", "")


def test_no_hay_mas_conexiones_que_las_que_caben() -> None:
    async def job(server: Server, _engine: FakeEngine) -> None:
        opened = [await server.raw(b"G") for _ in range(QUICK.connections)]
        await until(lambda: len(server.connections) == QUICK.connections)
        refused = [await server.raw(b"") for _ in range(3)]
        assert all([b" 503 " in await reader.read() for reader, _ in refused])
        for _reader, writer in [*opened, *refused]:
            writer.close()
        await until(lambda: len(server.connections) == 0)
        await _others_are_fine(server)

    _run(job, limits=changed(idle_seconds=5.0))


def test_se_generan_a_la_vez_las_que_se_dice_y_las_demas_esperan_o_se_van() -> None:
    async def job(server: Server, engine: FakeEngine) -> None:
        room = QUICK.parallel + QUICK.waiting
        answers = await asyncio.gather(*(server.post(COMPLETE, TEXT) for _ in range(room + 2)))
        assert sorted(status for status, _ in answers) == [200] * room + [503] * 2
        assert engine.most == QUICK.parallel

    _run(job, FakeEngine(delay=SLOW))


def test_quien_se_va_para_el_motor_y_deja_su_turno() -> None:
    async def job(server: Server, engine: FakeEngine) -> None:
        body = b'{"prompt": "a", "stream": true}'
        talking = [await server.raw(post_bytes(COMPLETE, body)) for _ in range(QUICK.parallel)]
        await until(lambda: engine.open == QUICK.parallel)
        waiting = [await server.raw(post_bytes(COMPLETE, body)) for _ in range(QUICK.waiting)]
        for _, writer in [*waiting, *talking]:
            writer.transport.abort()
        await until(lambda: engine.open == 0)
        engine.delay = 0.0
        await _others_are_fine(server)
        assert len(engine.asked) == QUICK.parallel + 1  # quien esperaba no llegó a pedir nada

    _run(job, FakeEngine(delay=30.0))


def test_quien_se_va_en_cualquier_momento_no_deja_rastro(
    capfd: pytest.CaptureFixture[str],
) -> None:
    async def job(server: Server, engine: FakeEngine) -> None:
        for number in range(80):
            _, writer = await server.raw(post_bytes(COMPLETE, b'{"prompt": "a", "stream": true}'))
            await asyncio.sleep(number / 20_000)
            writer.transport.abort()
        await until(lambda: engine.open == 0)
        engine.words = ["¡Hola, ", "niña!"]
        await _others_are_fine(server)

    crowded = changed(parallel=99, connections=99)
    _run(job, FakeEngine(words=["a"] * 50), limits=crowded)
    assert capfd.readouterr() == ("", "")


def test_quien_no_lee_no_detiene_a_nadie() -> None:
    async def job(server: Server, engine: FakeEngine) -> None:
        request = post_bytes(COMPLETE, b'{"prompt": "a", "stream": true}')
        opened = [await server.raw(request) for _ in range(QUICK.parallel)]
        # Y otro que pide la página sin parar y tampoco lee.
        opened.append(await server.raw(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 3000))
        for _reader, writer in opened:
            writer.transport.pause_reading()  # type: ignore[attr-defined]
        await until(lambda: len(engine.asked) == QUICK.parallel)
        engine.words = ["¡Hola, ", "niña!"]
        await _others_are_fine(server)
        await until(lambda: engine.open == 0 and len(server.connections) == 0)
        for _reader, writer in opened:
            writer.transport.abort()

    # Más de lo que cabe en los búferes del sistema.
    endless = FakeEngine(words=["a" * 1_000_000] * 40)
    _run(job, endless, limits=changed(answer_seconds=60.0, queue_seconds=60.0))


def test_una_respuesta_interminable_se_corta_y_se_dice() -> None:
    async def job(server: Server, engine: FakeEngine) -> None:
        status, answer = await server.post(COMPLETE, TEXT)
        assert (status, answer["error"]["type"]) == (504, "server_error")
        url = server.url + COMPLETE
        async with server.client.post(url, json=TEXT | {"stream": True}) as response:
            last = events(await response.text())[-1]
        assert "ha tardado demasiado" in last["error"]["message"]
        assert engine.open == 0
        engine.words, engine.delay = ["¡Hola, ", "niña!"], 0
        await _others_are_fine(server)

    _run(job, FakeEngine(words=["a"] * 10_000, delay=0.01), limits=changed(answer_seconds=0.2))


def test_al_cerrar_se_corta_lo_que_esta_a_medias() -> None:
    engine = FakeEngine(delay=30.0)

    async def run() -> float:
        async with running(engine) as server:
            reader, writer = await server.raw(post_bytes(COMPLETE, b'{"prompt": "a"}'))
            await until(lambda: engine.open == 1)
            started = time.monotonic()
        assert engine.open == 0
        assert await reader.read() == b""
        writer.close()
        return time.monotonic() - started

    assert asyncio.run(run()) < QUICK.answer_seconds
