"""El esquema de la preparación del corpus: fuentes, reglas de limpieza, repetidos y contaminación.

Cada regla se enciende y se apaga por su cuenta, y el informe del corpus lleva una fila por regla.
"""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from enlace.config.fields import (
    Count,
    CountOrZero,
    Name,
    Pattern,
    Positive,
    PositiveOrZero,
    Section,
    SettingError,
    Text,
)

MIN_SIGNATURE_VALUES = 64
"""Con estos valores, el error típico del parecido estimado no pasa de 0,0625 (la mitad de 1/√n)."""

Patterns = Annotated[tuple[Pattern, ...], Field(strict=False)]
Share = Annotated[float, Field(ge=0, le=1)]


class SourceConfig(Section):
    """Una parte de `data.source` con peso y licencia propios."""

    operational = frozenset({"license"})

    name: Name = Field(description="nombre de la fuente en los informes")
    include: Annotated[Patterns, Field(min_length=1)] = Field(description="patrones de la fuente")
    weight: Positive = Field(description="veces que se ve cada documento en una época")
    license: Text = Field(description="licencia de la fuente")


class BoilerplateRule(Section):
    """Líneas de navegación, avisos y pies que se repiten de página en página."""

    enabled: bool = Field(description="si se quitan las líneas de navegación y de aviso")
    max_line_chars: Count = Field(description="longitud hasta la que se mira una línea suelta")


class LanguageRule(Section):
    """Identificación de lengua, párrafo a párrafo."""

    enabled: bool = Field(description="si se quitan los párrafos en otras lenguas")
    keep: Annotated[tuple[Text, ...], Field(strict=False, min_length=1)] = Field(
        description="lenguas que se quedan, en código ISO 639-1"
    )
    min_chars: Count = Field(description="letras por debajo de las que un párrafo no se juzga solo")
    judged_chars: Count = Field(description="caracteres del párrafo que se miran primero")
    min_probability: Share = Field(description="certeza con la que otra lengua deja fuera")
    min_cues: Count = Field(description="palabras gallegas o asturianas que bastan para dudar")
    min_cue_share: Share = Field(description="parte de las palabras que deben ser para cortar")
    cued_probability: Share = Field(description="certeza que basta si hay alguna de esas palabras")
    min_document_share: Share = Field(description="parte del documento que debe quedar")


class LengthRule(Section):
    """Cuánto debe medir un documento limpio."""

    enabled: bool = Field(description="si se miran las longitudes")
    min_chars: CountOrZero = Field(description="caracteres mínimos de un documento")
    max_chars: Count = Field(description="caracteres máximos de un documento")
    min_words: CountOrZero = Field(description="palabras mínimas de un documento")
    min_mean_word_chars: PositiveOrZero = Field(description="longitud media mínima de palabra")
    max_mean_word_chars: Positive = Field(description="longitud media máxima de palabra")


class QualityRule(Section):
    """Señales de que un documento no es prosa: símbolos, listas, puntos suspensivos."""

    enabled: bool = Field(description="si se mira la calidad de la prosa")
    max_symbol_share: Share = Field(description="símbolos por palabra")
    max_bullet_line_share: Share = Field(description="parte de líneas que son viñetas")
    max_ellipsis_line_share: Share = Field(description="parte de líneas con puntos suspensivos")
    min_alphabetic_word_share: Share = Field(description="parte de palabras con alguna letra")
    min_stop_words: CountOrZero = Field(description="palabras vacías del español, distintas")


class RepetitionRule(Section):
    """Documentos que se repiten por dentro."""

    enabled: bool = Field(description="si se mira la repetición interna")
    min_words: CountOrZero = Field(description="palabras desde las que se miran los grupos")
    max_duplicate_line_share: Share = Field(description="parte de caracteres en líneas repetidas")
    max_duplicate_paragraph_share: Share = Field(
        description="parte de caracteres en párrafos repetidos"
    )
    max_top_bigram_share: Share = Field(description="parte que ocupa el bigrama más frecuente")
    max_top_trigram_share: Share = Field(description="parte que ocupa el trigrama más frecuente")
    max_top_fourgram_share: Share = Field(
        description="parte que ocupa el cuatrigrama más frecuente"
    )
    max_duplicate_ngram_share: Share = Field(
        description="parte de caracteres en 10-gramas repetidos"
    )


class PersonalDataRule(Section):
    """Datos personales: qué se busca y qué se hace con ello."""

    action: Literal["keep", "mask", "drop"] = Field(
        description="dejar los datos, taparlos o quitar el documento"
    )
    emails: bool = Field(description="si se buscan direcciones de correo")
    phones: bool = Field(description="si se buscan teléfonos")
    ids: bool = Field(description="si se buscan documentos de identidad y cuentas bancarias")


class RulesConfig(Section):
    """La tabla de reglas de limpieza, en el orden en que se aplican."""

    html: bool = Field(description="si se convierten en texto las etiquetas y entidades sueltas")
    mojibake: bool = Field(description="si se repara el texto mal descodificado")
    line_ends: bool = Field(description="si todo fin de línea pasa a ser LF")
    control: bool = Field(description="si se quitan los caracteres de control")
    invisible: bool = Field(description="si se quitan guiones blandos y espacios sin anchura")
    nfc: bool = Field(description="si el texto se compone en NFC")
    whitespace: bool = Field(description="si se quitan espacios finales y líneas en blanco de más")
    boilerplate: BoilerplateRule
    language: LanguageRule
    length: LengthRule
    quality: QualityRule
    repetition: RepetitionRule
    personal_data: PersonalDataRule


class DedupConfig(Section):
    """Documentos repetidos, iguales o casi (MinHash-LSH)."""

    exact: bool = Field(description="si se quitan los documentos iguales")
    near: bool = Field(description="si se quitan los documentos casi iguales")
    threshold: Annotated[float, Field(gt=0, le=1)] = Field(
        description="parecido de Jaccard desde el que dos documentos son casi iguales"
    )
    split_threshold: Annotated[float, Field(gt=0, le=1)] = Field(
        description="parecido desde el que dos documentos no se separan en train y val"
    )
    contained: bool = Field(description="si se quitan los documentos cuyo texto ya está en otros")
    contained_share: Annotated[float, Field(gt=0, le=1)] = Field(
        description="parte del texto de un documento que, si está en otros, lo hace sobrar"
    )
    contained_sample: Count = Field(description="se mira un n-grama de cada tantos")
    ngram: Count = Field(description="palabras por fragmento comparado")
    bands: Count = Field(description="bandas de LSH")
    rows: Count = Field(description="valores de MinHash por banda")
    seed: CountOrZero = Field(description="semilla de las permutaciones")

    @model_validator(mode="after")
    def _signature_is_long_enough(self) -> Self:
        # El parecido se estima con un error de √(J·(1−J)/n): con pocos valores sobran los buenos.
        values = self.bands * self.rows
        if values < MIN_SIGNATURE_VALUES:
            raise SettingError(
                f"data.dedup.bands = {self.bands} por data.dedup.rows = {self.rows} son {values} "
                f"valores de firma, y con menos de {MIN_SIGNATURE_VALUES} se quitarían documentos "
                f"distintos; pon data.dedup.bands: {-(-MIN_SIGNATURE_VALUES // self.rows)} o más"
            )
        return self


class ContaminationConfig(Section):
    """Textos de evaluación que no deben estar en el corpus."""

    action: Literal["off", "report", "remove"] = Field(
        description="no buscar, informar o quitar los documentos que los contienen"
    )
    include: Patterns = Field(description="patrones de los textos de evaluación dentro de source")
    ngram: Count = Field(description="palabras de cada fragmento buscado")
    min_overlap: Share = Field(
        description="parte de los fragmentos de un texto de evaluación que delata a un documento"
    )


class DownloadConfig(Section):
    """Un conjunto de Hugging Face que `make corpus` sabe traer a `data/raw`."""

    name: Name = Field(description="carpeta de data/raw donde queda")
    dataset: Text = Field(description="nombre del conjunto, como HuggingFaceFW/fineweb-2")
    subset: str = Field(description="configuración del conjunto; vacía si no tiene")
    split: Text = Field(description="parte del conjunto")
    revision: Text = Field(description="revisión fijada: rama, etiqueta o commit")
    text_column: Text = Field(description="columna del texto; solo ella viaja")
    license: Text = Field(description="licencia del conjunto")
    max_megabytes: Positive = Field(description="texto que se trae como mucho, en MB")
