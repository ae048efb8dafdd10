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
from enlace.errors import DataError
from enlace.figures import plural, short

# Valores redondos de `data.val_fraction`, que llega a un medio sin tocarlo.
_ROUND_FRACTIONS = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.49)
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


def check_splits(fates: Fates, resolution: Resolution, ids: Hashes, data: DataConfig) -> None:
    """Comprueba que hay documentos en las dos partes.

    El lugar de cada documento lo decide su contenido, así que se sabe con qué fracción quedarían
    repartidos los que hay: el error lleva la orden que la pone, si alguna vale.

    Args:
        fates: la suerte de los N documentos.
        resolution: sus parientes.
        ids: (N, 2) uint64, los ids.
        data: la sección `data`.

    Raises:
        DataError: una parte queda vacía.
    """
    chosen = fates.copies > 0
    kept = int(chosen.sum())
    in_val = int((chosen & fates.validation).sum())
    empty = next((name for name, n in (("train", kept - in_val), ("val", in_val)) if not n), None)
    if empty is None:
        return
    repeated = int((fates.copies == 0).sum() - fates.unweighted.sum())
    detail = f" ({repeated} eran repetidos)" if repeated else ""
    deciders = np.unique(resolution.deciders[chosen])
    fraction = _working_fraction(ids[deciders, 0], empty)
    if len(deciders) < kept:
        families = f"{len(deciders)} {plural(len(deciders), 'familia', 'familias')}"
        raise DataError(
            f"la parte {empty} queda vacía: los {kept} documentos que quedan{detail} forman "
            f"{families} de textos parecidos, que van enteras a una parte para que validación mida "
            f"algo nuevo; {_remedy(fraction)}añade textos distintos (si son plantillas, varíalas) "
            f"o sube data.dedup.split_threshold ({short(data.dedup.split_threshold)})"
        )
    raise DataError(
        f"la parte {empty} queda vacía: {kept} {plural(kept, 'documento', 'documentos')}{detail} "
        f"con data.val_fraction={data.val_fraction}; {_remedy(fraction)}añade documentos o parte "
        "los largos en varios ficheros"
    )


def _working_fraction(places: npt.NDArray[np.uint64], empty: str) -> float | None:
    """La fracción redonda más cercana a la pedida que reparte esas familias entre las dos partes.

    `places` (F,) uint64: de cada familia, lo que se compara con `validation_limit`.
    """
    lowest, highest = int(places.min()), int(places.max())
    working = [each for each in _ROUND_FRACTIONS if lowest < validation_limit(each) <= highest]
    if not working:
        return None
    return working[0] if empty == "val" else working[-1]


def _remedy(fraction: float | None) -> str:
    if fraction is None:
        return ""
    return (
        "con los que hay se arregla así: "
        f'make params RUN=… SET="data.val_fraction={fraction}"; mejor aún, '
    )
