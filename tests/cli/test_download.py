"""`make corpus` sin SRC: solo el texto, por partes enteras; qué se niega y cómo lo dice."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from enlace.config.yaml_io import dump_yaml, read_yaml
from enlace.data.preparation.build import build_corpus
from enlace.data.readers.blocks import read_lines
from enlace.errors import ConfigError, DataError
from enlace.files import sha256_file
from enlace.workspace import hub
from enlace.workspace.download import download_all

from .conftest import Project
from .support_hub import PART, bring, folder_bytes, text, with_downloads, write_hub

_FULL = [text(n) for n in range(90) if text(n)]


def _lines(folder: Path) -> list[dict[str, Any]]:
    parts = sorted(folder.glob("part-*.jsonl.zst"))
    return [json.loads(line) for part in parts for _, _, line in read_lines(part)]


def test_llega_solo_el_texto_y_el_manifiesto_lo_cuenta(hub_root: Path, dataset: Path) -> None:
    said: list[str] = []
    folder = bring(with_downloads({"dataset": str(dataset)}), said.append)
    assert folder == Path("data/raw/web")
    assert _lines(folder) == [{"text": line} for line in _FULL]
    manifest = json.loads((folder / ".download.json").read_text())
    parts = manifest["parts"]
    assert len(parts) > 3
    assert sorted([*(part["file"] for part in parts), ".download.json"]) == sorted(
        folder_bytes(folder)
    )
    assert all(part["sha256"] == sha256_file(folder / part["file"]) for part in parts)
    assert all(part["bytes"] < PART + 300 for part in parts)
    size = sum(len(line.encode()) for line in _FULL)
    assert (manifest["bytes"], sum(part["bytes"] for part in parts)) == (size, size)
    assert (manifest["rows"], manifest["documents"], manifest["without_text"]) == (90, 81, 9)
    assert (manifest["finished"], manifest["remote_files"]) == ("end", 3)
    assert manifest["request"]["license"] == "ODC-By-1.0"
    assert manifest["commit"].startswith("local-")
    assert len(said) == len(parts) + (not manifest["parts"][-1]["bytes"])
    assert (hub_root / "dvc").read_text() == "add"
    assert not (hub_root / ".enlace/downloads/web").exists()


def test_jsonl_y_parquet_dan_lo_mismo(hub_root: Path, dataset: Path) -> None:
    entries = [{"dataset": str(dataset)}, {"dataset": str(dataset), "subset": "spa_Lines"}]
    entries[1]["name"] = "lineas"
    one, other = download_all(with_downloads(*entries), Path(), lambda _: None, PART)
    assert _lines(one.folder) == _lines(other.folder)


def test_la_licencia_y_la_columna_son_las_que_lee_el_corpus(hub_root: Path, dataset: Path) -> None:
    changes = {"data.text_column": "contenido", "data.license_column": "licencia"}
    lines = _lines(bring(with_downloads({"dataset": str(dataset)}, **changes)))
    assert lines[0] == {"contenido": text(0), "licencia": "ODC-By-1.0"}


def test_las_conversaciones_llegan_enteras(hub_root: Path, dataset: Path) -> None:
    entry = {"dataset": str(dataset), "text_column": "turns"}
    chat = {"data.format": "chat", "data.tokenizer.kind": "bpe", "model.vocab_size": 400}
    lines = _lines(bring(with_downloads(entry, **chat)))
    assert lines[3] == {"messages": [{"role": "user", "content": text(3)}]}


def test_el_corpus_lee_lo_descargado_con_su_licencia(hub_root: Path, dataset: Path) -> None:
    changes = {"data.include": ["**/*"], "data.license_column": "license"}
    data = with_downloads({"dataset": str(dataset)}, **changes)
    report = build_corpus(bring(data).parent, Path("corpus"), data)
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
def test_el_maximo_corta_en_un_documento(hub_root: Path, dataset: Path, documents: int) -> None:
    size = sum(len(line.encode()) for line in _FULL[:documents])
    folder = bring(with_downloads({"dataset": str(dataset), "max_megabytes": (size + 50) / 1e6}))
    assert [line["text"] for line in _lines(folder)] == _FULL[:documents]
    assert json.loads((folder / ".download.json").read_text())["finished"] == "limit"


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
    hub_root: Path, dataset: Path, entry: dict[str, Any], said: str
) -> None:
    with pytest.raises(DataError, match=said):
        bring(with_downloads({"dataset": str(dataset)} | entry))
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
    hub_root: Path, tmp_path: Path, subset: str, damage: Callable[[bytes], bytes]
) -> None:
    dataset = write_hub(tmp_path / "conjunto", 30)
    folder = {"spa_Latn": "data/spa_Latn/train", "spa_Lines": "data/lines"}[subset]
    path = max((dataset / folder).iterdir())
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DataError, match=r"dañado o cortado|no es un objeto JSON por línea"):
        bring(with_downloads({"dataset": str(dataset), "subset": subset}))
    assert not Path("data").exists()


def test_sin_el_extra_se_dice_como_instalarlo(
    hub_root: Path, dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "find_spec", lambda name: None if name == "datasets" else object())
    with pytest.raises(DataError, match=r"hace falta datasets; instálalo con .*\[hf\]"):
        bring(with_downloads({"dataset": str(dataset)}))


def test_sin_descargas_o_con_nombres_repetidos_no_se_empieza(hub_root: Path, dataset: Path) -> None:
    with pytest.raises(ConfigError, match=r"make corpus SRC=carpeta"):
        bring(with_downloads())
    entry = {"dataset": str(dataset)}
    with pytest.raises(ConfigError, match="se llaman «web»"):
        bring(with_downloads(entry, entry))
