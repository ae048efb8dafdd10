"""Recalcular todo lo que un checkpoint o modelo dice de sí mismo y nombrar lo que no coincide.

Nada se salta en silencio: lo que no se puede comprobar (falta el fichero, no está en la caché) se
enumera como tal.
"""

from collections.abc import Iterator
from pathlib import Path

from enlace.config.yaml_io import read_yaml
from enlace.data.index import ShardIndex, read_index
from enlace.errors import DataError, EnlaceError
from enlace.lineage.checks import Check, Planned, Status
from enlace.lineage.dvc_cache import cache_folder, expected_md5, listing, object_path
from enlace.lineage.hashing import Wanted, digest_all
from enlace.manifest import Origin, content_sha256
from enlace.paths import CORPUS, SHARDS, TOKENIZER, private_folder
from enlace.provenance import commit_exists, versions
from enlace.train import artifact as names
from enlace.train.artifact import Artifact, open_artifact, run_checkpoints

LOCK_FILE = "dvc.lock"
_PATCH = "code-*.patch"


def verify(path: Path, root: Path, data: bool = True) -> list[Check]:
    """Comprueba un checkpoint, un modelo o un run (todos sus checkpoints).

    Args:
        path: la carpeta.
        root: la raíz del proyecto.
        data: si se releen también los datos y la caché de DVC.

    Raises:
        CheckpointError: el registro mismo está dañado, y no dice nada de fiar.
    """
    artifact = open_artifact(path)
    if not (path / "checkpoints").is_dir():
        return _verify([artifact], root, data)
    return _verify([open_artifact(folder) for folder in run_checkpoints(path)], root, data)


def _verify(artifacts: list[Artifact], root: Path, data: bool) -> list[Check]:
    """Lo propio de cada uno; lo que comparten (datos, código), una vez, con el último."""
    plans: list[Planned] = []
    checks: list[Check] = []
    for artifact in artifacts:
        checks.append(_record_check(artifact))
        checks += _identity(artifact)
        plans += _own_files(artifact)
        checks += _surplus(artifact)
    newest = artifacts[-1]
    origin, lock = newest.history.origin, _lock(root)
    for item in _parts(newest, origin, lock, root, data):
        (plans if isinstance(item, Planned) else checks).append(item)  # type: ignore[arg-type]
    found = digest_all(Wanted(plan.path, plan.algorithm) for plan in plans)
    return checks + [plan.judge(found) for plan in plans]


def _parts(
    artifact: Artifact, origin: Origin, lock: dict[str, str], root: Path, data: bool
) -> Iterator[Check | Planned]:
    yield from _parent(origin)
    if data:
        yield from _data(origin, lock, root)
        yield from _cache(artifact, origin, root)
    else:
        yield Check("sin comprobar", "datos y caché de DVC", "se ha pedido no leerlos")
    yield from _code(artifact, origin, root)


def _record_check(artifact: Artifact) -> Check:
    return Check("bien", str(artifact.path / artifact.record_name), "")


def _own_files(artifact: Artifact) -> Iterator[Planned]:
    remedy = "recupéralo con dvc checkout o make pull, o vuelve a exportarlo"
    for name, digest in artifact.files.items():
        path = artifact.path / name
        yield Planned(path, "sha256", digest, str(path), "dañado", remedy)
    tokenizer = artifact.path / names.TOKENIZER
    if names.TOKENIZER not in artifact.files and tokenizer.exists():
        digest = artifact.history.origin.tokenizer
        yield Planned(tokenizer, "sha256", digest, str(tokenizer), "dañado", remedy)


def _surplus(artifact: Artifact) -> Iterator[Check]:
    """Lo que hay en la carpeta y su registro no enumera."""
    known = {*artifact.files, names.TOKENIZER, names.STATE, names.STATE_DIGEST}
    known |= {names.MANIFEST, names.MANIFEST_DIGEST, names.EXPORT, names.EXPORT_DIGEST}
    segments = artifact.history.segments
    patches = {segment.git.patch_name: segment.git.diff_sha256 for segment in segments}
    for file in sorted(artifact.path.iterdir()):
        if file.name in known:
            continue
        if file.match(_PATCH) and file.name in patches:
            found = digest_all([Wanted(file, "sha256")])[Wanted(file, "sha256")]
            good = found == patches[file.name]
            detail = "" if good else "no es el parche que dice el manifiesto"
            yield Check("bien" if good else "dañado", str(file), detail)
        else:
            yield Check("distinto", str(file), "no consta en el registro; nadie lo comprueba")


def _identity(artifact: Artifact) -> Iterator[Check]:
    for name, found in (
        ("identity", artifact.config.identity()),
        ("fingerprint", artifact.config.fingerprint()),
    ):
        noted = artifact.record[name]
        subject = f"{artifact.path}: {name} de su configuración"
        detail = "" if found == noted else f"se calcula {found} y se anotó {noted}"
        yield Check("bien" if found == noted else "dañado", subject, detail)


def _parent(origin: Origin) -> Iterator[Check | Planned]:
    parent = origin.parent
    if parent is None:
        return
    folder = private_folder() / "parents" / parent.sha256[:16]
    subject = f"padre {parent.run_name} (paso {parent.step})"
    if not folder.is_dir():
        yield Check("sin comprobar", subject, f"no hay copia en {folder}")
        return
    try:
        copy = open_artifact(folder)
        same = content_sha256(copy.record, parent.state) == parent.sha256
    except (EnlaceError, KeyError) as error:
        yield Check("dañado", subject, str(error))
        return
    detail = "" if same else f"{folder} no contiene lo que dice su nombre"
    yield Check("bien" if same else "dañado", subject, detail)
    yield from _own_files(copy)


def _data(origin: Origin, lock: dict[str, str], root: Path) -> Iterator[Check | Planned]:
    recorded = {path: md5 for entry in origin.dvc.lock.values() for path, md5 in entry.outs.items()}

    def otherwise(path: Path) -> Status:
        """Si `dvc.lock` dice que hoy toca otra versión, que difiera no es un daño."""
        before, now = recorded.get(str(path)), lock.get(str(path))
        return "distinto" if before and now and before != now else "dañado"

    yield from _shards(origin, root, otherwise(SHARDS))
    for path, digest, folder in (
        (TOKENIZER / names.TOKENIZER, origin.tokenizer, TOKENIZER),
        (CORPUS / "report.json", origin.corpus_report, CORPUS),
    ):
        if digest is None or not (root / folder).is_dir():
            yield Check("sin comprobar", str(path), "no está; tráelo con `make pull`")
        else:
            remedy = f"recupéralo con dvc checkout {folder}"
            yield Planned(root / path, "sha256", digest, str(path), otherwise(folder), remedy)


def _shards(origin: Origin, root: Path, otherwise: Status) -> Iterator[Check | Planned]:
    if not (root / SHARDS).is_dir():
        yield Check("sin comprobar", str(SHARDS), "no están; tráelos con `make pull`")
        return
    remedy = f"recupéralo con dvc checkout {SHARDS}"
    try:
        index: ShardIndex | None = read_index(root / SHARDS)
    except DataError as error:
        yield Check("dañado", f"{SHARDS}/index.json", str(error))
        index = None
    if index is not None and index.fingerprint != origin.data:
        detail = f"su huella es {index.fingerprint} y se anotó {origin.data}; {remedy}"
        yield Check(otherwise, f"{SHARDS}/index.json", detail)
    elif index is not None:
        yield Check("bien", f"{SHARDS}/index.json", "")
    for name, digest in origin.shards.items():
        path = SHARDS / name
        yield Planned(root / path, "sha256", digest, str(path), otherwise, remedy)


def _cache(artifact: Artifact, origin: Origin, root: Path) -> Iterator[Check | Planned]:
    """Los objetos de DVC de todo lo que precede al modelo y, si es una salida, los suyos."""
    outs = {path: md5 for entry in origin.dvc.lock.values() for path, md5 in entry.outs.items()}
    here = artifact.path.resolve()
    outs |= {path: md5 for path, md5 in _lock(root).items() if (root / path).resolve() == here}
    if not outs:
        yield Check("sin comprobar", "caché de DVC", f"el entrenamiento no vio ningún {LOCK_FILE}")
    cache = cache_folder(root)
    for path, md5 in sorted(outs.items()):
        yield from _cached(path, md5, cache, root)


def _cached(path: str, md5: str, cache: Path, root: Path) -> Iterator[Check | Planned]:
    folder = object_path(cache, md5)
    subject = f"caché de DVC de {path}"
    if not folder.exists():
        # Lo que no se guarda en caché (el veredicto) se compara donde está.
        if (root / path).is_file():
            yield Planned(root / path, "md5", md5, path, "distinto", "es de otra ejecución")
        else:
            yield Check("sin comprobar", subject, f"no está {folder}; tráelo con `make pull`")
        return
    remedy = "la caché está mal: borra ese objeto y recupéralo (make pull) o vuelve a hacerlo"
    yield Planned(folder, "md5", expected_md5(folder), f"{subject} ({folder})", "dañado", remedy)
    try:
        files = listing(cache, md5)
    except EnlaceError as error:
        yield Check("dañado", subject, str(error))
        return
    for name, digest in files.items() if md5.endswith(".dir") else ():
        stored = object_path(cache, digest)
        label = f"caché de DVC de {path}/{name} ({stored})"
        yield Planned(stored, "md5", digest, label, "dañado", remedy)


def _code(artifact: Artifact, origin: Origin, root: Path) -> Iterator[Check | Planned]:
    for name, digest in origin.sources.items():
        yield Planned(root / name, "sha256", digest, name, "distinto", "el código ha cambiado")
    commit = origin.git.commit
    if commit is None:
        yield Check("sin comprobar", "commit", "se entrenó fuera de git")
    elif commit_exists(commit, root):
        yield Check("bien", f"commit {commit}", "")
    else:
        yield Check("sin comprobar", f"commit {commit}", "no está en este repositorio; git fetch")
    before, now = artifact.history.segments[-1].versions, versions()
    for name in sorted(before):
        if before[name] != now.get(name):
            detail = f"se entrenó con {before[name]} y aquí hay {now.get(name)}"
            yield Check("distinto", f"versión de {name}", detail)


def _lock(root: Path) -> dict[str, str]:
    """{salida: MD5} de todas las etapas de `dvc.lock`; vacío si no hay."""
    path = root / LOCK_FILE
    stages = (read_yaml(path).get("stages") or {}) if path.is_file() else {}
    return {
        str(out["path"]): str(out.get("md5", ""))
        for stage in stages.values()
        for out in stage.get("outs", [])
    }
