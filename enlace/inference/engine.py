"""Un modelo abierto para generar: da el texto según sale y dice por qué acabó."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import torch

from enlace.backends import Backend, open_device
from enlace.config.documents import kernel_for_mask
from enlace.config.schema import Config, HardwareConfig
from enlace.data.chat import converses, end_ids
from enlace.data.tokenizer import TextTokenizer, Tokenizer, load_tokenizer
from enlace.errors import CheckpointError, HardwareError
from enlace.inference.text_stream import TextStream
from enlace.model.decoder import Decoder
from enlace.model.generation import stream_ids
from enlace.model.hf_names import hf_name
from enlace.model.sampling import Sampling
from enlace.model.transformer import Transformer
from enlace.train.artifact import MODEL, TOKENIZER, Artifact, open_artifact
from enlace.train.container import read_tensors
from enlace.train.tensors import load_model_tensors

Ending = Literal["end", "stop", "limit", "context", "cut"]
"""Por qué acabó: el modelo, una frase de parada, el máximo pedido, el contexto o quien mira."""


@dataclass(frozen=True)
class Request:
    """Qué se pide además del texto.

    Attributes:
        max_new_tokens: tokens nuevos como máximo.
        sampling: los filtros del muestreo.
        stops: textos que terminan la respuesta y no salen en ella.
    """

    max_new_tokens: int
    sampling: Sampling
    stops: tuple[str, ...] = ()


@dataclass
class Outcome:
    """Lo que ha pasado al generar; se completa mientras se lee el texto."""

    ids: list[int] = field(default_factory=list)
    """Los ids nuevos, sin el que termina."""
    text: str = ""
    """El texto que se ha cedido: sin la frase de parada ni un carácter a medias."""
    ending: Ending = "cut"


class Engine:
    """Un modelo listo para generar, de uno en uno, que recuerda lo que ya ha leído."""

    def __init__(
        self, model: Transformer, config: Config, tokenizer: Tokenizer, backend: Backend
    ) -> None:
        """Copia los pesos de `model`, que después se puede soltar."""
        self.config = config
        self.tokenizer = tokenizer
        self.chats = converses(config.data)
        self.seq_len = config.model.seq_len
        self._backend = backend
        self._decoder = Decoder(model, backend.dtype)
        self._cache = self._decoder.new_cache(1, self.seq_len)
        self._cached: list[int] = []

    def generator(self, seed: int) -> torch.Generator:
        """Una fuente de azar en el dispositivo del modelo."""
        return torch.Generator(device=self._backend.device).manual_seed(seed)

    def stream(
        self, ids: Sequence[int], request: Request, generator: torch.Generator, outcome: Outcome
    ) -> Iterator[str]:
        """Cede el texto que sigue a `ids` según sale; `outcome` acaba diciendo qué pasó.

        Regla del contexto: se genera hasta donde cabe en `seq_len`, y se dice.

        Raises:
            ValueError: `ids` está vacío o no deja sitio a ningún token nuevo.
        """
        room = self.seq_len - len(ids)
        ending: Ending = "limit" if request.max_new_tokens <= room else "context"
        stops = set(end_ids(self.tokenizer, self.chats))
        text = TextStream(self.tokenizer, request.stops)
        known = self._known(ids)
        self._cache.rewind(known)
        new = stream_ids(
            self._decoder,
            torch.tensor([list(ids)], dtype=torch.int64, device=self._backend.device),
            min(request.max_new_tokens, room),
            request.sampling,
            generator=generator,
            cache=self._cache,
        )
        self._cached = [*ids[:known]]
        while True:
            # El contexto del núcleo de atención es global: no puede seguir abierto al ceder.
            with self._backend.sdpa():
                identifier = next(new, None)
            if identifier is None:
                break
            self._cached = [*ids, *outcome.ids]
            if int(identifier) in stops:
                ending = "end"
                break
            outcome.ids.append(int(identifier))
            if shown := text.push(int(identifier)):
                outcome.text += shown
                yield shown
            if text.stopped:
                ending = "stop"
                break
        if shown := text.close():
            outcome.text += shown
            yield shown
        outcome.ending = ending

    def _known(self, ids: Sequence[int]) -> int:
        """Cuántos tokens del principio están ya en la caché; el último se lee siempre."""
        if self._backend.device.type != "cpu":
            # Seguir una caché con varios tokens pide máscara, que no todo núcleo de GPU admite.
            return 0
        known = 0
        for mine, theirs in zip(self._cached, ids[:-1], strict=False):
            if mine != theirs:
                break
            known += 1
        return known


def open_engine(folder: Path, tokenizer_folder: Path) -> Engine:
    """Abre un modelo terminado, su exportación, un checkpoint o la carpeta de un run.

    Usa el dispositivo con el que se entrenó o, si esta máquina no lo tiene, la CPU en fp32.

    Args:
        folder: la carpeta.
        tokenizer_folder: dónde está el tokenizador de un checkpoint, que no lo lleva dentro.

    Raises:
        CheckpointError: no hay modelo, está dañado o no es el de su tokenizador.
        DataError: el tokenizador falta o no es de los nuestros.
    """
    artifact = open_artifact(folder)
    artifact.verify()
    tokenizer = _tokenizer(artifact, tokenizer_folder)
    backend = open_backend(artifact.config)
    model = Transformer(
        artifact.config.model,
        backend.sdpa_backend,
        document_mask=artifact.config.data.document_mask,
    )
    tensors = read_tensors(artifact.path / MODEL)
    if artifact.kind == "export":
        names = {hf_name(name): name for name in model.state_dict()}
        tensors = {names.get(name, name): tensor for name, tensor in tensors.items()}
    load_model_tensors(model, tensors, artifact.path / MODEL)
    return Engine(model.to(backend.device).eval(), artifact.config, tokenizer, backend)


def open_backend(config: Config) -> Backend:
    """El dispositivo de la configuración o, si falta o no admite el modelo, la CPU en fp32."""
    hardware = config.hardware
    try:
        backend = open_device(hardware)
    except HardwareError:
        return _open_cpu(hardware)
    kernel = kernel_for_mask(backend.device.type, backend.sdpa_backend)
    if config.data.document_mask != "none" and kernel is not None:
        return _open_cpu(hardware)
    return backend


def _open_cpu(hardware: HardwareConfig) -> Backend:
    cpu = {"device": "cpu", "dtype": "fp32", "sdpa_backend": "flash", "compile": False}
    return open_device(hardware.model_copy(update=cpu))


def _tokenizer(artifact: Artifact, tokenizer_folder: Path) -> Tokenizer:
    inside = (artifact.path / TOKENIZER).is_file()
    tokenizer = load_tokenizer(artifact.path if inside else tokenizer_folder)
    expected = artifact.history.origin.tokenizer
    # El que va dentro ya lo han comprobado los resúmenes de la carpeta.
    if not inside and tokenizer.fingerprint != expected:
        raise CheckpointError(
            f"{tokenizer_folder} no es el tokenizador con el que se entrenó {artifact.path}; da "
            "una carpeta que traiga el suyo, como checkpoints/model"
        )
    kind = artifact.config.data.tokenizer.kind
    if isinstance(tokenizer, TextTokenizer) != (kind == "bpe"):
        raise CheckpointError(f"{artifact.path} se entrenó con un tokenizador de clase {kind}")
    return tokenizer
