"""Quién mira un paso trazado: qué memoria nace y muere y qué trabajo se hace, fase a fase."""

import weakref
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from enlace.preflight.estimate.costs import Cost, operation_cost

BUILD, FORWARD, BACKWARD, OPTIMIZER, EVALUATION = (
    "build",
    "forward",
    "backward",
    "optimizer",
    "evaluation",
)

DATA, OBJECT, SOMETIMES = "data", "object", "sometimes"


class Event(NamedTuple):
    """Nace (`size` > 0) o muere (`size` = 0) `name`, en una fase de un paso.

    `kind` dice qué es: los datos de un tensor o, solo en CPU, un trozo de los que torch pide para
    sus objetos, que existe siempre o la mitad de las veces.
    """

    step: int
    phase: str
    name: int
    size: int
    kind: str = DATA


@dataclass
class Trace:
    """Lo que se vio: nacimientos y muertes en orden, y el trabajo de cada fase.

    Attributes:
        events: todos, empezando por los parámetros, que son del paso −1.
        work: cuántas operaciones de cada coste hubo en cada (paso, fase).
        state: (nombre, bytes) del estado del optimizador, que una reanudación carga al empezar.
    """

    events: list[Event] = field(default_factory=list)
    work: dict[tuple[int, str], Counter[Cost]] = field(default_factory=dict)
    state: list[tuple[int, int]] = field(default_factory=list)


class Recorder(TorchDispatchMode):
    """Apunta en una `Trace` lo que hacen las operaciones; responde por los datos que no hay.

    Un valor que el código lea (`.item()`) es siempre el mismo: `scalar` si es real y 1 si es
    entero; y 0 el que dice si un gradiente desbordó. Con eso el paso es finito y sigue el camino
    normal.

    Attributes:
        step, phase: dónde está el paso.
        from_python: si la operación la pide el código, y no la pasada hacia atrás por su cuenta.
    """

    def __init__(self, scalar: float) -> None:
        super().__init__()
        self.trace = Trace()
        self.step = -1
        self.phase = BUILD
        self.from_python = False
        self._scalar = scalar
        self._names: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._count = 0
        self._overflows: weakref.WeakSet[Any] = weakref.WeakSet()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Ejecuta la operación con formas y apunta sus salidas y su coste."""
        if func is torch.ops.prim.device.default:
            return args[0].fake_device
        if func is torch.ops.aten._amp_foreach_non_finite_check_and_unscale_.default:
            self._overflows.add(args[1].untyped_storage())
        if func is torch.ops.aten._local_scalar_dense.default:
            if args[0].untyped_storage() in self._overflows:
                return 0.0
            return self._scalar if args[0].is_floating_point() else 1
        if func is torch.ops.aten.index.Tensor and _is_masked(args[1]):
            # Solo se filtran así los objetivos imposibles, y no hay ninguno.
            return args[0].new_empty((0,))
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        outputs = _tensors(out)
        self.work(operation_cost(func, args, kwargs, outputs))
        for tensor in outputs:
            self.born(tensor)
        return out

    def work(self, cost: Cost | None) -> None:
        """Suma una operación a la fase de ahora; None no es trabajo."""
        if cost is not None:
            self.trace.work.setdefault((self.step, self.phase), Counter())[cost] += 1

    def transient(self, size: int) -> None:
        """Memoria que una operación pide y suelta por dentro."""
        self._count += 1
        name = self._count
        self._event(name, size)
        self._event(name, 0)

    def born(self, tensor: Tensor) -> int:
        """Apunta el storage de `tensor`, si es nuevo, y devuelve su nombre."""
        storage = tensor.untyped_storage()
        name = self._names.get(storage)
        if name is None:
            self._count += 1
            name = self._names[storage] = self._count
            self._event(name, storage.nbytes())
            weakref.finalize(storage, self._event, name, 0).atexit = False
        return name

    def watch_graph(self, loss: Tensor) -> None:
        """Va a empezar la pasada hacia atrás de `loss`; aquí no cambia nada."""

    def ignore(self, tensor: Tensor) -> None:
        """No cuenta `tensor`: no vive en la memoria del dispositivo."""
        self._names[tensor.untyped_storage()] = 0

    def _event(self, name: int, size: int) -> None:
        self.trace.events.append(Event(self.step, self.phase, name, size))


def _is_masked(indices: Any) -> bool:
    return any(index is not None and index.dtype == torch.bool for index in indices)


def _tensors(out: Any) -> list[Tensor]:
    if isinstance(out, Tensor):
        return [out]
    if isinstance(out, list | tuple):
        return [tensor for tensor in out if isinstance(tensor, Tensor)]
    return []
