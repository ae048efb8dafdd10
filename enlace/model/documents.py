"""La máscara que separa los documentos de una ventana (`data.document_mask: block`).

La regla: el separador *abre* el documento que le sigue. Un token ve los de su ventana que no son
posteriores a él ni anteriores al último separador que tiene delante o en su propio sitio; lo que
precede al primero es la cola de un documento que empezó en otra ventana. Así ningún objetivo se
predice con texto de otro documento: el final de cada texto, el propio separador, se predice con
ese texto, y su primera palabra con el separador solo, como al generar desde él.

Las posiciones son las de la ventana, sin volver a cero en cada documento. RoPE solo ve diferencias
de posición, así que la atención dentro de un documento es la misma hasta el redondeo.

La máscara es aditiva (0 o −inf) y del dtype del cálculo: `scaled_dot_product_attention` convertiría
una booleana en cada capa, y cada capa guardaría su copia. Todo token se ve a sí mismo, también el
relleno de una ventana incompleta, que son separadores: ninguna fila está vacía y no hay NaN.

Letras de forma: B secuencias, T tokens que preguntan, S los que pueden ser vistos (T, salvo al
generar con caché).
"""

import torch
from torch import Tensor

from enlace.config.documents import SEPARATOR_ID


def document_numbers(ids_BT: Tensor) -> Tensor:
    """El número de documento de cada token (B, T) int64, desde 0 en la cola de uno ya empezado."""
    return (ids_BT == SEPARATOR_ID).cumsum(dim=1)


def block_mask(queries_BT: Tensor, keys_BS: Tensor, dtype: torch.dtype) -> Tensor:
    """La máscara aditiva (B, 1, T, S), causal y por documentos, en `dtype`.

    Args:
        queries_BT: números de documento de los tokens que preguntan, los últimos T de los S.
        keys_BS: números de documento de los que pueden ser vistos.
        dtype: el de las consultas, que es el que exige la atención.
    """
    past = keys_BS.shape[1] - queries_BT.shape[1]
    seen_BTS = (queries_BT[:, :, None] == keys_BS[:, None, :]).tril(past)
    mask_BTS = torch.zeros(seen_BTS.shape, dtype=dtype, device=seen_BTS.device)
    return mask_BTS.masked_fill_(seen_BTS.logical_not_(), float("-inf"))[:, None]
