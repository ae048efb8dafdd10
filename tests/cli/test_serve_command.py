"""`enlace serve` y `make serve`: qué llaman y qué dicen cuando no pueden."""

from pathlib import Path

import pytest

from .conftest import Project


def test_sin_exportacion_dice_como_se_hace(project: Project, tmp_path: Path) -> None:
    assert "exported no existe" in project.refused("serve")
    line = project.refused("serve", str(tmp_path / "otro"))
    assert f"{tmp_path / 'otro'} no existe" in line
    assert "make export" in line


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.20"])
def test_fuera_de_esta_maquina_hace_falta_pedirlo(project: Project, host: str) -> None:
    assert "--allow-network" in project.refused("serve", "--host", host)


def test_el_token_no_se_da_en_la_linea_de_ordenes(project: Project) -> None:
    assert "no hay ninguna opción --token" in project.refused("serve", "--token", "secreto")


def test_make_serve_instala_el_extra_y_pasa_la_carpeta(project: Project) -> None:
    # Python se sustituye por un contador: lo que se prueba es con qué se le llama.
    calls, binaries = project.root / "llamadas", project.root / ".venv/bin"
    binaries.mkdir(parents=True)
    (binaries / "python").write_text(f'#!/bin/sh\necho "$@" >> {calls}\n')
    (binaries / "python").chmod(0o755)
    assert project.run("make", "serve").returncode == 0
    assert project.run("make", "serve", "DIR=mi modelo").returncode == 0
    lines = calls.read_text().splitlines()
    assert len([line for line in lines if line.endswith("--editable .[export]")]) == 1
    assert lines.count("-m enlace serve --") == 1
    assert lines.count("-m enlace serve -- mi modelo") == 1
