"""Qué es de cada documento limpio: fuera, a entrenar (y cuántas veces) o a validar.

El reparto tiene estas garantías cuando el corpus crece:

- Un documento sin parientes no cambia nunca de parte.
- Un grupo de parientes va entero a la parte de su representante. Solo puede cambiar si llega un
  pariente nuevo que pasa a representarlo (con k miembros, probabilidad 1/(k+1)) y además su parte
  es otra (2·f·(1−f), con f = `data.val_fraction`).
- Al subir `data.val_fraction` ninguno vuelve de validación a entrenamiento.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from enlace.config.schema import DataConfig
from enlace.data.duplicates.resolve import KEPT, Resolution
from enlace.data.duplicates.shingles import Hashes, mix
from enlace.data.identity import validation_limit

_WEIGHT_SALT = np.uint64(0x5745494748540001)


class Fates(NamedTuple):
    """La suerte de cada uno de N documentos.

    `copies` (N,) int64: veces que se escribe, 0 si se queda fuera. `validation` (N,) bool: si va a
    validación. `unweighted` (N,) bool: los que se quedan fuera solo por el peso de su fuente.
    """

    copies: npt.NDArray[np.int64]
    validation: npt.NDArray[np.bool_]
    unweighted: npt.NDArray[np.bool_]


def decide_fates(
    ids: Hashes, ranks: npt.NDArray[np.integer], resolution: Resolution, data: DataConfig
) -> Fates:
    """Reparte los documentos que no se repiten y aplica el peso de su fuente.

    Un peso menor que 1 deja esa parte de los documentos, siempre los mismos y los mismos que
    quedarían con un peso mayor. Uno mayor que 1 repite los de entrenamiento: tantas veces como la
    parte entera, y una más los que elige el id; los de validación no se repiten.
    """
    validation = ids[resolution.deciders, 0] < np.uint64(validation_limit(data.val_fraction))
    weights = np.array([*(source.weight for source in data.sources), 1.0])[ranks]
    whole = np.floor(weights)
    draw = mix(ids[:, 1] ^ _WEIGHT_SALT).astype(np.float64) / 2.0**64
    copies = (whole + (draw < weights - whole)).astype(np.int64)
    copies[validation] = np.minimum(copies[validation], 1)
    kept = resolution.verdicts == KEPT
    unweighted = kept & (copies == 0)
    copies[~kept] = 0
    return Fates(copies, validation, unweighted)
