"""Abrir el dispositivo y decir lo que conviene saber de él."""

from enlace.backends import Backend, open_device
from enlace.config.documents import DocumentMask
from enlace.config.schema import HardwareConfig, ModelConfig


def open_announced(
    hardware: HardwareConfig,
    model: ModelConfig | None = None,
    document_mask: DocumentMask = "none",
) -> Backend:
    """`open_device`, y sus avisos en la salida, uno por línea.

    Raises:
        HardwareError: el perfil no corresponde a la máquina.
    """
    backend = open_device(hardware, model, document_mask)
    for warning in backend.warnings:
        print(f"aviso: {warning}", flush=True)
    return backend
