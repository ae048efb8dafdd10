"""Lo que se exporta: un modelo terminado, ya comprobado, y lo que de él se deduce."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from enlace.config.schema import Config, ModelConfig
from enlace.data.chat import converses, end_ids
from enlace.data.tokenizer import TextTokenizer, load_tokenizer
from enlace.errors import CheckpointError, ConfigError
from enlace.model.transformer import Transformer
from enlace.train.artifact import CONFIG
from enlace.train.export import load_model, read_manifest

_REFERENCE_ATTENTION = "math"


@dataclass(frozen=True)
class Source:
    """Un modelo de ENLACE en CPU y en fp32, con su tokenizador y su manifiesto.

    Attributes:
        folder: la carpeta de donde se leyó.
        model: el modelo, en modo eval: la referencia de todas las comparaciones.
        config: la configuración con la que se entrenó.
        tokenizer: su BPE.
        manifest: el contenido, ya comprobado, de su `manifest.json`.
    """

    folder: Path
    model: Transformer
    config: Config
    tokenizer: TextTokenizer
    manifest: dict[str, Any]

    @property
    def name(self) -> str:
        """El nombre de los ficheros: el del run."""
        return self.config.run_name

    @property
    def shape(self) -> ModelConfig:
        """La arquitectura."""
        return self.config.model

    @property
    def chats(self) -> bool:
        """Si aprendió de conversaciones; si no, solo continúa textos."""
        return converses(self.config.data)

    @property
    def weights(self) -> dict[str, Tensor]:
        """Los pesos con sus nombres de ENLACE; los compartidos, una vez."""
        return self.model.state_dict()

    @property
    def end_ids(self) -> list[int]:
        """Los ids que terminan una respuesta, el principal primero."""
        return end_ids(self.tokenizer, self.chats)


def read_source(folder: Path) -> Source:
    """Abre un modelo terminado (`checkpoints/model` u otra carpeta igual).

    Raises:
        CheckpointError: no hay modelo, o está dañado.
        ConfigError: es un modelo de bytes, que ningún otro programa sabría leer.
        DataError: su tokenizador no es de los nuestros.
    """
    if not (folder / CONFIG).is_file():
        raise CheckpointError(
            f"{folder} {'no tiene ningún modelo que exportar' if folder.is_dir() else 'no existe'}"
            "; el modelo terminado de este proyecto está en checkpoints/model, y si falta, "
            "entrénalo con `make train` o trae el compartido con `make pull`"
        )
    manifest = read_manifest(folder)
    model, config = load_model(folder, _REFERENCE_ATTENTION, "cpu")
    tokenizer = load_tokenizer(folder)
    if not isinstance(tokenizer, TextTokenizer):
        raise ConfigError(
            f"{folder} es un modelo de bytes (data.tokenizer.kind = byte) y ni transformers ni "
            "llama.cpp tienen un tokenizador para él; entrena un run con data.tokenizer.kind: bpe, "
            "como `make train RUN=small`"
        )
    return Source(folder, model, config, tokenizer, manifest)
