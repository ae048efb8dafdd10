"""Errores de usuario: una línea clara, código de salida distinto de cero y sin traza."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager


class EnlaceError(Exception):
    """Base de los errores que el usuario puede corregir; `exit_code` es el código de salida."""

    exit_code = 2


class ConfigError(EnlaceError):
    """Configuración inválida: dice campo, valor, fichero y remedio."""


class DataError(EnlaceError):
    """Texto, tokenizador o shards que no sirven."""


class CheckpointError(EnlaceError):
    """Checkpoint ausente, incompleto, dañado o de otra identidad."""


class HardwareError(EnlaceError):
    """El perfil de hardware no corresponde a la máquina."""


class PreflightError(EnlaceError):
    """El preflight ha medido que el entrenamiento no debe empezar."""


class LockError(EnlaceError):
    """Otro proceso usa la misma carpeta o la misma GPU."""


class InputsChangedError(EnlaceError):
    """Parámetros, datos o código cambiaron mientras corría la etapa."""


class TrainingAbortedError(EnlaceError):
    """Una regla numérica detuvo el entrenamiento antes de dañar los pesos."""

    exit_code = 3


class UnfinishedError(EnlaceError):
    """Quedan pasos por entrenar: el trabajo está guardado y la próxima llamada sigue."""

    def __init__(self, message: str, exit_code: int) -> None:
        """`exit_code` sigue la convención 128 + señal (130 para Ctrl-C, 143 para SIGTERM)."""
        super().__init__(message)
        self.exit_code = exit_code


@contextmanager
def user_errors() -> Iterator[None]:
    """Convierte un `EnlaceError` en una línea por stderr y el código de salida que le toca."""
    try:
        yield
    except EnlaceError as error:
        print(f"enlace: {error}", file=sys.stderr, flush=True)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("enlace: interrumpido", file=sys.stderr, flush=True)
        sys.exit(130)
