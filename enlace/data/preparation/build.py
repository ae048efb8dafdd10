"""La etapa del corpus: de una carpeta de texto a documentos limpios, sin repetir y repartidos.

Dos pasadas. En la primera, los procesos leen, limpian y firman por lotes, y el resultado queda en
disco en el orden de las rutas. Con las firmas se decide quién se repite y quién no se separa. La
segunda copia los que se quedan a `train` y `val`. Los bytes no dependen del número de procesos, del
orden en que el disco da los ficheros ni de la carpeta; la memoria no crece con el corpus salvo unas
decenas de bytes por documento.
"""

import shutil
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from enlace.config.schema import DataConfig
from enlace.data.corpus import SPLITS, CorpusWriter, corpus_file
from enlace.data.documents import Rejection
from enlace.data.duplicates.resolve import resolve
from enlace.data.preparation.batches import (
    Batch,
    Found,
    Settings,
    batches_of_records,
    payload_size,
    preparer,
)
from enlace.data.preparation.evaluation_texts import EvaluationTexts, index_evaluation
from enlace.data.preparation.fates import Fates, check_splits, decide_fates
from enlace.data.preparation.pool import ordered_map, worker_count
from enlace.data.preparation.position import Position, expanded_size
from enlace.data.preparation.report import Outcome, corpus_report
from enlace.data.preparation.staging import Staging
from enlace.data.preparation.tallies import Tallies
from enlace.data.readers import RawRecord, iterate_records
from enlace.data.readers.iterate import training_files
from enlace.data.readers.whole import check_whole
from enlace.data.throughput import Throughput
from enlace.errors import DataError
from enlace.figures import size
from enlace.files import atomic_dir, remove_temporaries, write_json

# Arrancar un proceso cuesta lo que limpiar un par de megabytes.
_BYTES_PER_WORKER = 2 << 20
_MOST_FOUND = 10_000
_DISK_SHARE = 1.0
"""Bytes en disco por byte de texto: dos copias comprimidas, firmas y claves, con margen."""
_WORK = "work"


class _Read(NamedTuple):
    tallies: Tallies
    found: list[Found]


def build_corpus(
    source_dir: Path,
    out_dir: Path,
    data: DataConfig,
    console: Console | None = None,
    bytes_per_worker: int = _BYTES_PER_WORKER,
) -> dict[str, Any]:
    """Prepara el corpus de `source_dir` en `out_dir` y devuelve el informe, que también queda ahí.

    Args:
        source_dir: la carpeta de origen.
        out_dir: donde quedan `{train,val}.jsonl.zst` y `report.json`, enteros o nada.
        data: la sección `data` (o la vista de una etapa).
        console: dónde se cuenta el avance; None, en la salida corriente.
        bytes_per_worker: con menos texto por proceso se usan menos procesos.

    Raises:
        DataError: nada que leer, un fichero dañado, falta sitio en el disco, no queda ningún
            documento o una de las dos partes queda vacía.
    """
    remove_temporaries(out_dir.parent, out_dir.name)
    files = {name: source_dir / name for name in training_files(source_dir, data).files}
    check_whole(files)
    sizes = {name: path.stat().st_size for name, path in files.items()}
    _check_room(out_dir, expanded_size(sizes))
    with atomic_dir(out_dir) as folder:
        work = folder / _WORK
        work.mkdir()
        evaluation = _index(source_dir, data, work)
        settings = Settings(data, work if evaluation is not None else None)
        workers = worker_count(data.workers, expanded_size(sizes), bytes_per_worker)
        staging = Staging(work, data.dedup)
        with staging, Throughput("limpieza", expanded_size(sizes), console) as meter:
            records = _watched(iterate_records(source_dir, data), Position(sizes), meter)
            batches = batches_of_records(records)
            with closing(ordered_map(preparer, settings, batches, workers, "limpieza")) as results:
                read = _stage(results, staging)
        _check_something(read.tallies, source_dir)
        fingerprints = staging.fingerprints()
        resolution = resolve(fingerprints, data.dedup)
        fates = decide_fates(fingerprints.ids, fingerprints.ranks, resolution, data)
        check_splits(fates, resolution, fingerprints.ids, data)
        outcome = Outcome(data, read.tallies, read.found, evaluation, staging, resolution, fates)
        report = corpus_report(outcome, _write(folder, staging, fates, outcome.examples))
        write_json(folder / "report.json", report)
        shutil.rmtree(work)
    return report


def _index(source_dir: Path, data: DataConfig, work: Path) -> EvaluationTexts | None:
    if data.contamination.action == "off":
        return None
    return index_evaluation(source_dir, data, work)


def _watched(
    items: Iterable[RawRecord | Rejection], position: Position, meter: Throughput
) -> Iterator[RawRecord | Rejection]:
    """Los mismos registros, contando por dónde va la lectura."""
    for item in items:
        if isinstance(item, RawRecord):
            meter.expect(position.share(item.source, item.offset))
            meter.advance(payload_size(item.payload))
        yield item


def _stage(results: Iterable[Batch], staging: Staging) -> _Read:
    tallies, found = Tallies(), list[Found]()
    for batch in results:
        staging.append(batch)
        tallies.merge(batch.tallies)
        found += batch.found[: max(0, _MOST_FOUND - len(found))]
    return _Read(tallies, found)


def _write(
    folder: Path, staging: Staging, fates: Fates, wanted: frozenset[int]
) -> dict[int, bytes]:
    """Escribe los documentos que se quedan y devuelve las líneas de los que el informe cita."""
    cited = {}
    with ExitStack() as stack:
        train, val = (
            stack.enter_context(CorpusWriter(corpus_file(folder, split))) for split in SPLITS
        )
        rows = zip(fates.copies, fates.validation, strict=True)
        for number, (line, (copies, validation)) in enumerate(
            zip(staging.lines(), rows, strict=True)
        ):
            if number in wanted:
                cited[number] = line
            if copies:
                (val if validation else train).write(line, int(copies))
    return cited


def _check_room(out_dir: Path, text_bytes: int) -> None:
    folder = next(parent for parent in out_dir.absolute().parents if parent.is_dir())
    free, needed = shutil.disk_usage(folder).free, int(text_bytes * _DISK_SHARE)
    if free < needed:
        raise DataError(
            f"para preparar el corpus hacen falta unos {size(needed)} en {folder} y hay "
            f"{size(free)} libres; libera espacio o usa menos texto (data.include)"
        )


def _check_something(tallies: Tallies, source_dir: Path) -> None:
    read = sum(flow.documents for flow in tallies.origins.values())
    dropped = tallies.dropped()
    if read > sum(sum(flow.dropped.values()) for flow in tallies.origins.values()):
        return
    reasons = ", ".join(f"{rule} {count}" for rule, count in sorted(dropped.items()))
    most = max(dropped, key=lambda rule: dropped[rule], default="")
    remedies = {
        "language": "sobre todo, texto en lenguas que no son las de data.rules.language.keep",
        "length": "sobre todo, texto demasiado corto o demasiado largo para data.rules.length",
        "personal_data": "sobre todo, texto con datos personales, y data.rules.personal_data.action es drop",
        "contamination": "sobre todo, textos de evaluación (data.contamination)",
        "bad_bytes": "sobre todo, lo que no se puede leer como texto; conviértelo a UTF-8",
        "unknown_format": "sobre todo, ficheros de un formato que no se lee",
        "empty": "sobre todo, ficheros sin texto",
    }
    remedy = remedies.get(most, "revisa data.include y data.rules")
    raise DataError(
        f"no queda ningún documento de {source_dir} tras la limpieza "
        f"({reasons or 'no había ninguno'}): {remedy}"
    )
