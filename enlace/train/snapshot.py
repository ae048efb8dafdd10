"""La copia de un instante del entrenamiento en memoria de la CPU, lista para ir al disco.

El bucle solo se detiene mientras se copian los tensores a unos búferes que se reservan una vez y
se reutilizan; después sigue, y los pesos pueden cambiar sin que la copia se entere.
"""

import copy
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from enlace.train.container import plan


class HostBuffer:
    """Memoria reutilizable con los datos de un safetensors, en el orden del fichero.

    Args:
        pinned: memoria no paginable, para que la GPU copie a toda velocidad.
    """

    def __init__(self, pinned: bool) -> None:
        self._pinned = pinned
        self._bytes = self._allocate(0)

    def reserve(self, tensors: Mapping[str, Tensor]) -> int:
        """Reserva sitio para `tensors` (que pueden ser meta) y devuelve los bytes del fichero.

        Escribir en cada página ahora evita que el primer guardado espere a que el sistema las dé.
        """
        layout = plan(tensors)
        if layout.size > len(self._bytes):
            self._bytes = self._allocate(layout.size).fill_(0)
        return len(layout.header) + layout.size

    def fill(self, tensors: Mapping[str, Tensor]) -> tuple[bytes, memoryview]:
        """Copia los tensores y devuelve el fichero en dos partes: la cabecera y los datos.

        En CUDA las copias quedan en marcha: quien llama debe sincronizar antes de leerlas.
        """
        layout = plan(tensors)
        if layout.size > len(self._bytes):
            self._bytes = self._allocate(layout.size)
        for name, (start, end) in layout.spans.items():
            tensor = tensors[name].detach()
            place = self._bytes[start:end].view(tensor.dtype).view(tensor.shape)
            place.copy_(tensor, non_blocking=True)
        return layout.header, self._bytes.numpy().data[: layout.size]

    def _allocate(self, size: int) -> Tensor:
        return torch.empty(size, dtype=torch.uint8, pin_memory=self._pinned)


class Snapshot(NamedTuple):
    """Un instante completo: el estado y las partes de cada fichero de tensores."""

    state: dict[str, Any]
    files: dict[str, tuple[bytes, memoryview]]

    @property
    def nbytes(self) -> int:
        """Lo que ocuparán los ficheros de tensores."""
        return sum(len(part) for parts in self.files.values() for part in parts)


class Camera:
    """Toma instantáneas de un entrenamiento; cada una invalida la anterior.

    Args:
        device: dónde están los tensores.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._buffers: dict[str, HostBuffer] = {}

    def reserve(self, files: Mapping[str, Mapping[str, Tensor]]) -> int:
        """Reserva la memoria de los ficheros que se guardarán y devuelve cuánto ocupan."""
        return sum(self._buffer(name).reserve(tensors) for name, tensors in files.items())

    def take(self, state: Mapping[str, Any], files: Mapping[str, Mapping[str, Tensor]]) -> Snapshot:
        """Copia el estado y los tensores, {fichero: {nombre: tensor}}."""
        parts = {name: self._buffer(name).fill(tensors) for name, tensors in files.items()}
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return Snapshot(copy.deepcopy(dict(state)), parts)

    def _buffer(self, name: str) -> HostBuffer:
        if name not in self._buffers:
            self._buffers[name] = HostBuffer(pinned=self._device.type == "cuda")
        return self._buffers[name]
