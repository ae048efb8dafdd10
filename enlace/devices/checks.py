"""Las reglas del perfil frente al dispositivo: lo que impide entrenar y lo que solo conviene saber.

Cada negativa es un `HardwareError` que nombra el perfil de `configs/hardware/` que sí sirve.
"""

import re

from enlace.cards import GIB, Capability
from enlace.config.documents import DocumentMask
from enlace.config.schema import HardwareConfig, ModelConfig
from enlace.devices.attention import check_sdpa
from enlace.devices.description import AMPERE, DeviceDescription, known_card, native_bf16
from enlace.devices.profiles import PROFILES, remedy, suggest_profile
from enlace.errors import HardwareError
from enlace.figures import number, short

MINIMUM_MARGIN = 256 << 20
"""Bytes que quedan libres como poco cuando el sistema puede desbordar a la RAM."""
_RESERVED_BY_DRIVER = 0.1


def check_profile(
    description: DeviceDescription,
    hardware: HardwareConfig,
    model: ModelConfig | None = None,
    document_mask: DocumentMask = "none",
) -> None:
    """Contrasta el perfil entero con el dispositivo, antes de reservar nada.

    Raises:
        HardwareError: la primera regla que no se cumple, con el remedio.
    """
    if description.capability is None:
        return
    check_architecture(description)
    check_dtype(description, hardware)
    check_sdpa(description, hardware, model, document_mask)
    check_memory(description, hardware)


def check_architecture(description: DeviceDescription) -> None:
    """Comprueba que este torch trae código para la tarjeta.

    Un binario `sm_XY` corre en las capacidades X.Z con Z ≥ Y; `compute_XY` (PTX) se compila al
    vuelo en cualquiera que no sea anterior; uno con letra (`sm_90a`), solo en la suya.

    Raises:
        HardwareError: no lo trae.
    """
    capability, archs = description.capability, description.arch_list
    if capability is None or not archs or any(_runs(arch, capability) for arch in archs):
        return
    remedy = (
        "instala el torch compilado para CUDA 12.6 (cu126), que llega hasta la 5.0"
        if capability < (7, 5)
        else "instala el torch compilado para CUDA 13.0 (cu130) o uno más nuevo"
    )
    raise HardwareError(
        f"este torch (CUDA {description.cuda}) no trae código para {description}: trae "
        f"{', '.join(archs)}; {remedy}, o entrena en CPU con hardware=cpu"
    )


def check_dtype(description: DeviceDescription, hardware: HardwareConfig) -> None:
    """Comprueba que la GPU calcula la precisión del perfil de forma nativa.

    Raises:
        HardwareError: bf16 antes de Ampere, o 16 bits sin núcleos tensoriales.
    """
    if description.capability is None or hardware.dtype == "fp32":
        return
    where = f"hardware.dtype={hardware.dtype} del perfil {hardware.name!r}"
    usable = "fp16" if description.has_tensor_cores else "fp32"
    if hardware.dtype == "bf16" and not native_bf16(description):
        raise HardwareError(
            f"{where} no es nativo en {description}, que lo emula más despacio que fp32; "
            f"{remedy(description, hardware, 'dtype', usable)}"
        )
    if not description.has_tensor_cores:
        raise HardwareError(
            f"{where} necesita núcleos tensoriales y {description} no los tiene; "
            f"{remedy(description, hardware, 'dtype', usable)}"
        )


def check_memory(description: DeviceDescription, hardware: HardwareConfig) -> None:
    """Comprueba que la tarjeta tiene la memoria para la que se hizo el perfil.

    Raises:
        HardwareError: tiene menos de lo que declara `hardware.memory_gib`.
    """
    if description.memory_bytes < hardware.memory_gib * GIB * (1 - _RESERVED_BY_DRIVER):
        _, nominal = PROFILES.get(suggest_profile(description), (None, 0.0))
        raise HardwareError(
            f"el perfil {hardware.name!r} es para {short(hardware.memory_gib)} GiB "
            f"(hardware.memory_gib) y {description} tiene {_gib(description.memory_bytes)}; "
            f"{remedy(description, hardware, 'memory_gib', short(nominal))}"
        )


def memory_fraction(description: DeviceDescription, hardware: HardwareConfig) -> float | None:
    """La fracción de la memoria total que este proceso puede usar; `None` si no hay que limitarla.

    En Windows y en WSL el controlador, con la tarjeta casi llena, pasa en silencio a la RAM y todo
    va diez veces más lento. Con el límite, torch dice que no cabe en vez de arrastrarse.

    Raises:
        HardwareError: no queda memoria libre.
    """
    if description.capability is None or description.platform == "linux":
        return None
    total = description.memory_bytes
    free = total if description.free_bytes is None else description.free_bytes
    usable = free - max(MINIMUM_MARGIN, int(hardware.memory_margin * total))
    if usable <= 0:
        raise HardwareError(
            f"{description} solo tiene {_gib(free)} libres de {_gib(total)}; cierra lo que use la "
            "tarjeta (nvidia-smi lo dice)"
        )
    return usable / total


def pins_memory(description: DeviceDescription) -> bool:
    """Si se puede copiar a la GPU desde memoria fijada: WSL la limita y daría falta de memoria."""
    return description.capability is not None and description.platform == "linux"


def device_warnings(description: DeviceDescription, hardware: HardwareConfig) -> tuple[str, ...]:
    """Lo que no impide entrenar pero conviene saber, una frase por aviso."""
    if description.capability is None:
        return ()
    found = []
    free, planned = description.free_bytes, int(hardware.memory_gib * GIB)
    if free is not None and free < min(planned, description.memory_bytes) * 0.8:
        found.append(
            f"otros programas ocupan la tarjeta: quedan libres {_gib(free)} de "
            f"{_gib(description.memory_bytes)}"
        )
    if description.platform != "linux":
        found.append(
            "en Windows y WSL la memoria de la tarjeta puede desbordar a la RAM; se limita la de "
            "este proceso y no se usa memoria fijada"
        )
    if hardware.compile and description.capability < AMPERE:
        found.append(
            "hardware.compile=true no es oficial antes de la capacidad 8.0; si falla, ponlo a false"
        )
    card = known_card(description)
    if card is not None and card.is_laptop:
        found.append("es una tarjeta de portátil: irá más despacio que la de sobremesa")
    return tuple(found)


def explain_missing_gpu(
    cuda: str | None, driver_cuda: tuple[int, int] | None, platform: str
) -> str:
    """Por qué torch no ve ninguna GPU y qué hacer, de las versiones de torch y del controlador."""
    if cuda is None:
        return "este torch es la versión sin CUDA; instala la de CUDA 13.0 (cu130)"
    if driver_cuda is None:
        where = " en Windows, no dentro de WSL" if platform == "wsl" else ""
        return f"no hay controlador de NVIDIA; instálalo{where}"
    if driver_cuda[0] < int(cuda.split(".")[0]):
        return (
            f"el controlador llega a CUDA {driver_cuda[0]}.{driver_cuda[1]} y este torch usa "
            f"{cuda}; actualiza el controlador o instala el torch de CUDA 12.6 (cu126)"
        )
    return "torch no encuentra ninguna; mira nvidia-smi y la variable CUDA_VISIBLE_DEVICES"


def _runs(arch: str, capability: Capability) -> bool:
    match = re.fullmatch(r"(sm|compute)_(\d+)(\d)([a-z]?)", arch)
    if match is None:
        return False
    built = (int(match[2]), int(match[3]))
    if match[4]:
        return built == capability
    if match[1] == "compute":
        return built <= capability
    return built[0] == capability[0] and built[1] <= capability[1]


def _gib(size: int) -> str:
    return f"{number(size / GIB, 1)} GiB"
