"""Cuánto se le permite a quien llama, para que nadie estorbe a los demás."""

from dataclasses import dataclass

_BYTES_PER_TOKEN = 32
_LEAST_BODY = 1 << 16


@dataclass(frozen=True)
class Limits:
    """Los límites del servidor; los tiempos, en segundos.

    Attributes:
        body_bytes: tamaño del cuerpo de una petición.
        parallel: respuestas que se generan a la vez.
        waiting: peticiones que esperan turno; la siguiente recibe un 503.
        connections: conexiones abiertas; la siguiente recibe un 503.
        idle_seconds: lo que una conexión puede estar sin acabar las cabeceras de una petición.
        body_seconds: lo que puede tardar en llegar el cuerpo.
        queue_seconds: lo que se espera turno.
        answer_seconds: lo que puede durar una respuesta.
        unread_seconds: lo que se espera a quien no lee lo que se le envía.
    """

    body_bytes: int
    parallel: int = 4
    waiting: int = 256
    connections: int = 512
    idle_seconds: float = 20.0
    body_seconds: float = 20.0
    queue_seconds: float = 120.0
    answer_seconds: float = 300.0
    unread_seconds: float = 20.0


def limits_for(context: int, parallel: int) -> Limits:
    """Los límites de un modelo con `context` tokens.

    Un token son unos cinco bytes en español y hasta treinta si el JSON escapa cada letra con tilde:
    en el cuerpo cabe, con holgura, todo lo que el modelo puede leer.
    """
    return Limits(body_bytes=max(_LEAST_BODY, _BYTES_PER_TOKEN * context), parallel=parallel)
