"""Lo que se sirve: una carpeta exportada, ya comprobada, y uno de sus GGUF."""

import shlex
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from enlace.config.export import ExportConfig
from enlace.data.chat import converses
from enlace.data.tokenizer import TextTokenizer, load_tokenizer
from enlace.errors import CheckpointError, ServeError
from enlace.train.artifact import EXPORT, MANIFEST, TOKENIZER, open_artifact
from enlace.train.untrusted import check_digests

_PREFERRED = ("Q8_0", "F16", "BF16", "F32", "Q5_1", "Q5_0", "Q4_1", "Q4_0")
"""De mejor a peor en una CPU: generar es leer los pesos, y Q8_0 son la mitad de bytes que F16 sin
que apenas cambie lo que dice. Con cinco bits o menos un modelo pequeño pierde demasiado."""


@dataclass(frozen=True)
class Served:
    """Un modelo exportado, listo para servirse.

    Attributes:
        name: su nombre en la API.
        gguf: el fichero que abre llama.cpp.
        chats: si aprendió de conversaciones; si no, completa texto.
        context: tokens que lee como mucho, contando los que escribe.
        tokenizer: el suyo.
        sampling: el muestreo con el que se exportó.
        new_tokens: tokens de una respuesta si nadie dice otra cosa.
    """

    name: str
    gguf: Path
    chats: bool
    context: int
    tokenizer: TextTokenizer
    sampling: ExportConfig
    new_tokens: int

    @property
    def format(self) -> str:
        """El formato del GGUF, como lo dice su nombre."""
        return _format(self.gguf.name)


def open_served(folder: Path, gguf: str = "") -> Served:
    """Abre una carpeta exportada y comprueba, byte a byte, lo que de ella se usa.

    Args:
        folder: lo que deja `make export`.
        gguf: el nombre del GGUF; vacío, el mejor para una CPU.

    Raises:
        ServeError: no hay exportación, o no tiene ese GGUF.
        CheckpointError: algo está dañado; dice qué.
    """
    if folder.exists() and not folder.is_dir():
        raise ServeError(f"{folder} no es una carpeta; da la que dejó `make export`")
    if (folder / MANIFEST).is_file():
        raise ServeError(
            f"{folder} es un modelo sin exportar; expórtalo: `make export` si es el de este "
            f"proyecto, y si no, enlace export {shlex.quote(str(folder))}"
        )
    if not (folder / EXPORT).is_file():
        raise ServeError(
            f"{folder} no {'tiene ningún modelo exportado' if folder.is_dir() else 'existe'}; "
            "exporta el tuyo con `make export` o da la carpeta de otro: enlace serve CARPETA"
        )
    artifact = open_artifact(folder)
    name = _choose(folder, list(artifact.files), gguf)
    used = {file: artifact.files.get(file, "") for file in (name, TOKENIZER)}
    check_digests(folder, used, (name, TOKENIZER))
    tokenizer = load_tokenizer(folder)
    if not isinstance(tokenizer, TextTokenizer):
        raise ServeError(f"{folder} tiene un tokenizador de bytes, que no se puede servir")
    try:
        sampling = ExportConfig.model_validate(artifact.record.get("export"))
    except ValidationError as error:
        raise CheckpointError(
            f"{folder / EXPORT} no dice bien con qué muestreo se exportó; vuelve a exportarlo con "
            "`make export`"
        ) from error
    config = artifact.config
    return Served(
        config.run_name,
        folder / name,
        converses(config.data),
        config.model.seq_len,
        tokenizer,
        sampling,
        min(config.data.evaluation.max_new_tokens, config.model.seq_len - 1),
    )


def _choose(folder: Path, files: list[str], wanted: str) -> str:
    found = sorted((name for name in files if name.endswith(".gguf")), key=_rank)
    if not found:
        raise ServeError(
            f"{folder} no tiene ningún GGUF; añade alguno y vuelve a exportar: make params RUN=… "
            'SET="export.gguf=[q8_0]" y make export'
        )
    if wanted and wanted not in found:
        raise ServeError(f"{folder} no tiene el GGUF {wanted}; tiene {', '.join(found)}")
    return wanted or found[0]


def _rank(name: str) -> tuple[int, str]:
    known = _format(name)
    return (_PREFERRED.index(known) if known in _PREFERRED else len(_PREFERRED), name)


def _format(name: str) -> str:
    return name.removesuffix(".gguf").rpartition("-")[2]
