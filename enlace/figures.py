"""Cifras como las lee una persona que habla español: coma decimal y espacio fino entre millares.

La regla es de todo texto para personas (terminal, informes, mensajes). Lo que lee una máquina
(JSON, TSV, YAML) y los valores que se copian en la configuración («train.lr=0.0003») llevan punto.

Una magnitud que no se ha medido es `None` y se escribe «no medido»: nunca un cero.
"""

import math
from datetime import datetime

NOT_MEASURED = "no medido"
_NARROW_SPACE = "\u202f"
_CLOCK = ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s"))
WHEN = "%Y-%m-%d %H:%M"
"""Cómo se escriben el día y la hora."""
_GROUPED_FROM = 10_000
"""La ortografía española agrupa de tres en tres solo a partir de cinco cifras."""


def number(value: float | None, decimals: int = 2) -> str:
    """`1234567.891` → «1 234 567,89» (coma decimal, espacio fino entre millares)."""
    if value is None:
        return NOT_MEASURED
    if not math.isfinite(value):
        return "no finito"
    text = f"{value:,.{decimals}f}"
    separator = _NARROW_SPACE if abs(round(value, decimals)) >= _GROUPED_FROM else ""
    return text.replace(",", separator).replace(".", ",")


def short(value: float) -> str:
    """`0.0001` → «0,0001»: las cifras justas, sin ceros de más, con coma decimal."""
    return f"{value:g}".replace(".", ",")


def integer(value: int | None) -> str:
    """`50608128` → «50 608 128»."""
    return number(value, 0)


def plural(count: int, one: str, many: str) -> str:
    """La palabra que corresponde a `count` cosas."""
    return one if count == 1 else many


def counted(count: int, one: str) -> str:
    """`1, "fichero"` → «1 fichero»; `2` → «2 ficheros» (plurales en -s)."""
    return f"{integer(count)} {plural(count, one, one + 's')}"


def percent(fraction: float | None, decimals: int = 1) -> str:
    """`0.034` → «3,4 %»."""
    if fraction is None:
        return NOT_MEASURED
    return f"{number(100 * fraction, decimals)}\u00a0%"


def size(n_bytes: int | None) -> str:
    """Bytes en la unidad binaria que se lee mejor: «607,1 MiB», «5,25 GiB»."""
    if n_bytes is None:
        return NOT_MEASURED
    for unit, power, decimals in (("TiB", 40, 2), ("GiB", 30, 2), ("MiB", 20, 1), ("KiB", 10, 1)):
        if abs(n_bytes) >= 1 << power:
            return f"{number(n_bytes / (1 << power), decimals)}\u00a0{unit}"
    return f"{integer(n_bytes)}\u00a0bytes"


def magnitude(value: float, unit: str = "", decimals: int = 1) -> str:
    """Con el prefijo decimal que se lee mejor: `379.1e6` → «379,1 M»; «43,3 GFLOP/s»."""
    for prefix, power in (("T", 12), ("G", 9), ("M", 6), ("k", 3)):
        if abs(value) >= 10**power:
            return f"{number(value / 10**power, decimals)}\u00a0{prefix}{unit}"
    return f"{number(value, 0)}\u00a0{unit}".strip()


def at_least(value: float, decimals: int) -> str:
    """Como `number`, pero lo que redondearía a cero sin serlo es «menos de 0,01»."""
    least = 10.0**-decimals
    if 0 < value < least / 2:
        return f"menos de {number(least, decimals)}"
    return number(value, decimals)


def energy(kwh: float) -> str:
    """Energía en la unidad que se lee mejor: «3,09 kWh», «12,5 Wh»."""
    if kwh < 0.1:
        return f"{at_least(1000 * kwh, 1)}\u00a0Wh"
    return f"{number(kwh, 2)}\u00a0kWh"


def duration(seconds: float | None) -> str:
    """Segundos como «850 ms», «12,3 s», «4 min 5 s», «20 h 36 min» o «2 d 3 h»."""
    if seconds is None:
        return NOT_MEASURED
    if not math.isfinite(seconds):
        return "no finito"
    if seconds < 1:
        return f"{number(1000 * seconds, 0 if seconds >= 0.01 else 2)}\u00a0ms"
    for large, large_name, small, small_name in _CLOCK:
        parts = round(seconds / small)
        if parts * small >= large:
            whole, rest = divmod(parts, large // small)
            tail = f" {rest}\u00a0{small_name}" if rest else ""
            return f"{whole}\u00a0{large_name}{tail}"
    return f"{number(seconds, 1)}\u00a0s"


def rough_duration(seconds: float) -> str:
    """Lo que queda, sin fingir precisión: «45 s», «12 min», «3 h 05 min», «2 d 4 h»."""
    minutes, hours = round(seconds / 60), round(seconds / 3600)
    if round(seconds) < 60:
        return f"{round(seconds)} s"
    if minutes < 60:
        return f"{minutes} min"
    if hours < 48:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    return f"{hours // 24} d {hours % 24} h"


def moment(written: str) -> str:
    """La hora ISO que apuntó una máquina, en la de esta y hasta el minuto: «2026-12-01 07:05».

    Lo que no se entiende se deja como está.
    """
    try:
        return datetime.fromisoformat(written).astimezone().strftime(WHEN)
    except ValueError:
        return written


def scientific(value: float, decimals: int = 2) -> str:
    """`0.0003` → «3,00e-04»."""
    return f"{value:.{decimals}e}".replace(".", ",")
