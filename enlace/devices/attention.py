"""Qué núcleo de atención puede correr en un dispositivo, y por qué no los demás.

Los límites son los de `scaled_dot_product_attention` en torch 2.13.
"""

from enlace.config.documents import DocumentMask, takes_mask
from enlace.config.schema import HardwareConfig, ModelConfig
from enlace.devices.description import AMPERE, DeviceDescription
from enlace.devices.profiles import suggest_profile, use_profile
from enlace.errors import ConfigError, HardwareError

_KERNELS = ("flash", "mem_efficient", "cudnn")
_ALIGNMENT = {"fp32": 4, "bf16": 8, "fp16": 8}
_FLASH_MAX_HEAD = 256
_FLASH_MAX_HEAD_TRAINING = 192
_CUDNN_MAX_HEAD = 128
_SMALL_SHARED_MEMORY = {(8, 6), (8, 9), (12, 0), (12, 1)}
_EXPANDS_KV = {"math": False, "mem_efficient": True, "flash": False, "cudnn": False}


def expands_kv(sdpa_backend: str) -> bool:
    """Si con GQA hay que repetir a mano las cabezas de clave y valor.

    En torch 2.13 mem_efficient no acepta `enable_gqa`: la llamada caería en silencio a MATH. En
    CPU no se nota, por eso se decide por el nombre del núcleo y no se espera a que falle.

    Raises:
        ConfigError: el nombre no es un núcleo conocido.
    """
    if sdpa_backend not in _EXPANDS_KV:
        raise ConfigError(
            f"hardware.sdpa_backend={sdpa_backend!r} no existe; elige uno de "
            f"{', '.join(sorted(_EXPANDS_KV))}"
        )
    return _EXPANDS_KV[sdpa_backend]


def check_sdpa(
    description: DeviceDescription,
    hardware: HardwareConfig,
    model: ModelConfig | None = None,
    document_mask: DocumentMask = "none",
) -> None:
    """Comprueba que el núcleo de atención del perfil es el que va a correr.

    Raises:
        HardwareError: no existe para esa tarjeta, precisión o forma; nombra el que sí sirve.
    """
    wanted = hardware.sdpa_backend
    refusals = sdpa_refusals(description, hardware, model, document_mask)
    if wanted not in refusals:
        return
    usable = [kernel for kernel in _KERNELS if kernel not in refusals]
    if usable:
        remedy = f"pon hardware.sdpa_backend: {usable[0]}"
        if suggest_profile(description) != hardware.name:
            remedy = f"{remedy}, o {use_profile(description)}"
    else:
        remedy = "cambia model.n_head para que cada cabeza mida 64 o 128"
    raise HardwareError(
        f"hardware.sdpa_backend={wanted} del perfil {hardware.name!r} no sirve en {description}: "
        f"{refusals[wanted]}; {remedy}"
    )


def sdpa_refusals(
    description: DeviceDescription,
    hardware: HardwareConfig,
    model: ModelConfig | None = None,
    document_mask: DocumentMask = "none",
) -> dict[str, str]:
    """Qué núcleos de atención no pueden correr, y por qué. Sin `model` no se mira su forma.

    En CPU solo se descartan los que no existen allí. `math` se descarta en GPU: guarda T×T.
    """
    capability, dtype = description.capability, hardware.dtype
    if capability is None:
        return dict.fromkeys(("mem_efficient", "cudnn"), "no existe en CPU")
    width = model.head_dim if model is not None else 64
    refusals = {"math": "guarda matrices T×T por capa"}
    limits = {"flash": _FLASH_MAX_HEAD, "cudnn": _CUDNN_MAX_HEAD}
    if capability in _SMALL_SHARED_MEMORY:
        limits["flash"] = _FLASH_MAX_HEAD_TRAINING
    for kernel, limit in limits.items():
        if capability < AMPERE:
            refusals[kernel] = "necesita capacidad 8.0 o mayor"
        elif dtype == "fp32":
            refusals[kernel] = "solo calcula en 16 bits y hardware.dtype=fp32"
        elif width > limit:
            refusals[kernel] = f"admite cabezas de hasta {limit} y las del modelo miden {width}"
    if dtype == "bf16" and capability < AMPERE:
        refusals["mem_efficient"] = "no calcula bf16 antes de la capacidad 8.0"
    for kernel in ("mem_efficient", "cudnn"):
        if width % _ALIGNMENT[dtype]:
            refusals.setdefault(
                kernel,
                f"necesita cabezas múltiplo de {_ALIGNMENT[dtype]} en {dtype} y las del modelo "
                f"miden {width}",
            )
    return refusals | _mask_refusals(document_mask)


def _mask_refusals(document_mask: DocumentMask) -> dict[str, str]:
    if document_mask == "none":
        return {}
    reason = f"no sirve con data.document_mask = {document_mask}"
    return {kernel: reason for kernel in _KERNELS if not takes_mask("cuda", kernel)}
