"""Los objetos que torch crea con cada tensor y cada operación, que en CPU comparten el montón.

Son pequeños, pero deciden la RAM: `posix_memalign` devuelve lo que le sobra al alinear un tensor y
ahí cae el siguiente objeto de ese tamaño. Si vive más que el tensor, su hueco ya no sirve para otro
igual (`heap`). Importa por tanto cuánto vive cada uno, y no es lo mismo:

- el `StorageImpl`, que se pide antes que los datos, y el contador de versiones mueren con ellos;
- el `TensorImpl` muere con su tensor, y una vista es otro tensor con los mismos datos;
- los nodos del grafo no mueren cuando la pasada hacia atrás suelta lo que guardaban: siguen hasta
  que nadie mira el resultado. El paso guarda las sumas de un micro-batch hasta que tiene las del
  siguiente, así que los nodos de uno viven durante toda la pasada hacia delante de otro;
- los nodos de lo que se recalcula hacia atrás (checkpointing) mueren al acabar de recalcularlo.

Los tamaños, con su cabecera, se leyeron apuntando cada `malloc` de un entrenamiento con torch 2.13.
Cuánto vive cada objeto lo dice la traza; solo cuántos trozos lleva cada nodo es una media.
"""

import weakref
from collections import Counter
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from enlace.preflight.estimate.recorder import (
    BACKWARD,
    BUILD,
    FORWARD,
    OBJECT,
    SOMETIMES,
    Event,
    Recorder,
)

STORAGE, VERSION = 112, 32
"""`StorageImpl` y su contador de versiones (`VariableVersion`)."""
TENSOR, VIEW = 192, 320
"""`TensorImpl`, y lo que además lleva una vista (`DifferentiableViewMeta`)."""
NODE, PIECES = 496, (32, 32)
"""Un nodo, y los trozos que suele llevar: sus aristas y la forma de lo que espera."""
SAVED = 48
"""Lo que lleva uno de cada dos nodos: la lista de un segundo operando."""
PYTHON_NODE = (128, 64, 176, 48, 32, 32)
"""Lo que añade un nodo escrito en Python (`torch.autograd.Function`): las listas de `ctx`."""
_WITHOUT_NODE = frozenset(
    (
        torch.ops.aten.detach.default,
        torch.ops.aten.empty.memory_format,
        torch.ops.aten.empty_like.default,
    )
)


class _Witness:
    """Muere con el nodo del grafo en el que se deja."""


class ObjectRecorder(Recorder):
    """Apunta además los objetos y la suma de gradientes como la hace el motor: en el sitio.

    Dos gradientes de lo mismo se suman sobre el primero. Con tensores sin datos torch no se atreve
    (`can_accumulate_inplace` en `input_buffer.cpp`) y pide otro tensor, que aquí no se cuenta.
    """

    def __init__(self, scalar: float) -> None:
        super().__init__(scalar)
        self._seen: WeakIdKeyDictionary = WeakIdKeyDictionary()
        self._shared: Counter[int] = Counter()
        self._objects: dict[int, tuple[int, int]] = {}
        self._graph: list[int] = []
        self._recomputed: list[int] = []
        self._was_recording = self._saves = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Como siempre, con los nodos que la operación añade al grafo."""
        if func not in _WITHOUT_NODE:
            self._see_nodes(args)
        if func is torch.ops.aten.add.Tensor and self._is_engine():
            out = func(*args, **(kwargs or {}))
            self._alias(args[0], out)
            return out
        return super().__torch_dispatch__(func, types, args, kwargs)

    def born(self, tensor: Tensor) -> int:
        """Apunta también el tensor y, si lo es, lo que lleva por ser vista de otro."""
        count = self._count
        name = super().born(tensor)
        if tensor not in self._seen:
            is_view = self._count == count and self.phase != BUILD
            self._seen[tensor] = None
            for size in (TENSOR, VIEW) if is_view else (TENSOR,):
                weakref.finalize(tensor, self._end, [self._object(size)]).atexit = False
        return name

    def watch_graph(self, loss: Tensor) -> None:
        """Los nodos apuntados hasta aquí mueren con el primero que se creó para `loss`."""
        seen, pending = set(), [loss.grad_fn]
        while pending:
            node = pending.pop()
            if node is not None and node not in seen:
                seen.add(node)
                pending += [following for following, _ in node.next_functions]
        # Los de acumular en un parámetro no cuentan: los puede crear antes otra pasada.
        own = [node for node in seen if "AccumulateGrad" not in node.name()]
        oldest = min(own, key=lambda node: node._sequence_nr())
        witness = _Witness()
        oldest.metadata["witness"] = witness  # type: ignore[index]
        weakref.finalize(witness, self._end, self._graph).atexit = False
        self._graph = []

    def _see_nodes(self, args: tuple[Any, ...]) -> None:
        recording = torch.is_grad_enabled()
        if self.phase == BACKWARD and not recording:
            self._end(self._recomputed)
            self._recomputed = []
        if self.phase in (FORWARD, BACKWARD):
            if recording:
                leaves = sum(isinstance(value, torch.nn.Parameter) for value in args)
                self._nodes(1 + leaves)
            elif self._was_recording and self.phase == FORWARD:
                # Por dentro de una función escrita en Python no se apunta nada: es un solo nodo.
                self._nodes(1, PYTHON_NODE)
            self._was_recording = recording

    def _nodes(self, count: int, extra: Iterable[int] = ()) -> None:
        names = self._graph if self.phase == FORWARD else self._recomputed
        for _ in range(count):
            names.append(self._object(NODE))
            self._saves = not self._saves
            pieces = (*PIECES, *extra, *((SAVED,) if self._saves else ()))
            names += [self._object(size, SOMETIMES) for size in pieces]

    def _is_engine(self) -> bool:
        return self.phase == BACKWARD and not (self.from_python or torch.is_grad_enabled())

    def _alias(self, old: Tensor, new: Tensor) -> None:
        """Los datos de `new` son los de `old`: mueren cuando mueran los dos."""
        name = self._names[new.untyped_storage()] = self._names[old.untyped_storage()]
        self._shared[name] += 1
        weakref.finalize(new.untyped_storage(), self._event, name, 0).atexit = False

    def _event(self, name: int, size: int) -> None:
        if size:
            objects = self._object(STORAGE), self._object(VERSION)
            self._objects[name] = objects
            super()._event(name, size)
        elif self._shared[name]:
            self._shared[name] -= 1
        else:
            super()._event(name, 0)
            self._end(self._objects.pop(name, ()))

    def _object(self, size: int, kind: str = OBJECT) -> int:
        self._count += 1
        self.trace.events.append(Event(self.step, self.phase, self._count, size, kind))
        return self._count

    def _end(self, names: Iterable[int]) -> None:
        for name in names:
            self.trace.events.append(Event(self.step, self.phase, name, 0, OBJECT))
