"""La sección `export`: en qué formatos se entrega el modelo y cómo se usa si nadie dice otra cosa.

Es la única sección que no decide nada del entrenamiento: ni la identidad ni la huella la miran, la
etapa `pretrain` no la lee y lo que se guarda con un modelo no la incluye. Al abrir la configuración
de un modelo ya entrenado, en su lugar está `STANDARD_EXPORT`.
"""

from typing import Annotated, Literal

from pydantic import Field

from enlace.config.fields import CountOrZero, Name, Positive, PositiveOrZero, Section

GgufType = Literal["f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0"]
License = Annotated[str, Field(pattern=r"^([a-z0-9][a-z0-9._-]*)?$")]
"""Va en la cabecera de la ficha y en el GGUF: sin espacios ni signos que signifiquen otra cosa."""
Share = Annotated[float, Field(ge=0, le=1)]


class ExportConfig(Section):
    """Qué ficheros deja `make export` y qué muestreo proponen. Nada de esto cambia el modelo."""

    operational = frozenset(
        {"name", "gguf", "license", "temperature", "top_k", "top_p", "min_p", "repeat_penalty"}
    )

    name: Name = Field(description="nombre de la capa")
    gguf: Annotated[tuple[GgufType, ...], Field(strict=False)] = Field(
        description="formatos GGUF; el primero es el del Modelfile"
    )
    license: License = Field(
        description="licencia del modelo, como cc-by-4.0; vacía si no se declara"
    )
    temperature: PositiveOrZero = Field(
        description="temperatura propuesta; con 0, la opción más probable"
    )
    top_k: CountOrZero = Field(description="candidatos propuestos; con 0, todos")
    top_p: Share = Field(description="probabilidad acumulada propuesta; con 1, toda")
    min_p: Share = Field(description="probabilidad mínima propuesta, respecto al mejor candidato")
    repeat_penalty: Positive = Field(
        description="penalización propuesta de lo repetido; con 1, ninguna"
    )


STANDARD_EXPORT = ExportConfig(
    name="standard",
    gguf=("f16", "q8_0"),
    license="",
    temperature=0.7,
    top_k=40,
    top_p=0.95,
    min_p=0.05,
    repeat_penalty=1.1,
)
"""La capa `configs/export/standard.yaml`, para quien lee una configuración sin esta sección."""
