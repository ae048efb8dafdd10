"""`enlace corpus`: comprobar antes, copiar entero o nada y no perder nunca lo que había."""

import os
import shutil
from pathlib import Path

import pytest

from enlace.errors import DataError, EnlaceError
from enlace.workspace import raw
from enlace.workspace.raw import Imported, import_sources, inspect_sources, split_sources

from .conftest import Project


def bring(paths: list[Path], root: Path) -> Imported:
    """Comprobar y copiar, como hace la orden."""
    return import_sources(inspect_sources(paths, root), root)


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Sustituye la llamada a DVC y guarda lo que se le habría pedido."""
    calls: list[list[str]] = []

    def record(arguments: list[str], root: Path) -> str:
        calls.append(arguments)
        return ""

    monkeypatch.setattr(raw, "run_dvc", record)
    return calls


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Un proyecto vacío."""
    (tmp_path / "proyecto").mkdir()
    return tmp_path / "proyecto"


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    """Una carpeta con texto, una subcarpeta y un fichero oculto."""
    folder = tmp_path / "origen" / "Mis textos"
    (folder / "más").mkdir(parents=True)
    (folder / "uno.txt").write_text("uno\n", encoding="utf-8")
    (folder / "más" / "dos.txt").write_text("dos\n", encoding="utf-8")
    (folder / ".DS_Store").write_bytes(b"x")
    return folder


def _tree(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_copia_ficheros_y_carpetas_con_sus_nombres(
    root: Path, texts: Path, added: list[list[str]]
) -> None:
    done = bring([texts, texts / "uno.txt"], root)
    assert _tree(root / "data/raw") == {
        "Mis textos/más/dos.txt": b"dos\n",
        "Mis textos/uno.txt": b"uno\n",
        "uno.txt": b"uno\n",
    }
    assert [source.skipped for source in done.copied] == [1, 0]
    assert added == [["add", "data/raw"]]
    assert (texts / "uno.txt").stat().st_nlink == 1  # copia: DVC no vuelve de solo lectura lo ajeno


def test_repetir_la_importacion_no_copia_y_vuelve_a_apuntar(
    tmp_path: Path, texts: Path, added: list[list[str]]
) -> None:
    bring([texts], tmp_path)
    done = bring([texts], tmp_path)
    assert (done.copied, [source.path for source in done.present]) == ([], [texts])
    assert len(added) == 2


@pytest.mark.parametrize("change", ["otro contenido", "un fichero más", "un fichero menos"])
def test_un_choque_se_rechaza_y_no_se_toca(
    tmp_path: Path, texts: Path, added: list[list[str]], change: str
) -> None:
    bring([texts], tmp_path)
    before = _tree(tmp_path / "data/raw")
    if change == "otro contenido":
        (texts / "uno.txt").write_text("UNO\n", encoding="utf-8")
    elif change == "un fichero más":
        (texts / "tres.txt").write_text("tres\n", encoding="utf-8")
    else:
        (texts / "uno.txt").unlink()
    other = tmp_path / "nuevo.txt"
    other.write_text("nuevo\n", encoding="utf-8")
    with pytest.raises(DataError, match="ya existe con otro contenido"):
        bring([other, texts], tmp_path)
    assert _tree(tmp_path / "data/raw") == before  # ni siquiera la fuente buena
    assert len(added) == 1


def test_dos_fuentes_con_el_mismo_nombre_se_rechazan(
    root: Path, tmp_path: Path, added: list[list[str]]
) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.txt").write_text(name, encoding="utf-8")
    with pytest.raises(DataError, match=r"se llaman «x\.txt»"):
        bring([tmp_path / "a/x.txt", tmp_path / "b/x.txt"], root)
    assert added == []


def test_los_enlaces_se_copian_como_contenido(
    root: Path, tmp_path: Path, texts: Path, added: list[list[str]]
) -> None:
    outside = tmp_path / "fuera.txt"
    outside.write_text("fuera\n", encoding="utf-8")
    (texts / "enlace.txt").symlink_to(outside)
    link = tmp_path / "atajo"
    link.symlink_to(texts)
    bring([link], root)
    copied = root / "data/raw/atajo/enlace.txt"
    assert not copied.is_symlink()
    assert copied.read_text(encoding="utf-8") == "fuera\n"


def _missing(folder: Path) -> Path:
    return folder / "no está"


def _empty_folder(folder: Path) -> Path:
    (folder / "vacía").mkdir()
    return folder / "vacía"


def _empty_file(folder: Path) -> Path:
    (folder / "vacío.txt").touch()
    return folder / "vacío.txt"


def _only_hidden(folder: Path) -> Path:
    (folder / "oculta").mkdir()
    (folder / "oculta/.x").write_text("x")
    return folder / "oculta"


def _broken_link(folder: Path) -> Path:
    (folder / "roto").mkdir()
    (folder / "roto/x.txt").symlink_to(folder / "nada")
    return folder / "roto"


def _loop(folder: Path) -> Path:
    (folder / "bucle").mkdir()
    (folder / "bucle/x.txt").write_text("x")
    (folder / "bucle/dentro").symlink_to(folder / "bucle")
    return folder / "bucle"


def _pipe(folder: Path) -> Path:
    (folder / "tubo").mkdir()
    os.mkfifo(folder / "tubo/x.txt")
    return folder / "tubo"


def _bad_name(folder: Path) -> Path:
    (folder / "nombres").mkdir()
    Path(os.fsdecode(os.fsencode(folder / "nombres") + b"/a\xf1o.txt")).write_text("x")
    return folder / "nombres"


def _bad_folder_name(folder: Path) -> Path:
    inside = Path(os.fsdecode(os.fsencode(folder / "carpetas") + b"/a\xf1o"))
    inside.mkdir(parents=True)
    (inside / "x.txt").write_text("x")
    return folder / "carpetas"


def _bad_source_name(folder: Path) -> Path:
    source = Path(os.fsdecode(os.fsencode(folder) + b"/a\xf1o"))
    source.mkdir()
    (source / "x.txt").write_text("x")
    return source


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (_missing, "no existe"),
        (_empty_folder, "ningún fichero visible"),
        (_empty_file, "está vacío"),
        (_only_hidden, "ningún fichero visible"),
        (_broken_link, "enlace roto"),
        (_loop, "lo contiene"),
        (_pipe, "no es un fichero corriente"),
        (_bad_name, "no es UTF-8"),
        (_bad_folder_name, "no es UTF-8"),
        (_bad_source_name, "no es UTF-8"),
    ],
)
def test_una_fuente_que_no_sirve_no_copia_nada(
    root: Path, tmp_path: Path, added: list[list[str]], make: object, said: str
) -> None:
    good = tmp_path / "bueno.txt"
    good.write_text("bueno\n", encoding="utf-8")
    assert callable(make)
    with pytest.raises(DataError, match=said):
        bring([good, make(tmp_path)], root)
    assert added == []
    assert list(root.iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root puede leerlo todo")
def test_un_fichero_sin_permiso_se_nombra(root: Path, texts: Path) -> None:
    (texts / "uno.txt").chmod(0)
    with pytest.raises(DataError, match=r"uno\.txt no se puede leer"):
        bring([texts], root)


@pytest.mark.parametrize("inside", ["", "data", "data/raw", "data/raw/mío"])
def test_el_proyecto_no_se_importa_a_si_mismo(tmp_path: Path, inside: str) -> None:
    (tmp_path / "data/raw/mío").mkdir(parents=True)
    (tmp_path / "data/raw/mío/x.txt").write_text("x")
    with pytest.raises(DataError, match="contiene data/raw o está dentro"):
        bring([tmp_path / inside], tmp_path)


def test_sin_sitio_en_el_disco_no_se_empieza(
    tmp_path: Path, texts: Path, added: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=3))
    with pytest.raises(DataError, match="libera espacio"):
        bring([texts], tmp_path)
    assert added == []


def test_una_copia_cortada_no_deja_restos(
    tmp_path: Path, texts: Path, added: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = shutil.copyfile

    def fail(source: Path, target: Path) -> None:
        if source.name == "uno.txt":
            raise OSError(28, "No space left on device")
        real(source, target)

    monkeypatch.setattr(shutil, "copyfile", fail)
    with pytest.raises(DataError, match="no se ha podido copiar"):
        bring([texts], tmp_path)
    assert _tree(tmp_path / "data/raw") == {}
    (tmp_path / "data/raw/.tmp-viejo").write_text("de un corte de luz")
    monkeypatch.setattr(shutil, "copyfile", real)
    bring([texts], tmp_path)
    assert set(_tree(tmp_path / "data/raw")) == {"Mis textos/más/dos.txt", "Mis textos/uno.txt"}
    assert added == [["add", "data/raw"]]


def test_las_rutas_con_espacios_y_las_listas_se_entienden(texts: Path) -> None:
    base = texts.parent
    (base / "otro").mkdir()
    assert split_sources(["Mis textos"], base) == [texts]
    assert split_sources(['"Mis textos" otro'], base) == [texts, base / "otro"]
    assert split_sources(["otro", "./otro/../Mis textos"], base) == [base / "otro", texts]
    assert split_sources(["d'Alembert.txt"], base) == [base / "d'Alembert.txt"]
    assert split_sources(["~"], base) == [Path.home()]


@pytest.mark.slow
def test_con_dvc_de_verdad_lo_anterior_sigue(root: Path, project: Project, texts: Path) -> None:
    text = project.ok("corpus", str(texts))
    assert "2 ficheros" in text
    assert project.git("status", "--porcelain") == "A  data/raw.dvc\n"
    project.commit("texto")
    (texts.parent / "tres.txt").write_text("tres\n", encoding="utf-8")
    project.ok("corpus", str(texts.parent / "tres.txt"))
    assert "nfiles: 3" in (project.root / "data/raw.dvc").read_text()
    # En un clon sin el texto, importar más daría el anterior por borrado.
    (project.root / "data/raw/tres.txt").unlink()
    assert "make pull" in project.refused("corpus", str(texts))


def test_un_fallo_de_dvc_es_una_linea(root: Path, texts: Path) -> None:
    # Aquí no hay ni git ni DVC: la copia queda y el mensaje lleva la razón de DVC.
    with pytest.raises(EnlaceError, match="dvc add ha fallado: you are not inside of a DVC"):
        bring([texts], root)
    assert (root / "data/raw/Mis textos/uno.txt").is_file()
