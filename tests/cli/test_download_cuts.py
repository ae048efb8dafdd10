"""Descargas cortadas: por dónde se sigue, y con qué no se sigue."""

import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from enlace.errors import DataError
from enlace.files import write_json
from enlace.workspace import download
from enlace.workspace.download import download_all

from .support_hub import PART, bring, folder_bytes, with_downloads, write_hub


class _CutError(Exception):
    pass


@pytest.mark.parametrize("subset", ["spa_Latn", "spa_Lines"])
@pytest.mark.parametrize("where", ["a media parte", "sin apuntarla", "apuntada"])
def test_con_muchos_cortes_los_bytes_son_los_mismos(
    hub_root: Path, dataset: Path, monkeypatch: pytest.MonkeyPatch, where: str, subset: str
) -> None:
    data = with_downloads({"dataset": str(dataset), "subset": subset})
    whole = folder_bytes(bring(data))
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
            bring(data)
        except _CutError:
            cuts += 1
    assert cuts >= 3
    assert folder_bytes(Path("data/raw/web")) == whole


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


@pytest.mark.slow
def test_tras_un_kill_9_se_sigue_y_no_se_repite(hub_root: Path, dataset: Path) -> None:
    project = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", _KILLED, str(dataset), str(PART)],
        env={"PYTHONPATH": project, "PATH": "", "HOME": str(hub_root)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    work = Path(".enlace/downloads/web")
    kept = [(path.name, path.stat().st_mtime_ns) for path in sorted(work.glob("part-*"))]
    assert len(kept) == 3
    assert not Path("data").exists()
    data = with_downloads({"dataset": str(dataset)})
    folder = bring(data)
    assert [(p.name, p.stat().st_mtime_ns) for p in sorted(folder.glob("part-*"))[:3]] == kept
    resumed = folder_bytes(folder)
    shutil.rmtree("data")
    assert resumed == folder_bytes(bring(data))


def test_lo_que_ya_esta_no_se_descarga_y_lo_distinto_se_niega(
    hub_root: Path, dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = with_downloads({"dataset": str(dataset)})
    bring(data)
    monkeypatch.setattr(download, "resolve", lambda _: pytest.fail("no debe preguntar"))
    leftover = Path(".enlace/downloads") / data.downloads[0].name  # de un corte al mudarla de disco
    leftover.mkdir(parents=True)
    (again,) = download_all(data, Path(), lambda _: None, PART + 1)
    assert again.present
    assert not leftover.exists()
    with pytest.raises(DataError, match=r"max_megabytes = 1\.0 y ahora es 2\.0"):
        bring(with_downloads({"dataset": str(dataset), "max_megabytes": 2.0}))
    Path("data/raw/mio").mkdir()
    with pytest.raises(DataError, match="no es una descarga"):
        bring(with_downloads({"dataset": str(dataset), "name": "mio"}))


def test_no_se_sigue_con_otro_commit_ni_con_una_parte_danada(
    hub_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = write_hub(tmp_path / "conjunto", 30)
    data = with_downloads({"dataset": str(dataset)})

    def cut(_: str) -> None:
        raise _CutError

    with pytest.raises(_CutError):
        bring(data, cut)
    card = dataset / "README.md"
    content = card.read_bytes()
    card.write_bytes(content + b"otra")
    with pytest.raises(DataError, match=r"se empezó con commit = 'local-.*retira"):
        bring(data)
    card.write_bytes(content)
    part = Path(".enlace/downloads/web/part-00000.jsonl.zst")
    part.write_bytes(part.read_bytes()[:-1])
    with pytest.raises(DataError, match="falta o está dañado"):
        bring(data)
