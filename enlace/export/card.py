"""La ficha del modelo: qué es, cómo se usa, de qué está hecho y qué no sabe hacer."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from enlace.config.schema import ExportConfig
from enlace.evaluation.report import lineage_of
from enlace.export.modelfile import MODELFILE
from enlace.export.source import Source
from enlace.figures import counted, integer, number, size
from enlace.reports import markdown

Record = Mapping[str, Any]
_NO_NAME = "sin declarar"
_BASE = (
    "**Completa texto; todavía no conversa.** Se le da un principio y lo continúa. No ha aprendido "
    "a contestar preguntas ni a seguir instrucciones."
)
_CHAT = "**Conversa en español.** Aprendió de conversaciones, con el formato ChatML."
_LIMITS = (
    "Es un modelo pequeño, entrenado desde cero con poco texto comparado con los grandes: inventa "
    "datos con aplomo, repite lo que hubiera de bueno y de malo en sus textos y no distingue lo "
    "verdadero de lo verosímil. No lo uses para decidir nada que importe."
)
_EXAMPLE = """\
from transformers import AutoModelForCausalLM, AutoTokenizer

folder = "."  # esta carpeta
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelForCausalLM.from_pretrained(folder)
"""
_BASE_EXAMPLE = """\
inputs = tokenizer("Había una vez", return_tensors="pt")
output = model.generate(**inputs, max_new_tokens=64)
print(tokenizer.decode(output[0], skip_special_tokens=True))
"""
_CHAT_EXAMPLE = """\
messages = [{"role": "user", "content": "Hola, ¿qué tal?"}]
text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
inputs = tokenizer(text, return_tensors="pt")
output = model.generate(**inputs, max_new_tokens=64)
print(tokenizer.decode(output[0], skip_special_tokens=True))
"""


class Facts(NamedTuple):
    """Lo que la ficha cuenta y no está en el modelo; lo que falta es `None`.

    Attributes:
        corpus: el informe del corpus con el que se entrenó.
        metrics: las cifras de la evaluación.
    """

    corpus: Record | None
    metrics: Record | None


UNKNOWN = Facts(None, None)


def read_facts(corpus: Path, metrics: Path) -> Facts:
    """Lee los dos informes de la tubería."""
    return Facts(json.loads(corpus.read_bytes()), json.loads(metrics.read_bytes()))


def model_card(
    source: Source, settings: ExportConfig, facts: Facts, files: list[Path], ggufs: list[str]
) -> str:
    """El `README.md` de la carpeta exportada, con la cabecera que lee el Hub.

    Args:
        source: el modelo.
        settings: la licencia declarada.
        facts: el corpus y la evaluación.
        files: lo que hay en la carpeta.
        ggufs: los nombres de los GGUF; el primero es el del `Modelfile`.
    """
    parts = [
        _front_matter(settings),
        f"# {source.name}\n",
        (_CHAT if source.chats else _BASE) + "\n",
        _LIMITS + "\n",
        markdown.table(["", ""], _shape_rows(source)),
        "## Cómo usarlo\n",
        _usage(source, ggufs),
        "## De qué está hecho\n",
        _corpus(facts.corpus),
        "## Medidas\n",
        _metrics(source, facts.metrics),
        "## Ficheros\n",
        markdown.table(["fichero", "tamaño"], [(f.name, size(f.stat().st_size)) for f in files]),
        "## Linaje\n",
        markdown.table(["qué", "valor"], lineage_of(source.manifest).rows()),
        "`enlace lineage` y `enlace verify`, con esta carpeta, cuentan y comprueban lo demás.\n",
    ]
    return "\n".join(parts)


def _front_matter(settings: ExportConfig) -> str:
    lines = ["language: es", "library_name: transformers", "pipeline_tag: text-generation"]
    if settings.license:
        lines.append(f"license: {settings.license}")
    return "\n".join(["---", *lines, "---", ""])


def _shape_rows(source: Source) -> list[tuple[str, str]]:
    shape = source.shape
    return [
        ("Parámetros", integer(source.model.num_parameters())),
        ("Contexto", f"{integer(shape.seq_len)} tokens"),
        ("Vocabulario", f"{integer(source.tokenizer.vocab_size)} tokens, entrenado en español"),
        ("Arquitectura", "Qwen3" if shape.qk_norm else "Llama"),
        ("Entrenado con", f"{integer(source.manifest['tokens'])} tokens"),
    ]


def _usage(source: Source, ggufs: list[str]) -> str:
    example = _EXAMPLE + (_CHAT_EXAMPLE if source.chats else _BASE_EXAMPLE)
    lines = []
    if ggufs:
        create = f"ollama create {source.name} -f {MODELFILE}\nollama run {source.name}"
        lines += [
            "Con Ollama, en esta carpeta:\n",
            _code("bash", create),
            f"Con llama.cpp: `llama-server -m {ggufs[0]}` y http://127.0.0.1:8080 en el "
            "navegador.\n",
            f"Con LM Studio: importa `{ggufs[0]}` (`lms import {ggufs[0]}`).\n",
        ]
    lines += ["Con transformers, en Python:\n", _code("python", example.rstrip())]
    lines.append(
        "El texto que se le dé debe llevar las tildes compuestas (NFC), como casi todo lo que se "
        "escribe: con letras en dos trozos entiende peor.\n"
    )
    return "\n".join(lines)


def _code(language: str, content: str) -> str:
    return f"```{language}\n{content}\n```\n"


def _corpus(corpus: Record | None) -> str:
    if corpus is None:
        return (
            "El informe del corpus no acompañaba a este modelo: pregunta a quien lo entrenó de "
            "dónde salen sus textos y con qué licencia.\n"
        )
    train, val = corpus["splits"]["train"], corpus["splits"]["val"]
    rows = [
        (name or _NO_NAME, integer(entry["documents"]), size(entry["bytes"]))
        for name, entry in corpus["licenses"].items()
    ]
    return "\n".join(
        [
            f"{counted(train['documents'], 'documento')} en español ({size(train['bytes'])}) tras "
            f"limpiar y quitar repetidos, y {counted(val['documents'], 'documento')} "
            f"({size(val['bytes'])}) que solo sirven para medirlo. Las licencias de todos:\n",
            markdown.table(["licencia", "documentos", "tamaño"], rows),
        ]
    )


def _metrics(source: Source, metrics: Record | None) -> str:
    if metrics is None:
        loss = source.manifest.get("val_loss")
        return (
            f"Pérdida de validación al entrenar: {number(loss, 4)} nats por token. "
            "La evaluación completa no acompañaba a este modelo.\n"
        )
    rows = [
        ("Pérdida (nats por token)", number(metrics["loss"], 4)),
        ("Perplejidad", number(metrics["perplexity"], 2)),
        ("Bits por byte", number(metrics["bits_per_byte"], 4)),
        ("Tokens de validación", integer(metrics["tokens"])),
    ]
    return markdown.table(["medida", "valor"], rows)
