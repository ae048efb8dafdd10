"""`make corpus` sin SRC: solo el texto, por partes enteras y con los mismos bytes tras un corte."""

import gzip
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from enlace.config.schema import DataConfig
from enlace.config.yaml_io import dump_yaml, read_yaml
from enlace.data.preparation.build import build_corpus
from enlace.data.readers.blocks import read_lines
from enlace.errors import ConfigError, DataError
from enlace.files import sha256_file, write_json
from enlace.workspace import download, hub, raw
from enlace.workspace.download import download_all

from .conftest import Project
from .support_hub import text, with_downloads, write_hub

PART = 1500
_FULL = [text(n) for n in range(90) if text(n)]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_hub(tmp_path_factory.mktemp("hub") / "conjunto")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Un proyecto vacío, con la llamada a DVC sustituida."""
    folder = tmp_path / "proyecto"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.delenv("DVC_ROOT", raising=False)
    monkeypatch.setattr(
        raw, "run_dvc", lambda arguments, root: Path("dvc").write_text(*arguments[:1])
    )
    return folder


def _bring(data: DataConfig, report: Callable[[str], None] = lambda _: None) -> Path:
    (done,) = download_all(data, Path(), report, PART)
    return done.folder


def _lines(folder: Path) -> list[dict[str, Any]]:
    parts = sorted(folder.glob("part-*.jsonl.zst"))
    return [json.loads(line) for part in parts for _, _, line in read_lines(part)]


def _bytes(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_llega_solo_el_texto_y_el_manifiesto_lo_cuenta(root: Path, dataset: Path) -> None:
    said: list[str] = []
    folder = _bring(with_downloads({"dataset": str(dataset)}), said.append)
    assert folder == Path("data/raw/web")
    assert _lines(folder) == [{"text": line} for line in _FULL]
    manifest = json.loads((folder / ".download.json").read_text())
    parts = manifest["parts"]
    assert len(parts) > 3
    assert sorted([*(part["file"] for part in parts), ".download.json"]) == sorted(_bytes(folder))
    assert all(part["sha256"] == sha256_file(folder / part["file"]) for part in parts)
    assert all(part["bytes"] < PART + 300 for part in parts)
    size = sum(len(line.encode()) for line in _FULL)
    assert (manifest["bytes"], sum(part["bytes"] for part in parts)) == (size, size)
    assert (manifest["rows"], manifest["documents"], manifest["without_text"]) == (90, 81, 9)
    assert (manifest["finished"], manifest["remote_files"]) == ("end", 3)
    assert manifest["request"]["license"] == "ODC-By-1.0"
    assert manifest["commit"].startswith("local-")
    assert len(said) == len(parts) + (not manifest["parts"][-1]["bytes"])
    assert (root / "dvc").read_text() == "add"
    assert not (root / ".enlace/downloads/web").exists()


def test_jsonl_y_parquet_dan_lo_mismo(root: Path, dataset: Path) -> None:
    entries = [{"dataset": str(dataset)}, {"dataset": str(dataset), "subset": "spa_Lines"}]
    entries[1]["name"] = "lineas"
    one, other = download_all(with_downloads(*entries), Path(), lambda _: None, PART)
    assert _lines(one.folder) == _lines(other.folder)


def test_la_licencia_y_la_columna_son_las_que_lee_el_corpus(root: Path, dataset: Path) -> None:
    changes = {"data.text_column": "contenido", "data.license_column": "licencia"}
    lines = _lines(_bring(with_downloads({"dataset": str(dataset)}, **changes)))
    assert lines[0] == {"contenido": text(0), "licencia": "ODC-By-1.0"}


def test_las_conversaciones_llegan_enteras(root: Path, dataset: Path) -> None:
    entry = {"dataset": str(dataset), "text_column": "turns"}
    chat = {"data.format": "chat", "data.tokenizer.kind": "bpe", "model.vocab_size": 400}
    lines = _lines(_bring(with_downloads(entry, **chat)))
    assert lines[3] == {"messages": [{"role": "user", "content": text(3)}]}


def test_el_corpus_lee_lo_descargado_con_su_licencia(root: Path, dataset: Path) -> None:
    changes = {"data.include": ["**/*"], "data.license_column": "license"}
    data = with_downloads({"dataset": str(dataset)}, **changes)
    report = build_corpus(_bring(data).parent, Path("corpus"), data)
    assert report["read"]["documents"] == len(_FULL)
    assert not report["dropped"]["unknown_format"]["documents"]
    assert list(report["licenses"]) == ["ODC-By-1.0"]


@pytest.mark.slow
def test_con_dvc_de_verdad_queda_apuntado(project: Project, dataset: Path) -> None:
    path = project.root / "params.yaml"
    params = read_yaml(path)
    data = with_downloads({"dataset": str(dataset)})
    params["data"]["downloads"] = [entry.model_dump() for entry in data.downloads]
    path.write_text(dump_yaml(params), encoding="utf-8")
    text = project.ok("corpus", "--download")
    assert "licencia ODC-By-1.0" in text
    assert "está en data/raw/web: 81 documentos" in text
    assert "A  data/raw.dvc" in project.git("status", "--porcelain")
    assert "nfiles: 2" in (project.root / "data/raw.dvc").read_text()  # una parte y su manifiesto
    assert "ya estaba en data/raw/web" in project.ok("corpus", "--download")
    assert "quita --download" in project.refused("corpus", "--download", "x")


@pytest.mark.parametrize("documents", [1, 10, 80])
def test_el_maximo_corta_en_un_documento(root: Path, dataset: Path, documents: int) -> None:
    size = sum(len(line.encode()) for line in _FULL[:documents])
    folder = _bring(with_downloads({"dataset": str(dataset), "max_megabytes": (size + 50) / 1e6}))
    assert [line["text"] for line in _lines(folder)] == _FULL[:documents]
    assert json.loads((folder / ".download.json").read_text())["finished"] == "limit"


class _CutError(Exception):
    pass


@pytest.mark.parametrize("subset", ["spa_Latn", "spa_Lines"])
@pytest.mark.parametrize("where", ["a media parte", "sin apuntarla", "apuntada"])
def test_con_muchos_cortes_los_bytes_son_los_mismos(
    root: Path, dataset: Path, monkeypatch: pytest.MonkeyPatch, where: str, subset: str
) -> None:
    data = with_downloads({"dataset": str(dataset), "subset": subset})
    whole = _bytes(_bring(data))
    shutil.rmtree("data")
    take = download._Download._take
    calls = iter(range(1, 1000))

    def cut_write(path: Path, value: Any) -> None:
        done = next(calls) % 2 == 0 or where == "apuntada"
        if done:
            write_json(path, value)
        if not done or where == "apuntada":
            raise _CutError

    def cut_take(self: Any, source: Any, stream: Any) -> bool:
        if next(calls) % 17 == 0:
            raise _CutError
        return take(self, source, stream)

    if where == "a media parte":
        monkeypatch.setattr(download._Download, "_take", cut_take)
    else:
        monkeypatch.setattr("enlace.workspace.download.write_json", cut_write)
    cuts = 0
    while not Path("data/raw/web").exists():
        try:
            _bring(data)
        except _CutError:
            cuts += 1
    assert cuts >= 3
    assert _bytes(Path("data/raw/web")) == whole


_KILLED = """\
import os, signal, sys
from pathlib import Path
from enlace.workspace import raw
from enlace.workspace.download import download_all
from tests.cli.support_hub import with_downloads

def report(line):
    if "3 partes" in line:
        os.kill(os.getpid(), signal.SIGKILL)

raw.run_dvc = lambda arguments, root: ""
download_all(with_downloads({"dataset": sys.argv[1]}), Path(), report, int(sys.argv[2]))
"""


def test_tras_un_kill_9_se_sigue_y_no_se_repite(root: Path, dataset: Path) -> None:
    project = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", _KILLED, str(dataset), str(PART)],
        env={"PYTHONPATH": project, "PATH": "", "HOME": str(root)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    work = Path(".enlace/downloads/web")
    kept = [(path.name, path.stat().st_mtime_ns) for path in sorted(work.glob("part-*"))]
    assert len(kept) == 3
    assert not Path("data").exists()
    data = with_downloads({"dataset": str(dataset)})
    folder = _bring(data)
    assert [(p.name, p.stat().st_mtime_ns) for p in sorted(folder.glob("part-*"))[:3]] == kept
    resumed = _bytes(folder)
    shutil.rmtree("data")
    assert resumed == _bytes(_bring(data))


def test_lo_que_ya_esta_no_se_descarga_y_lo_distinto_se_niega(
    root: Path, dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = with_downloads({"dataset": str(dataset)})
    _bring(data)
    monkeypatch.setattr(download, "resolve", lambda _: pytest.fail("no debe preguntar"))
    leftover = Path(".enlace/downloads") / data.downloads[0].name  # de un corte al mudarla de disco
    leftover.mkdir(parents=True)
    (again,) = download_all(data, Path(), lambda _: None, PART + 1)
    assert again.present
    assert not leftover.exists()
    with pytest.raises(DataError, match=r"max_megabytes = 1\.0 y ahora es 2\.0"):
        _bring(with_downloads({"dataset": str(dataset), "max_megabytes": 2.0}))
    Path("data/raw/mio").mkdir()
    with pytest.raises(DataError, match="no es una descarga"):
        _bring(with_downloads({"dataset": str(dataset), "name": "mio"}))


def test_no_se_sigue_con_otro_commit_ni_con_una_parte_danada(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = write_hub(tmp_path / "conjunto", 30)
    data = with_downloads({"dataset": str(dataset)})

    def cut(_: str) -> None:
        raise _CutError

    with pytest.raises(_CutError):
        _bring(data, cut)
    card = dataset / "README.md"
    content = card.read_bytes()
    card.write_bytes(content + b"otra")
    with pytest.raises(DataError, match=r"se empezó con commit = 'local-.*retira"):
        _bring(data)
    card.write_bytes(content)
    part = Path(".enlace/downloads/web/part-00000.jsonl.zst")
    part.write_bytes(part.read_bytes()[:-1])
    with pytest.raises(DataError, match="falta o está dañado"):
        _bring(data)


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"subset": "spa_Lat"}, r"la configuración «spa_Lat» \(como spa_Latn"),
        ({"subset": ""}, r"varias configuraciones .*\(como spa_Latn, spa_Lines\)"),
        ({"split": "validation"}, r"no tiene la parte «validation» \(tiene train, test, wide\)"),
        ({"text_column": "texto"}, r"no tiene la columna «texto» \(tiene text, url, turns\)"),
        ({"text_column": "turns"}, "guarda list y hace falta str"),
        ({"max_megabytes": 1e-6}, "no ha dado ningún texto"),
        ({"max_megabytes": 1e12}, "libera espacio"),
    ],
)
def test_un_dato_mal_puesto_se_nombra(
    root: Path, dataset: Path, entry: dict[str, Any], said: str
) -> None:
    with pytest.raises(DataError, match=said):
        _bring(with_downloads({"dataset": str(dataset)} | entry))
    assert not Path("data").exists()


@pytest.mark.parametrize(
    ("subset", "damage"),
    [
        ("spa_Latn", lambda content: content[:-40]),
        ("spa_Latn", lambda content: content[:100] + b"\0" * 400 + content[500:]),
        ("spa_Lines", lambda content: content[:-40]),
        ("spa_Lines", lambda content: b"x" + content),
        ("spa_Lines", lambda content: content[:100] + b"\0" * 40 + content[140:]),
        ("spa_Lines", lambda _: gzip.compress(b"[1, 2]\n")),
        ("spa_Lines", lambda _: gzip.compress(b"{roto\n")),
    ],
)
def test_un_fichero_danado_se_dice_y_no_deja_nada(
    root: Path, tmp_path: Path, subset: str, damage: Callable[[bytes], bytes]
) -> None:
    dataset = write_hub(tmp_path / "conjunto", 30)
    folder = {"spa_Latn": "data/spa_Latn/train", "spa_Lines": "data/lines"}[subset]
    path = max((dataset / folder).iterdir())
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DataError, match=r"dañado o cortado|no es un objeto JSON por línea"):
        _bring(with_downloads({"dataset": str(dataset), "subset": subset}))
    assert not Path("data").exists()


def test_sin_el_extra_se_dice_como_instalarlo(
    root: Path, dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "find_spec", lambda name: None if name == "datasets" else object())
    with pytest.raises(DataError, match=r"hace falta datasets; instálalo con .*\[hf\]"):
        _bring(with_downloads({"dataset": str(dataset)}))


def test_sin_descargas_o_con_nombres_repetidos_no_se_empieza(root: Path, dataset: Path) -> None:
    with pytest.raises(ConfigError, match=r"make corpus SRC=carpeta"):
        _bring(with_downloads())
    entry = {"dataset": str(dataset)}
    with pytest.raises(ConfigError, match="se llaman «web»"):
        _bring(with_downloads(entry, entry))
