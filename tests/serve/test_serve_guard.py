"""Quién entra: nombre, página de origen, token, y dónde se atiende."""

import asyncio
import socket
from pathlib import Path

import pytest

from enlace.errors import ServeError
from enlace.serve.guard import RefusedError, check_host, check_origin, check_token, is_local
from enlace.serve.page import HEADERS
from enlace.serve.server import Place, choose_place, listen, read_token, ready_lines
from tests.serve.support_serve import TEXT, FakeEngine, running, served

TOKEN = "una-clave-larga-de-prueba"


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.0.0.1:8000", "localhost:9000", "[::1]:8000", "127.9.9.9"]
)
def test_se_atiende_por_los_nombres_de_esta_maquina(host: str) -> None:
    check_host(host, None)


@pytest.mark.parametrize(
    "host",
    [
        "",
        "example.org",
        "localhost.example.org",
        "127.0.0.1.example.org:8000",
        "10.0.0.1",
        "[::",
        "x]",
    ],
)
def test_un_nombre_ajeno_se_rechaza_si_no_hay_token(host: str) -> None:
    with pytest.raises(RefusedError):
        check_host(host, None)
    check_host(host, TOKEN)


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://example.org"},
        {"Origin": "null"},
        {"Origin": "http://localhost:9999"},
        {"Origin": "http://localhost:8000.example.org"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_otra_pagina_no_puede_llamar(headers: dict[str, str]) -> None:
    with pytest.raises(RefusedError):
        check_origin({"Host": "localhost:8000"} | headers)


def test_la_pagina_propia_y_los_programas_si() -> None:
    check_origin({"Host": "localhost:8000"})
    check_origin({"Host": "localhost:8000", "Origin": "http://localhost:8000"})
    check_origin({"Host": "casa.local", "Origin": "https://casa.local"})
    check_origin({"Host": "localhost:8000", "Sec-Fetch-Site": "same-origin"})


@pytest.mark.parametrize(
    "given",
    ["", "Bearer", f"Basic {TOKEN}", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", "Bearer ñ"],
)
def test_sin_el_token_no_se_entra(given: str) -> None:
    with pytest.raises(RefusedError) as caught:
        check_token({"Authorization": given}, TOKEN)
    assert caught.value.status == 401
    assert TOKEN not in str(caught.value)


def test_el_token_abre_la_api_y_la_pagina_no_lo_necesita() -> None:
    async def run() -> None:
        async with running(FakeEngine(), token=TOKEN) as server:
            assert (await server.post("/v1/completions", TEXT))[0] == 401
            bearer = {"Authorization": f"Bearer {TOKEN}"}
            assert (await server.post("/v1/completions", TEXT, **bearer))[0] == 200
            async with server.client.get(server.url + "/v1/models") as response:
                assert response.status == 401
            async with server.client.get(server.url + "/") as response:
                assert response.status == 200

    asyncio.run(run())


def test_los_ataques_desde_un_navegador_no_llegan_al_motor() -> None:
    async def run() -> None:
        engine = FakeEngine()
        async with running(engine) as server:
            for headers, status in (
                ({"Host": "malo.example"}, 403),
                ({"Origin": "http://malo.example"}, 403),
                ({"Content-Type": "text/plain"}, 415),
                ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
            ):
                url = server.url + "/v1/completions"
                kind = {"Content-Type": "application/json"}
                data = b'{"prompt": "a"}'
                async with server.client.post(url, data=data, headers=kind | headers) as got:
                    assert got.status == status
                    assert "Access-Control-Allow-Origin" not in got.headers
                    assert got.headers["Server"] == HEADERS["Server"]
            async with server.client.options(server.url + "/v1/completions") as got:
                assert got.status == 405
        assert engine.asked == []

    asyncio.run(run())


def test_fuera_de_esta_maquina_hace_falta_permiso_y_siempre_hay_token() -> None:
    assert choose_place("127.0.0.1", 8000, False, None).token is None
    for host in ("0.0.0.0", "::", "192.168.1.5", "casa.local", ""):
        assert not is_local(host)
        with pytest.raises(ServeError, match="--allow-network"):
            choose_place(host, 8000, False, None)
        first, second = (choose_place(host, 8000, True, None).token for _ in range(2))
        assert first
        assert first != second


def test_el_token_de_un_fichero(tmp_path: Path) -> None:
    path = tmp_path / "token"
    made = choose_place("127.0.0.1", 8000, False, path).token
    assert made
    assert path.stat().st_mode & 0o077 == 0
    assert read_token(path) == made
    path.chmod(0o644)
    with pytest.raises(ServeError, match="chmod 600"):
        read_token(path)
    path.chmod(0o600)
    for bad in ("corto", "con espacios por en medio", "ñ" * 30, "a" * 600, ""):
        path.write_text(bad)
        with pytest.raises(ServeError, match="no tiene un token"):
            read_token(path)


def test_un_fichero_de_token_que_no_se_puede_crear_o_leer_se_dice(tmp_path: Path) -> None:
    with pytest.raises(ServeError, match="no se puede crear"):
        read_token(tmp_path / "nada" / "token")
    (tmp_path / "fichero").touch()
    with pytest.raises(ServeError, match="no se puede"):
        read_token(tmp_path / "fichero" / "token")
    tmp_path.chmod(0o700)
    with pytest.raises(ServeError, match="no se puede leer"):
        read_token(tmp_path)


def test_un_puerto_ocupado_se_dice_con_su_remedio() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ServeError, match=f"el puerto {port} .* --port"):
            listen(Place("127.0.0.1", port, None), 1.0)


def test_una_direccion_que_no_es_de_aqui_se_dice() -> None:
    with pytest.raises(ServeError, match="no es una dirección de esta máquina"):
        listen(Place("192.0.2.7", 0, None), 1.0)
    with pytest.raises(ServeError, match="no es una dirección conocida"):
        listen(Place("no.existe.invalid", 0, None), 1.0)


def test_lo_que_se_dice_al_estar_listo() -> None:
    lines = ready_lines(served(), Place("127.0.0.1", 0, None), 8000)
    assert lines[0] == "Modelo prueba (prueba-Q8_0.gguf): completa texto; todavía no conversa."
    assert lines[1] == "http://127.0.0.1:8000"
    lines = ready_lines(served(chats=True), Place("::1", 0, TOKEN), 8000)
    assert ": conversa." in lines[0]
    assert lines[1] == f"http://[::1]:8000/#token={TOKEN}"
