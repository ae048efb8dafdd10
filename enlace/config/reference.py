"""La página `docs/configuration.md`, generada del esquema: `python -m enlace.config.reference`.

La página nunca se edita a mano: una prueba compara la que está en git con la que sale de aquí.
"""

import sys
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from enlace.config.corpus import MIN_SIGNATURE_VALUES
from enlace.config.fields import LARGEST_INT, Section
from enlace.config.schema import Config

RULES = (
    "`model.d_model` es divisible entre `model.n_head`, y el cociente es par (RoPE gira pares).",
    "`model.n_head` es divisible entre `model.n_kv_head`.",
    "`train.tokens_per_step` es múltiplo de `model.seq_len`.",
    "`hardware.micro_batch` divide las secuencias de cada paso: "
    "`train.tokens_per_step` / `model.seq_len`.",
    "`train.warmup` y `train.decay`, ya en pasos, caben juntos en `train.steps`.",
    "Con `hardware.device: cpu`, `hardware.sdpa_backend` es `flash` o `math`.",
    "Con `hardware.device: cuda` y `data.document_mask: block`, `hardware.sdpa_backend` es "
    "`mem_efficient`.",
    "Con `data.tokenizer.kind: byte`, `model.vocab_size` es 256 y `data.format` es `text`.",
    "Con `data.tokenizer.kind: bpe`, `model.vocab_size` está entre 273 y 65536.",
    "`hardware.preflight.warn_activation_bits` no es menor que "
    "`hardware.preflight.min_activation_bits`.",
    "`hardware.preflight.warn_skip_rate` no es mayor que `hardware.preflight.max_skip_rate`.",
    "En `data.shard_tokens` cabe una ventana: `model.seq_len` + 1 tokens.",
    "`data.evaluation.max_new_tokens` deja sitio en `model.seq_len` a un token del principio (con "
    "bytes, al principio más largo entero).",
    f"`data.dedup.bands` por `data.dedup.rows` son {MIN_SIGNATURE_VALUES} valores de firma o más.",
    "`train.fp16_init_scale` no es menor que `train.fp16_min_scale`.",
    "`train.max_spikes` no pasa de la mitad de `train.spike_window`, si no es 0.",
)
"""Reglas que cruzan claves; `tests/config/test_reference.py` tiene un contraejemplo de cada una."""

_HEAD = """\
# Configuración

<!-- Página generada: `python -m enlace.config.reference > docs/configuration.md`. -->

Cada run reúne cinco secciones y un nombre. Las capas de `configs/` ponen los valores,
`configs/runs/` elige una capa por sección y puede cambiar claves sueltas en `overrides`, y
`make params` escribe el resultado en `params.yaml`, que es lo único que leen las etapas. Manda el
último de esta lista: capa, fichero de run, `params.yaml` (editado a mano o con
`dvc exp run -S clave=valor`).

La última columna dice qué pasa si la clave cambia a mitad de un entrenamiento:

- **identidad**: decide el resultado. Con otro valor es otro entrenamiento, con otra carpeta en
  `runs/`; el anterior se conserva.
- **operativa**: no decide el resultado. El mismo entrenamiento sigue donde iba.

Una clave desconocida, repetida o con un valor imposible es un error que nombra la clave, el valor,
el fichero y el remedio. La estructura y la precedencia se explican en
[architecture.md](architecture.md#configuración).
"""

_NAMES = {
    "hardware": "Hardware",
    "model": "Modelo",
    "train": "Entrenamiento",
    "data": "Datos",
    "export": "Exportar",
}


class Key(NamedTuple):
    """Una clave del esquema: `path` con puntos, y si cambiarla conserva la identidad."""

    path: str
    meaning: str
    values: str
    operational: bool


def render() -> str:
    """La página entera, en Markdown y con salto final."""
    top = [key for key in keys(Config) if "." not in key.path]
    parts = [_HEAD, "## Run\n", _table(top)]
    for name, title in _NAMES.items():
        section = Config.model_fields[name].annotation
        assert isinstance(section, type)
        inside = [key for key in keys(Config) if key.path.startswith(f"{name}.")]
        parts += [f"## {title}: `{name}`\n", f"{section.__doc__}\n", _table(inside)]
    parts += ["## Reglas entre claves\n", "".join(f"- {rule}\n" for rule in RULES)]
    return "\n".join(parts)


def keys(section: type[Section], prefix: str = "", operational: bool = False) -> Iterator[Key]:
    """Las claves de `section` en el orden del esquema; una sección anidada se recorre entera."""
    schema = section.model_json_schema()["properties"]
    for name, field in section.model_fields.items():
        loose = operational or name in section.operational
        nested = field.annotation
        if isinstance(nested, type) and issubclass(nested, Section):
            yield from keys(nested, f"{prefix}{name}.", loose)
            continue
        values = _values(schema[name])
        if not field.is_required():
            values += f"; si falta, {_number(field.default)}"
        yield Key(f"{prefix}{name}", field.description or name, values, loose)


def _table(rows: list[Key]) -> str:
    lines = ["| clave | significado | valores | al cambiarla |", "|---|---|---|---|"]
    for row in rows:
        kind = "operativa" if row.operational else "identidad"
        lines.append(f"| `{row.path}` | {row.meaning} | {row.values} | {kind} |")
    return "\n".join(lines) + "\n"


def _values(schema: Mapping[str, Any]) -> str:
    """El tipo y los límites de un campo, a partir de su JSON Schema."""
    if "anyOf" in schema:
        return " o ".join(_values(option) for option in schema["anyOf"])
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    kind = schema["type"]
    if kind == "array":
        noun = "textos" if schema["items"].get("type") == "string" else "fuentes"
        return f"lista de {noun}" + (", con uno al menos" if schema.get("minItems") else "")
    if kind == "boolean":
        return "`true` o `false`"
    if kind == "string":
        return "minúsculas, cifras, puntos y guiones" if "pattern" in schema else "texto"
    noun = {"integer": "entero", "number": "número"}[kind]
    return " ".join([noun, *_bounds(schema)])


def _bounds(schema: Mapping[str, Any]) -> Iterator[str]:
    signs = {"exclusiveMinimum": ">", "minimum": "≥", "exclusiveMaximum": "<", "maximum": "≤"}
    found = [
        f"{sign} {_number(schema[key])}"
        for key, sign in signs.items()
        if key in schema and schema[key] != LARGEST_INT
    ]
    if found:
        yield " y ".join(found)


def _number(value: Any) -> str:
    """Como se escribe en YAML; un flotante entero, sin decimales superfluos."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.6g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    sys.stdout.write(render())
