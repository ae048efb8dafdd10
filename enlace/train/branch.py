"""Empezar desde otro entrenamiento: qué se toma del padre.

Con `train.init_state: weights` se toman los pesos y nada más: paso 0, optimizador nuevo, el
calendario y los datos desde el principio. Es lo propio de otra tarea u otros datos.

Con `all` se toma todo lo que un checkpoint guarda, también el paso: el hijo es el padre, alargado.
El calendario sigue en su paso (con WSD, la tasa de un tramo estable no depende de cuánto dure) y
los datos en su lote: si son los mismos, ninguno se repite y el resultado es, bit a bit, el de haber
pedido el entrenamiento largo desde el principio. Con otros datos, se sigue en el lote de ese número
de los nuevos.
"""

from collections.abc import Mapping

from torch import Tensor

from enlace.errors import CheckpointError
from enlace.train.artifact import MODEL, Artifact
from enlace.train.checkpoint import Found
from enlace.train.container import read_tensors
from enlace.train.parent import check_compatible
from enlace.train.restore import restore
from enlace.train.skipping import SkippingStream
from enlace.train.state import Training
from enlace.train.tensors import load_model_tensors


def begin_from(
    training: Training, stream: SkippingStream, parent: Artifact, tokenizer: object
) -> tuple[Found, Mapping[str, Tensor]]:
    """Pone en un entrenamiento recién montado lo que `train.init_state` toma del padre.

    Args:
        training: modelo, optimizador y escala recién hechos.
        stream: los datos del hijo.
        parent: el padre, ya comprobado.
        tokenizer: la huella del tokenizador del hijo.

    Returns:
        El padre y el azar que guardaba, sin tocarlo (vacío con `weights`).

    Raises:
        CheckpointError: la arquitectura, la receta o el tokenizador no casan.
    """
    check_compatible(parent, training.config)
    origin = parent.history.origin
    if origin.tokenizer != tokenizer:
        raise CheckpointError(
            f"{parent.path} se entrenó con el tokenizador {origin.tokenizer} y estos datos son de "
            f"{tokenizer}: sus ids no significan lo mismo; vuelve a hacer los shards "
            "(dvc repro tokenize), que heredan el del padre"
        )
    found = Found(parent.path, parent.record, ())
    if training.config.train.init_state == "weights":
        load_model_tensors(training.model, read_tensors(parent.path / MODEL), parent.path / MODEL)
        return found, {}
    if parent.record["stream"].get("fingerprint") == stream.fingerprint:
        stream.load_state(parent.record["stream"])
    return found, restore(training, found)
