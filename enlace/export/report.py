"""El informe de una exportación: qué ficheros hay y cuánto se parecen al modelo."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from enlace.figures import integer, percent, scientific, size
from enlace.files import write_json, write_text
from enlace.reports import markdown

REPORT_VERSION = 1
Report = Mapping[str, Any]
_HASH_DIGITS = 12


def write_export_report(report: Report, path: Path) -> None:
    """Escribe el informe en `path` (un `.json`) y, a su lado, en `.md`."""
    write_json(path, report)
    write_text(path.with_suffix(".md"), export_markdown(report))


def export_markdown(report: Report) -> str:
    """El informe para leer en una terminal o en una forja de git."""
    parts = [
        f"# Exportación de {report['run_name']}\n",
        f"{integer(report['parameters'])} parámetros, paso {integer(report['step'])}; "
        f"arquitectura {report['architecture']}; "
        + ("conversa.\n" if report["chats"] else "completa texto; todavía no conversa.\n"),
        "## Es el mismo modelo\n",
        "Comparado con ENLACE en fp32. La mayor diferencia admitida es "
        f"{scientific(report['tolerance'])}.\n",
        markdown.table(
            ["motor", "textos", "posiciones", "mayor diferencia", "tokens iguales", "empates"],
            [_equality_row(name, equality) for name, equality in report["equality"].items()],
        ),
        "## Ficheros\n",
        markdown.table(
            ["fichero", "tamaño", "SHA-256"],
            [
                (name, size(entry["bytes"]), entry["sha256"][:_HASH_DIGITS])
                for name, entry in report["files"].items()
            ],
        ),
    ]
    if report["formats"]:
        parts += [
            "## Lo que cambia cada formato\n",
            "Diferencias entre los logaritmos de probabilidad de los mejores candidatos, tras los "
            "textos difíciles, con los ajustes corrientes de llama.cpp.\n",
            markdown.table(
                ["formato", "mayor", "media", "mismo mejor candidato"],
                [
                    (
                        name,
                        scientific(entry["logit_difference"]),
                        scientific(entry["mean_difference"]),
                        percent(entry["same_best"]),
                    )
                    for name, entry in report["formats"].items()
                ],
            ),
        ]
    versions = ", ".join(f"{name} {version}" for name, version in report["versions"].items())
    return "\n".join([*parts, f"Hecho y comprobado con {versions}.\n"])


def _equality_row(name: str, equality: Report) -> tuple[str, ...]:
    return (
        name,
        integer(equality["texts"]),
        integer(equality["positions"]),
        scientific(equality["logit_difference"]),
        integer(equality["greedy_tokens"]),
        integer(equality["ties"]),
    )
