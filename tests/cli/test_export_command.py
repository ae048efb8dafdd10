"""`enlace export` y `make export`: qué instalan, qué llaman y qué dicen cuando no pueden."""

from pathlib import Path

from .conftest import Project


def test_export_con_destino_pide_la_carpeta_del_modelo(project: Project) -> None:
    done = project.enlace("export", "--to", "otra")
    assert done.returncode == 2
    assert "enlace export CARPETA --to OTRA" in done.stderr


def test_export_de_una_carpeta_sin_modelo(project: Project, tmp_path: Path) -> None:
    (tmp_path / "vacía").mkdir()
    for name, said in (("nada", "nada no existe"), ("vacía", "no tiene ningún modelo")):
        assert said in project.refused("export", str(tmp_path / name))
        assert not (tmp_path / f"{name}-exported").exists()


def test_make_export_instala_su_extra_una_vez_y_llama_a_la_orden(project: Project) -> None:
    # Python se sustituye por un contador: lo que se prueba es con qué se le llama.
    calls, binaries = project.root / "llamadas", project.root / ".venv/bin"
    binaries.mkdir(parents=True)
    (binaries / "python").write_text(f'#!/bin/sh\necho "$@" >> {calls}\n')
    (binaries / "python").chmod(0o755)
    for _ in range(2):
        assert project.run("make", "export").returncode == 0
    lines = calls.read_text().splitlines()
    installs = [line for line in lines if " install " in line]
    assert len(installs) == 1
    assert "--constraint .constraints.txt" in installs[0]
    assert installs[0].endswith("--editable .[export]")
    assert lines.count("-m enlace export") == 2
