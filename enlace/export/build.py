"""Exportar un modelo: escribir la carpeta, comprobarla y solo entonces ponerla en su sitio."""

import shutil
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from enlace.config.schema import ExportConfig
from enlace.errors import CheckpointError
from enlace.export.card import UNKNOWN, Facts, model_card
from enlace.export.gguf_writer import gguf_name, write_gguf
from enlace.export.huggingface import write_huggingface
from enlace.export.modelfile import MODELFILE, modelfile
from enlace.export.proof import TOLERANCE, check_format, check_huggingface, check_llama
from enlace.export.reference import Reference
from enlace.export.report import REPORT_VERSION
from enlace.export.requirements import EXTRA
from enlace.export.source import Source, read_source
from enlace.files import (
    atomic_dir,
    remove_temporaries,
    sha256_file,
    write_json,
    write_text,
)
from enlace.manifest import read_history
from enlace.train.artifact import EXPORT, EXPORT_DIGEST, EXPORT_VERSION, MANIFEST, signature

CARD = "README.md"
_SCRATCH = "f32-de-prueba.gguf"
Say = Callable[[str], None]


def export_model(
    model_folder: Path,
    out: Path,
    settings: ExportConfig,
    *,
    prompts: Sequence[str] = (),
    facts: Facts = UNKNOWN,
    say: Say = lambda line: None,
) -> dict[str, Any]:
    """Exporta un modelo terminado a la carpeta `out` y devuelve el informe de lo comprobado.

    La carpeta aparece entera cuando todo se ha comprobado, o no aparece: si ya había una, sigue la
    anterior.

    Args:
        model_folder: el modelo, como `checkpoints/model`.
        out: la carpeta que se escribe.
        settings: formatos, licencia y muestreo.
        prompts: principios que se continúan al comparar, además de los de la batería.
        facts: lo que la ficha cuenta del corpus y de la evaluación.
        say: recibe una línea por paso.

    Raises:
        CheckpointError: no hay modelo, está dañado o `out` no es una exportación anterior.
        ConfigError: es un modelo de bytes.
        ExportError: lo exportado no es el modelo, o falta una biblioteca.
    """
    check_out(out)
    source = read_source(model_folder)
    remove_temporaries(out.parent, out.name)
    with atomic_dir(out) as folder:
        ggufs = _write_files(source, folder, settings, facts)
        say("ficheros escritos; ahora se comprueba que son el mismo modelo")
        proof = _prove(source, folder, settings, prompts, say)
        files = {file.name: file for file in sorted(folder.iterdir())}
        listed = {name: _entry(file) for name, file in files.items()}
        _write_lineage(source, folder, settings, {n: e["sha256"] for n, e in listed.items()})
    return {
        "version": REPORT_VERSION,
        "run_name": source.name,
        "identity": source.manifest["identity"],
        "step": source.manifest["step"],
        "chats": source.chats,
        "architecture": "Qwen3" if source.shape.qk_norm else "Llama",
        "parameters": source.model.num_parameters(),
        "modelfile": ggufs[0] if ggufs else None,
        "files": listed,
        "tolerance": TOLERANCE,
        **proof,
        "versions": {name: version(name) for name in ("torch", *EXTRA)},
    }


def check_out(out: Path) -> None:
    """Comprueba que `out` no existe, está vacía o es una exportación anterior.

    Raises:
        CheckpointError: hay otra cosa, que se perdería.
    """
    if not out.exists():
        return
    if not out.is_dir() or (any(out.iterdir()) and not (out / EXPORT).is_file()):
        raise CheckpointError(
            f"{out} ya existe y no es una exportación de enlace; elige otra carpeta o quítala"
        )


def _write_files(source: Source, folder: Path, settings: ExportConfig, facts: Facts) -> list[str]:
    """Todo menos el registro; devuelve los nombres de los GGUF."""
    write_huggingface(source, folder, settings)
    formats = list(dict.fromkeys(settings.gguf))
    names = [gguf_name(source.name, dtype) for dtype in formats]
    for dtype, name in zip(formats, names, strict=True):
        write_gguf(source, folder / name, dtype, settings)
    if names:
        write_text(folder / MODELFILE, modelfile(source, names[0], settings))
    history = read_history(source.manifest, source.folder / MANIFEST)
    for patch in {segment.git.patch_name for segment in history.segments} - {None}:
        if (source.folder / str(patch)).is_file():
            shutil.copyfile(source.folder / str(patch), folder / str(patch))
    card = model_card(source, settings, facts, sorted(folder.iterdir()), names)
    write_text(folder / CARD, card)
    return names


def _prove(
    source: Source, folder: Path, settings: ExportConfig, prompts: Sequence[str], say: Say
) -> dict[str, Any]:
    reference = Reference(source, prompts)
    equality = {"transformers": check_huggingface(reference, folder)}
    say("transformers: los mismos ids, logits y texto")
    exact = folder / _SCRATCH
    write_gguf(source, exact, "f32", settings)
    equality["llama.cpp"] = check_llama(reference, exact)
    exact.unlink()
    say("llama.cpp: los mismos ids, logits y texto")
    formats = {}
    for dtype in dict.fromkeys(settings.gguf):
        file = folder / gguf_name(source.name, dtype)
        formats[file.name] = check_format(reference, file, dtype)._asdict()
        say(f"{file.name}: los pesos del modelo, y llama.cpp lo abre")
    return {
        "equality": {name: found._asdict() for name, found in equality.items()},
        "formats": formats,
    }


def _write_lineage(
    source: Source, folder: Path, settings: ExportConfig, files: dict[str, str]
) -> None:
    """El manifiesto del modelo, con los ficheros de aquí y los de allí, y su resumen al lado."""
    manifest = source.manifest
    origin = {"manifest": sha256_file(source.folder / MANIFEST), "files": manifest["files"]}
    record = manifest | {
        "version": EXPORT_VERSION,
        "files": files,
        "model": origin,
        "config": source.config.training_values(),
        "export": settings.model_dump(mode="json"),
    }
    write_json(folder / EXPORT, record)
    write_text(folder / EXPORT_DIGEST, signature(sha256_file(folder / EXPORT), EXPORT))


def _entry(file: Path) -> dict[str, Any]:
    return {"bytes": file.stat().st_size, "sha256": sha256_file(file)}
