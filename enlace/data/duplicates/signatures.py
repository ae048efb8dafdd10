"""La firma MinHash de un documento y las claves de LSH que juntan a los parecidos.

El parecido es el de Jaccard entre los conjuntos de n-gramas de palabras de dos documentos: la parte
de posiciones en que coinciden sus firmas lo estima sin sesgo. Dos documentos de parecido s tienen
alguna clave en común con probabilidad 1 − (1 − s^rows)^bands.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import rensa

from enlace.config.corpus import DedupConfig
from enlace.data.duplicates.passages import Passages, sample
from enlace.data.duplicates.shingles import Hashes, mix, ngram_hashes

Signatures = npt.NDArray[np.uint32]


class Signed(NamedTuple):
    """Lo que se guarda de N documentos para compararlos.

    `signatures` (N, bands·rows) uint32; `keys` (bands, N) uint64; `passages`, la muestra de los
    n-gramas de cada uno.
    """

    signatures: Signatures
    keys: Hashes
    passages: Passages


def sign(words: list[Hashes], config: DedupConfig) -> Signed:
    """Firma unos documentos, cada uno dado por los resúmenes de sus palabras.

    Un documento sin palabras no se parece a nadie: todas sus claves son 0, que no junta a nadie.
    """
    shingles = [np.unique(ngram_hashes(each, config.ngram)) for each in words]
    count = config.bands * config.rows
    ends = np.cumsum([0, *map(len, shingles)], dtype=np.uint64)
    flat = np.concatenate([np.empty(0, np.uint64), *shingles])
    matrix = rensa.RMinHash.digest_matrix_from_flat_token_hashes(flat, ends, count, config.seed)
    signatures = np.array(matrix.to_rows(), dtype=np.uint32).reshape(len(words), count)
    keys = band_keys(signatures, config.bands)
    keys[:, np.diff(ends) == 0] = 0
    samples = [sample(each, config) for each in shingles]
    counts = np.array([len(each) for each in samples], np.uint32)
    passages = Passages(np.concatenate([np.empty(0, np.uint64), *samples]), counts)
    return Signed(signatures, keys, passages)


def band_keys(signatures: Signatures, bands: int) -> Hashes:
    """La clave de cada banda de cada firma: de (N, bands·rows) a (bands, N) uint64."""
    by_band = signatures.reshape(len(signatures), bands, signatures.shape[1] // bands).astype(
        np.uint64
    )
    keys = np.zeros((len(signatures), bands), np.uint64)
    for row in range(by_band.shape[2]):
        keys = mix(keys + np.uint64(1)) + by_band[:, :, row]
    return np.ascontiguousarray(mix(keys).T)
