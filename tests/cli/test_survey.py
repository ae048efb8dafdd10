"""`make corpus` dice antes de copiar qué leerá, en qué codificación venía y qué no leerá."""

import bz2
import gzip
import lzma
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from enlace.data.readers.survey import FormatCount, survey_files
from enlace.errors import DataError
from enlace.workspace import raw
from enlace.workspace.raw import import_sources, inspect_sources, survey_lines

_SENTENCE = "Mañana habrá canción, ¿no? El año pasado también llovió así. "


def _fill(folder: Path) -> Path:
    folder.mkdir()
    contents = {
        "a.txt": _SENTENCE.encode(),
        "b.txt": (_SENTENCE * 20).encode("cp1252"),
        "c.jsonl.gz": gzip.compress(b'{"text": "hola"}\n'),
        "d.pdf": b"%PDF-1.7",
        "j.pdf": b"%PDF-1.7",
        "e.txt": bytes(range(256)) * 40,
        "h.txt": b" \n\n",
        "i.zip": b"PK",
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return folder


def test_se_cuenta_lo_que_se_leera_y_se_nombra_lo_que_no(tmp_path: Path) -> None:
    folder = _fill(tmp_path / "textos")
    survey = survey_files({path.name: path for path in sorted(folder.iterdir())})
    plain = [folder / name for name in ("a.txt", "b.txt")]
    assert survey.formats == {
        "jsonl": FormatCount(1, (folder / "c.jsonl.gz").stat().st_size),
        "txt": FormatCount(2, sum(path.stat().st_size for path in plain)),
    }
    assert survey.encodings == {"cp1252": 1}
    assert [(r.rule, r.source) for r in survey.refused] == [
        ("unknown_format", "d.pdf"),
        ("bad_bytes", "e.txt"),
        ("empty", "h.txt"),
        ("unknown_format", "i.zip"),
        ("unknown_format", "j.pdf"),
    ]
    assert "pdftotext" in survey.refused[0].detail
    assert "descomprímelo" in survey.refused[3].detail


def test_se_dice_antes_de_copiar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raw, "run_dvc", lambda arguments, root: "")
    sources = inspect_sources([_fill(tmp_path / "textos")], tmp_path)
    assert not (tmp_path / "data").exists()
    lines = survey_lines(sources[0])
    assert lines[0].startswith("textos: se leerá 1 jsonl")
    assert lines[1] == "textos: pasarán a UTF-8 1 en cp1252"
    assert lines[2].startswith("textos: no se leerá d.pdf y 1 más: extensión desconocida .pdf")
    assert len(lines) == 2 + 4  # los dos .pdf comparten línea
    import_sources(sources, tmp_path)
    assert (tmp_path / "data/raw/textos/d.pdf").is_file()


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("foto.txt", bytes(range(256)) * 40, "no parece texto"),
        ("libro.pdf", b"%PDF-1.7", "pdftotext"),
        ("todo.tar.gz", b"x", "descomprímelo"),
    ],
)
def test_si_nada_se_puede_leer_se_dice_y_no_se_copia(
    tmp_path: Path, name: str, content: bytes, problem: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=problem) as refused:
        inspect_sources([tmp_path / name], tmp_path / "proyecto")
    assert name in str(refused.value)
    assert not (tmp_path / "proyecto").exists()


_COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.ZstdCompressor().compress,
}


@pytest.mark.parametrize("suffix", _COMPRESS)
def test_lo_cortado_por_el_final_se_dice_antes_de_copiar(tmp_path: Path, suffix: str) -> None:
    """El principio se lee bien: solo se sabe llegando al final."""
    folder = _fill(tmp_path / "textos")
    text = "".join(f"{_SENTENCE}{number}\n" for number in range(40_000)).encode()
    (folder / f"k.txt{suffix}").write_bytes(_COMPRESS[suffix](text)[:-7])
    with pytest.raises(DataError, match=rf"k\.txt\{suffix} está dañado o cortado") as refused:
        inspect_sources([folder], tmp_path / "proyecto")
    assert "le falta el final" in str(refused.value)
    assert not (tmp_path / "proyecto").exists()


def test_se_nombran_todos_los_que_no_estan_enteros(tmp_path: Path) -> None:
    folder = _fill(tmp_path / "textos")
    for name in ("k.txt.gz", "l.parquet", "m.jsonl.zst", "n.parquet", "o.txt.xz", "p.txt.bz2"):
        (folder / name).write_bytes(b"PAR1 no lo es")
    with pytest.raises(DataError) as refused:
        inspect_sources([folder], tmp_path / "proyecto")
    assert str(refused.value) == (
        f"{folder}/k.txt.gz está dañado o cortado (no es un .gz, o tiene bytes cambiados); "
        "vuelve a copiarlo o a descargarlo; tampoco se pueden leer l.parquet, m.jsonl.zst, "
        "n.parquet y 2 más"
    )
