"""La comprobación: un solo bit cambiado en cualquier parte se encuentra y se nombra."""

import json
import os
import random
import shutil
from pathlib import Path

from enlace.errors import EnlaceError
from enlace.files import sha256_file
from enlace.lineage.checks import Check
from enlace.lineage.hashing import Wanted, digest_all
from enlace.lineage.verify import verify
from enlace.train import checkpoint
from enlace.train.artifact import (
    MANIFEST,
    MANIFEST_DIGEST,
    OPTIMIZER,
    STATE,
    STATE_DIGEST,
    signature,
)
from enlace.train.artifact import MODEL as WEIGHTS
from tests.lineage.conftest import RUN

MODEL = Path("checkpoints/model")


def flip(path: Path, position: int | None = None, in_place: bool = False) -> None:
    """Cambia un bit; sin `in_place`, en un fichero nuevo, que no toca el objeto de la caché."""
    content = bytearray(path.read_bytes())
    where = len(content) // 2 if position is None else position
    content[where // 8 if position is not None else where] ^= 1 << (where % 8)
    status = path.stat()
    if not in_place:
        path.unlink()
    path.write_bytes(content)
    # Con el mismo tamaño y la misma fecha, DVC no nota nada.
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def bad(checks: list[Check]) -> list[Check]:
    return [check for check in checks if check.status != "bien"]


def first_fault(path: Path, root: Path) -> str:
    """Lo primero que falla: el error al abrir o la primera comprobación dañada."""
    try:
        checks = verify(path, root)
    except EnlaceError as error:
        return str(error)
    faults = [check for check in checks if check.status == "dañado"]
    assert faults, "no se encontró"
    return faults[0].line()


def test_lo_recien_hecho_esta_bien_y_nada_queda_sin_decir(root: Path) -> None:
    for path in (MODEL, Path("checkpoints/state"), RUN):
        checks = verify(path, Path())
        # El proyecto de la prueba no está en git.
        assert [check.subject for check in bad(checks)] == ["commit"]
    subjects = " ".join(check.subject for check in verify(MODEL, Path()))
    for part in (WEIGHTS, "train-00000.bin", "report.json", "tokenizer.json", "caché", "identity"):
        assert part in subjects


def test_un_bit_cambiado_en_cualquier_fichero_se_nombra(root: Path) -> None:
    state = Path("checkpoints/state")
    cases = {
        MODEL: [
            *(MODEL / name for name in (WEIGHTS, "config.json", "tokenizer.json", MANIFEST)),
            MODEL / MANIFEST_DIGEST,
            *(Path("data/shards") / name for name in ("train-00000.bin", "val.docs.bin")),
            Path("data/shards/index.json"),
            Path("data/tokenizer/tokenizer.json"),
            Path("data/corpus/report.json"),
        ],
        state: [
            state / name for name in (WEIGHTS, OPTIMIZER, STATE, STATE_DIGEST, "tokenizer.json")
        ],
    }
    for target, files in cases.items():
        for path in files:
            kept = path.with_name("intacto")
            path.rename(kept)
            shutil.copy2(kept, path)
            kept.rename(root / "intacto")
            flip(path)
            fault = first_fault(target, Path())
            # Un resumen dañado y lo que resume se distinguen mal: se nombra uno de los dos.
            assert str(path.with_suffix("")) in fault
            # La caché no se tocó: el daño está solo en la carpeta de trabajo.
            assert "caché" not in fault
            (root / "intacto").rename(path)


def test_cualquier_bit_del_manifiesto_y_de_los_pesos_se_encuentra(root: Path) -> None:
    rng = random.Random(3)
    for name in (MANIFEST, MANIFEST_DIGEST, WEIGHTS, "config.json"):
        path = MODEL / name
        original = path.read_bytes()
        for position in rng.sample(range(8 * len(original)), 6):
            flip(path, position)
            assert name.split(".")[0] in first_fault(MODEL, Path())
            path.write_bytes(original)


def test_un_enlace_duro_cambiado_en_el_sitio_delata_tambien_a_la_cache(root: Path) -> None:
    path = Path("data/shards/train-00000.bin")
    flip(path, in_place=True)
    damaged = [check.line() for check in verify(MODEL, Path()) if check.status == "dañado"]
    assert len(damaged) == 2
    assert any("caché de DVC de data/shards/train-00000.bin" in line for line in damaged)
    assert any(line.startswith(f"dañado: {path}: su SHA-256") for line in damaged)


def test_la_cache_mala_se_distingue_de_la_carpeta_buena(root: Path) -> None:
    path = Path("data/shards/train-00000.bin")
    stored = next(
        file for file in Path(".dvc/cache").rglob("*") if file.is_file() and file.samefile(path)
    )
    flip(stored)
    damaged = [check for check in verify(MODEL, Path()) if check.status == "dañado"]
    assert len(damaged) == 1
    assert str(stored) in damaged[0].subject
    assert "borra ese objeto" in damaged[0].detail


def test_otros_datos_en_su_lugar_no_son_un_dano_si_dvc_lo_dice(root: Path) -> None:
    lock = Path("dvc.lock").read_text(encoding="utf-8")
    flip(Path("data/shards/train-00000.bin"))
    shards = json.loads((MODEL / MANIFEST).read_text())["origin"]["dvc"]["lock"]["tokenize"]
    other = lock.replace(shards["outs"]["data/shards"], f"{'e' * 32}.dir")
    Path("dvc.lock").write_text(other, encoding="utf-8")
    found = {check.status for check in bad(verify(MODEL, Path())) if "train-00000" in check.subject}
    assert found == {"distinto"}


def test_lo_que_falta_se_enumera_como_no_comprobado(root: Path) -> None:
    shutil.rmtree("data")
    shutil.rmtree(".dvc/cache")
    lines = [check.line() for check in bad(verify(MODEL, Path()))]
    assert not [line for line in lines if line.startswith("dañado")]
    for part in ("data/shards", "tokenizer.json", "report.json", "caché de DVC de data/corpus"):
        assert any(line.startswith("sin comprobar") and part in line for line in lines), part


def test_sin_datos_se_dice(root: Path) -> None:
    lines = [check.line() for check in bad(verify(MODEL, Path(), data=False))]
    assert any("se ha pedido no leerlos" in line for line in lines)


def test_el_codigo_de_hoy_se_compara_con_el_de_entonces(root: Path) -> None:
    path = Path("enlace/train/schedule.py")
    path.write_text(path.read_text(encoding="utf-8") + "# más\n", encoding="utf-8")
    different = [check for check in verify(MODEL, Path()) if check.status == "distinto"]
    assert [check.subject for check in different] == [str(path)]


def test_una_identidad_falsa_bien_firmada_se_descubre(root: Path) -> None:
    manifest = json.loads((MODEL / MANIFEST).read_text(encoding="utf-8"))
    manifest["identity"] = "0" * 64
    (MODEL / MANIFEST).unlink()
    (MODEL / MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")
    (MODEL / MANIFEST_DIGEST).unlink()
    text = signature(sha256_file(MODEL / MANIFEST), MANIFEST)
    (MODEL / MANIFEST_DIGEST).write_text(text, encoding="utf-8")
    assert "identity de su configuración" in first_fault(MODEL, Path())


def test_un_fichero_de_mas_se_dice(root: Path) -> None:
    (MODEL / "extra.bin").write_bytes(b"x")
    assert any("extra.bin" in check.subject for check in bad(verify(MODEL, Path())))


def test_un_run_comprueba_todos_sus_checkpoints(root: Path) -> None:
    oldest = min((RUN / "checkpoints").iterdir())
    flip(oldest / OPTIMIZER)
    assert str(oldest / OPTIMIZER) in first_fault(RUN, Path())


def test_los_nombres_son_los_del_checkpoint() -> None:
    names = (checkpoint.MODEL, checkpoint.OPTIMIZER, checkpoint.STATE, checkpoint.DIGEST)
    assert names == (WEIGHTS, OPTIMIZER, STATE, STATE_DIGEST)


def test_los_resumenes_son_los_de_hashlib_y_cada_dato_se_lee_una_vez(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    first.write_bytes(os.urandom(3_000_001))
    second.hardlink_to(first)
    missing = Wanted(tmp_path / "c", "md5")
    found = digest_all([Wanted(first, "sha256"), Wanted(second, "md5"), missing])
    assert found[Wanted(first, "sha256")] == sha256_file(first)
    assert isinstance(found[missing], FileNotFoundError)
