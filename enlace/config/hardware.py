"""La sección `hardware`: dónde se entrena y con qué umbrales se juzga antes de empezar.

Nada de aquí cambia las cuentas, salvo `dtype`: por eso casi todas sus claves son operativas.
"""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from enlace.config.fields import (
    Count,
    CountOrZero,
    Fraction,
    Name,
    Positive,
    PositiveOrZero,
    Section,
    SettingError,
)

Checkpointing = Literal["none", "mlp", "block"]
HostAllocator = Literal["system", "keep"]
"""Qué activaciones no se guardan hacia delante y se vuelven a calcular hacia atrás."""

Cosine = Annotated[float, Field(gt=0, lt=1)]


class PreflightConfig(Section):
    """Cuánto mide el preflight y a partir de qué números avisa o se niega."""

    steps: Count = Field(description="pasos de optimizador que se cronometran")
    health_steps: Count = Field(description="pasos con los que se mide cuántos salta fp16")
    min_window_bits: PositiveOrZero = Field(
        description="anchura mínima, en bits, de la ventana de escalas de la pérdida que sirven"
    )
    warn_activation_bits: PositiveOrZero = Field(
        description="bits entre la mayor activación y 65504 por debajo de los cuales se avisa"
    )
    min_activation_bits: PositiveOrZero = Field(
        description="bits entre la mayor activación y 65504 por debajo de los cuales no se entrena"
    )
    warn_skip_rate: Fraction = Field(
        description="fracción de pasos saltados, ya calibrada la escala, que merece aviso"
    )
    max_skip_rate: Fraction = Field(
        description="fracción de pasos saltados, ya calibrada la escala, con la que no se entrena"
    )
    warn_scale: Positive = Field(description="escala de la pérdida por debajo de la cual se avisa")
    max_loss_difference: Positive = Field(
        description="diferencia relativa máxima entre la pérdida en fp16 y en fp32"
    )
    min_gradient_cosine: Cosine = Field(
        description="coseno mínimo entre el gradiente en fp16 y en fp32"
    )
    kwh_price: PositiveOrZero = Field(
        description="precio del kWh, en tu moneda; con 0 no se calcula el coste"
    )

    @model_validator(mode="after")
    def _warnings_come_first(self) -> Self:
        if self.warn_activation_bits < self.min_activation_bits:
            raise SettingError(
                f"hardware.preflight.warn_activation_bits = {self.warn_activation_bits} avisaría "
                "más tarde de lo que rechaza hardware.preflight.min_activation_bits = "
                f"{self.min_activation_bits}; sube la primera o baja la segunda"
            )
        if self.warn_skip_rate > self.max_skip_rate:
            raise SettingError(
                f"hardware.preflight.warn_skip_rate = {self.warn_skip_rate} avisaría más tarde de "
                f"lo que rechaza hardware.preflight.max_skip_rate = {self.max_skip_rate}; baja la "
                "primera o sube la segunda"
            )
        return self


class HardwareConfig(Section):
    """Dónde se entrena. Cambia la velocidad y la memoria, nunca las cuentas (salvo `dtype`)."""

    operational = frozenset(
        {
            "name",
            "device",
            "sdpa_backend",
            "micro_batch",
            "compile",
            "activation_checkpointing",
            "loss_chunk_rows",
            "loss_chunk_columns",
            "threads",
            "host_allocator",
            "memory_gib",
            "memory_margin",
            "preflight",
        }
    )

    name: Name = Field(description="nombre del perfil")
    device: Literal["cpu", "cuda"] = Field(description="dispositivo")
    dtype: Literal["fp32", "bf16", "fp16"] = Field(description="precisión del cálculo")
    sdpa_backend: Literal["math", "mem_efficient", "flash", "cudnn"] = Field(
        description="núcleo de atención"
    )
    micro_batch: Count = Field(description="secuencias que caben a la vez")
    compile: bool = Field(description="uso de torch.compile")
    activation_checkpointing: Checkpointing = Field(
        description="qué se recalcula hacia atrás para guardar menos: nada, la FFN o el bloque"
    )
    loss_chunk_rows: Count = Field(description="filas de logits que la pérdida calcula a la vez")
    loss_chunk_columns: Count = Field(
        description="columnas de logits de cada producto de la pérdida; solo en fp32 o al validar"
    )
    threads: CountOrZero = Field(description="hilos de CPU; con 0, los que elija torch")
    host_allocator: HostAllocator = Field(
        description="qué hace la CPU con la memoria que se suelta: devolverla o guardarla"
    )
    memory_gib: Positive = Field(description="memoria del dispositivo, en GiB")
    memory_margin: Fraction = Field(description="fracción de la memoria que debe quedar libre")
    preflight: PreflightConfig = Field(description="preflight")

    @model_validator(mode="after")
    def _backend_exists(self) -> Self:
        if self.device == "cpu" and self.sdpa_backend not in ("math", "flash"):
            raise SettingError(
                f"hardware.sdpa_backend = {self.sdpa_backend} no existe con hardware.device = cpu; "
                "pon hardware.sdpa_backend: flash (o math)"
            )
        return self
