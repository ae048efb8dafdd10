"""El esquema de la configuración: qué se puede decidir en un entrenamiento y entre qué valores.

Cinco secciones (`hardware`, `model`, `train`, `data`, `export`) y el nombre del run. Los mensajes
de error llevan la descripción de cada campo. `operational` enumera, en cada sección, las claves que
pueden cambiar a mitad de un entrenamiento sin cambiar las cuentas; el resto forma la identidad.
"""

import math
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from enlace.config.corpus import (
    ContaminationConfig,
    DedupConfig,
    DownloadConfig,
    RulesConfig,
    SourceConfig,
)
from enlace.config.documents import DocumentMask, kernel_for_mask
from enlace.config.export import STANDARD_EXPORT, ExportConfig
from enlace.config.fields import (
    Count,
    CountOrZero,
    Fraction,
    Name,
    Pattern,
    Positive,
    PositiveOrZero,
    Section,
    SettingError,
    Text,
)
from enlace.config.hardware import Checkpointing, HardwareConfig, PreflightConfig
from enlace.config.later import as_before
from enlace.config.train import TrainConfig
from enlace.files import sha256_json

__all__ = [
    "BYTE_VOCABULARY",
    "FIRST_BPE_ID",
    "STANDARD_EXPORT",
    "Checkpointing",
    "Config",
    "DataConfig",
    "EvaluationConfig",
    "ExportConfig",
    "HardwareConfig",
    "ModelConfig",
    "PreflightConfig",
    "Section",
    "TokenizerConfig",
    "TrainConfig",
]

FIRST_BPE_ID = 16
"""Ids que el vocabulario BPE reserva antes de los 256 bytes (tokens especiales y reservados)."""
BYTE_VOCABULARY = 256


class ModelConfig(Section):
    """La arquitectura: decodificador estilo Llama/Qwen3."""

    name: Name = Field(description="nombre del tamaño")
    vocab_size: Count = Field(description="tamaño del vocabulario")
    n_layer: Count = Field(description="número de capas")
    n_head: Count = Field(description="cabezas de consulta")
    n_kv_head: Count = Field(description="cabezas de clave y valor")
    d_model: Count = Field(description="anchura del modelo")
    seq_len: Count = Field(description="longitud de contexto, en tokens")
    ffn_mult: Annotated[float, Field(gt=0, le=64)] = Field(
        default=8 / 3, description="anchura de la FFN respecto a d_model"
    )
    ffn_multiple_of: Count = Field(default=64, description="múltiplo al que se redondea la FFN")
    rope_theta: Positive = Field(default=10000.0, description="base de RoPE")
    norm_eps: Positive = Field(default=1e-5, description="épsilon de RMSNorm")
    tie_embeddings: bool = Field(default=True, description="embeddings y salida compartidos")
    qk_norm: bool = Field(default=True, description="RMSNorm en consultas y claves")
    z_loss_weight: PositiveOrZero = Field(default=1e-4, description="peso de z-loss")
    dropout: Fraction = Field(default=0.0, description="probabilidad de dropout")
    init_std: Positive = Field(default=0.02, description="desviación típica inicial")

    @property
    def head_dim(self) -> int:
        """Anchura de cada cabeza: d_model / n_head."""
        return self.d_model // self.n_head

    @property
    def ffn_dim(self) -> int:
        """Anchura interna de SwiGLU: d_model · ffn_mult redondeado hacia arriba al múltiplo."""
        raw = int(self.d_model * self.ffn_mult)
        return self.ffn_multiple_of * math.ceil(raw / self.ffn_multiple_of)

    @model_validator(mode="after")
    def _shapes_divide(self) -> Self:
        if self.d_model % self.n_head:
            raise SettingError(
                f"model.d_model = {self.d_model} no es divisible entre model.n_head = "
                f"{self.n_head}; cambia uno de los dos"
            )
        if self.head_dim % 2:
            raise SettingError(
                f"model.d_model = {self.d_model} entre model.n_head = {self.n_head} da cabezas de "
                f"{self.head_dim}, impar, y RoPE gira pares; cambia uno de los dos"
            )
        if self.n_head % self.n_kv_head:
            raise SettingError(
                f"model.n_head = {self.n_head} no es divisible entre model.n_kv_head = "
                f"{self.n_kv_head}; pon en model.n_kv_head un divisor de {self.n_head}"
            )
        return self


class TokenizerConfig(Section):
    """Cómo se convierte el texto en ids."""

    operational = frozenset({"fast_encoder"})

    kind: Literal["byte", "bpe"] = Field(description="bytes sin tokenizador, o BPE por bytes")
    min_frequency: Count = Field(description="apariciones mínimas de una fusión BPE")
    train_megabytes: Positive = Field(description="texto máximo para entrenar el BPE, en MB")
    fast_encoder: bool = Field(description="uso de fastokens, con los mismos ids")


class EvaluationConfig(Section):
    """Qué muestras se piden al modelo terminado."""

    operational = frozenset({"prompts", "max_new_tokens", "temperature", "top_k", "seed"})

    prompts: Annotated[tuple[Text, ...], Field(strict=False, min_length=1)] = Field(
        description="principios de texto que el modelo continúa"
    )
    max_new_tokens: Count = Field(description="tokens que se generan por muestra")
    temperature: PositiveOrZero = Field(description="temperatura; con 0, la opción más probable")
    top_k: CountOrZero = Field(description="candidatos por token; con 0, todos")
    seed: CountOrZero = Field(description="semilla de las muestras")


class DataConfig(Section):
    """Qué texto se usa y cómo llega a shards."""

    operational = frozenset({"name", "downloads", "workers", "evaluation"})

    name: Name = Field(description="nombre de la capa de datos")
    source: Literal["data/sample", "data/raw"] = Field(description="carpeta del texto de origen")
    include: Annotated[tuple[Pattern, ...], Field(strict=False, min_length=1)] = Field(
        description="patrones de ficheros dentro de source"
    )
    sources: Annotated[tuple[SourceConfig, ...], Field(strict=False)] = Field(
        description="partes con peso y licencia propios; lo demás pesa 1"
    )
    downloads: Annotated[tuple[DownloadConfig, ...], Field(strict=False)] = Field(
        description="conjuntos de Hugging Face que trae `make corpus` sin SRC"
    )
    format: Literal["text", "chat"] = Field(description="texto corrido o conversaciones")
    text_column: Text = Field(description="campo de texto en jsonl y parquet")
    genre_column: str = Field(description="campo del género, para los informes; vacío si no hay")
    license_column: str = Field(description="campo de la licencia; vacío si no hay")
    on_bad_bytes: Literal["detect", "skip", "fail"] = Field(
        description="qué hacer con lo que no es UTF-8: averiguar qué es, dejarlo fuera o parar"
    )
    max_record_megabytes: Positive = Field(
        description="registro, página o línea de jsonl más grande que se lee, en MB"
    )
    max_document_megabytes: Positive = Field(
        description="MB de un texto desde los que se corta en varios documentos"
    )
    rules: RulesConfig
    dedup: DedupConfig
    contamination: ContaminationConfig
    val_fraction: Annotated[float, Field(gt=0, lt=0.5)] = Field(
        description="fracción de documentos para validación"
    )
    tokenizer: TokenizerConfig = Field(description="tokenizador")
    shard_tokens: Count = Field(description="tokens por fichero de shard")
    document_mask: DocumentMask = Field(
        description="si la atención se queda en su documento o cruza los de su ventana"
    )
    workers: Annotated[int, Field(ge=0, le=1024)] = Field(
        description="procesos que limpian e hilos que codifican; con 0, uno por núcleo"
    )
    evaluation: EvaluationConfig = Field(description="muestras de evaluación")


class Config(Section):
    """La configuración completa y resuelta de un run."""

    operational = frozenset({"run_name", "export"})

    run_name: Name = Field(description="nombre del run, igual que el de su fichero")
    hardware: HardwareConfig
    model: ModelConfig
    train: TrainConfig
    data: DataConfig
    export: ExportConfig = STANDARD_EXPORT

    @property
    def sequences_per_step(self) -> int:
        """Secuencias de seq_len tokens en cada paso de optimizador."""
        return self.train.tokens_per_step // self.model.seq_len

    @property
    def accumulation(self) -> int:
        """Micro-batches que se acumulan en cada paso de optimizador."""
        return self.sequences_per_step // self.hardware.micro_batch

    def identity(self) -> str:
        """SHA-256 de los valores que deciden el resultado: model, train, data y dtype."""
        return sha256_json(as_before(self.identity_values()))

    def fingerprint(self) -> str:
        """SHA-256 de todos los valores de entrenar, operativos incluidos: para el registro."""
        return sha256_json(as_before(self.training_values()))

    def training_values(self) -> dict[str, Any]:
        """Todos los valores menos los de `export`: lo que guarda cada checkpoint y modelo."""
        return self.model_dump(mode="json", exclude={"export"})

    @model_validator(mode="after")
    def _steps_divide(self) -> Self:
        tokens, length = self.train.tokens_per_step, self.model.seq_len
        micro_batch = self.hardware.micro_batch
        if tokens % length:
            unit = length * micro_batch
            raise SettingError(
                f"train.tokens_per_step = {tokens} no es múltiplo de model.seq_len = {length}; "
                f"pon {unit * max(1, round(tokens / unit))}"
            )
        if self.sequences_per_step % micro_batch:
            raise SettingError(
                f"hardware.micro_batch = {micro_batch} no divide las {self.sequences_per_step} "
                f"secuencias de cada paso (train.tokens_per_step = {tokens} entre model.seq_len = "
                f"{length}); pon un divisor de {self.sequences_per_step}"
            )
        return self

    @model_validator(mode="after")
    def _vocabulary_fits(self) -> Self:
        vocabulary, kind = self.model.vocab_size, self.data.tokenizer.kind
        smallest, largest = FIRST_BPE_ID + BYTE_VOCABULARY + 1, 1 << 16
        if kind == "byte" and vocabulary != BYTE_VOCABULARY:
            raise SettingError(
                f"model.vocab_size = {vocabulary} no vale con data.tokenizer.kind = byte; "
                f"pon {BYTE_VOCABULARY}"
            )
        if kind == "bpe" and not smallest <= vocabulary <= largest:
            raise SettingError(
                f"model.vocab_size = {vocabulary} no vale con data.tokenizer.kind = bpe, que "
                f"guarda ids de 16 bits; pon un valor entre {smallest} y {largest}"
            )
        if kind == "byte" and self.data.format == "chat":
            raise SettingError(
                "data.format = chat necesita tokens de turno y data.tokenizer.kind = byte no los "
                "tiene; pon data.tokenizer.kind: bpe"
            )
        return self

    @model_validator(mode="after")
    def _mask_has_kernel(self) -> Self:
        hardware, mask = self.hardware, self.data.document_mask
        kernel = kernel_for_mask(hardware.device, hardware.sdpa_backend)
        if mask != "none" and kernel is not None:
            raise SettingError(
                f"hardware.sdpa_backend = {hardware.sdpa_backend} con hardware.device = "
                f"{hardware.device} no sirve con data.document_mask = {mask}, que necesita una "
                f"máscara; pon hardware.sdpa_backend: {kernel}, o data.document_mask: none"
            )
        return self

    @model_validator(mode="after")
    def _shards_hold_windows(self) -> Self:
        tokens, length = self.data.shard_tokens, self.model.seq_len
        if tokens <= length:
            raise SettingError(
                f"data.shard_tokens = {tokens} no llega a una ventana de model.seq_len + 1 = "
                f"{length + 1} tokens; pon {length + 1} o, mejor, decenas de millones"
            )
        return self

    @model_validator(mode="after")
    def _samples_fit(self) -> Self:
        # Sin esto, un entrenamiento de dos días acabaría en un error de la evaluación.
        new, length = self.data.evaluation.max_new_tokens, self.model.seq_len
        longest = 1
        if self.data.tokenizer.kind == "byte":
            longest = max(len(prompt.encode("utf-8")) for prompt in self.data.evaluation.prompts)
        room = length - longest
        if new > room:
            raise SettingError(
                f"data.evaluation.max_new_tokens = {new} no deja sitio al principio de la muestra "
                f"en model.seq_len = {length}; pon como mucho {max(room, 0)}"
            )
        return self
