"""Qué hace `malloc` con la memoria de la CPU que un entrenamiento suelta."""

import ctypes

from enlace.errors import HardwareError

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
"""`M_TRIM_THRESHOLD` y `M_MMAP_MAX` de `malloc.h`."""
_NEVER, _NONE = -1, 0


def keep_freed_memory() -> None:
    """Hace que el proceso guarde lo que suelta en vez de devolverlo al sistema; no se deshace.

    De serie, glibc pide al sistema los tensores mayores de 32 MiB uno a uno y los devuelve al
    soltarlos, así que en cada paso el núcleo vuelve a dar, página a página y puestas a cero, las
    mismas. Con esto todo sale del montón, que no mengua (`mallopt(3)`).

    Raises:
        HardwareError: la biblioteca de C no es glibc o no lo admite.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None or not (mallopt(_MMAP_MAX, _NONE) and mallopt(_TRIM_THRESHOLD, _NEVER)):
        raise HardwareError(
            "hardware.host_allocator = keep necesita glibc, y la biblioteca de C de esta máquina "
            "no lo admite; pon hardware.host_allocator: system"
        )
