"""El informe de evaluación: cifras para DVC y una página que se lee con gusto.

`metrics.json` lo lee `dvc metrics`; `samples.md` y `report.md` se leen en cualquier forja de git;
`report.html` es un solo fichero sin red. Los cuatro dicen de qué entrenamiento salen.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from enlace.config.schema import EvaluationConfig
from enlace.evaluation.loss import LossFigures
from enlace.evaluation.samples import Sample
from enlace.figures import integer, number, percent
from enlace.files import write_json, write_text
from enlace.reports import html, markdown
from enlace.reports.curve import Curve, curve_svg

_SHOWN_HASH = 12
_BITS_IN_A_BYTE = 8
_CURSOR = "▸"


@dataclass(frozen=True)
class Lineage:
    """De dónde sale un modelo.

    Attributes:
        run_name: el nombre del run.
        identity: SHA-256 de lo que decide el resultado (`Config.identity`).
        data: huella de los shards.
        step: paso de optimizador de los pesos.
        commit: commit de git del código, o `None` fuera de un repositorio.
        modified: si el código tenía cambios que ese commit no recoge.
        device: dónde se entrenó, en palabras.
    """

    run_name: str
    identity: str
    data: str
    step: int
    commit: str | None
    modified: bool
    device: str

    def line(self) -> str:
        """El linaje en una línea, con los resúmenes recortados."""
        return (
            f"{self.run_name} · identidad {self.identity[:_SHOWN_HASH]} · "
            f"datos {self.data[:_SHOWN_HASH]} · paso {integer(self.step)} · "
            f"{self._code(_SHOWN_HASH)} · {self.device}"
        )

    def rows(self) -> list[tuple[str, str]]:
        """El linaje completo, en pares (nombre, valor)."""
        return [
            ("Run", self.run_name),
            ("Identidad", self.identity),
            ("Datos", self.data),
            ("Paso", integer(self.step)),
            ("Código", self._code(None)),
            ("Entrenado en", self.device),
        ]

    def _code(self, digits: int | None) -> str:
        if self.commit is None:
            return "código fuera de git"
        return f"commit {self.commit[:digits]}" + (" con cambios" if self.modified else "")


def lineage_of(manifest: Mapping[str, Any]) -> Lineage:
    """El linaje que cuenta el manifiesto de un modelo exportado (`read_manifest`)."""
    git = manifest["origin"].get("git") or {}
    return Lineage(
        run_name=manifest["run_name"],
        identity=manifest["identity"],
        data=manifest["data"],
        step=manifest["step"],
        commit=git.get("commit"),
        modified=git.get("diff_sha256") is not None,
        device=manifest["segments"][-1]["device"],
    )


@dataclass(frozen=True)
class EvaluationReport:
    """Todo lo que cuenta el informe.

    Attributes:
        figures: pérdida, perplejidad y bits por byte.
        samples: las continuaciones.
        evaluation: con qué ajustes se generaron.
        vocab_size: V; ln V es la pérdida de quien no sabe nada.
        lineage: de dónde sale el modelo.
        curve: la curva de entrenamiento, o `None` si no se tiene.
    """

    figures: LossFigures
    samples: Sequence[Sample]
    evaluation: EvaluationConfig
    vocab_size: int
    lineage: Lineage
    curve: Curve | None = None


def write_evaluation_report(report: EvaluationReport, folder: Path) -> None:
    """Escribe `metrics.json`, `samples.md`, `report.md` y `report.html` en `folder`."""
    write_json(folder / "metrics.json", report.figures.as_json())
    write_text(folder / "samples.md", samples_markdown(report))
    write_text(folder / "report.md", report_markdown(report))
    write_text(folder / "report.html", report_html(report))


def explain(figures: LossFigures, vocab_size: int) -> str:
    """Qué quieren decir las cifras, en dos o tres frases."""
    pieces = [
        f"Ante cada token, el modelo duda como si eligiera entre {number(figures.perplexity, 1)} "
        f"opciones igual de probables; sin saber nada dudaría entre {integer(vocab_size)}."
    ]
    if figures.bits_per_byte is not None:
        pieces.append(
            "Usado como compresor, dejaría el texto de validación en el "
            f"{percent(figures.bits_per_byte / _BITS_IN_A_BYTE)} de su tamaño."
        )
    pieces.append(
        f"La pérdida de partida, ln {integer(vocab_size)}, es {number(math.log(vocab_size), 3)}."
    )
    return " ".join(pieces)


def samples_markdown(report: EvaluationReport) -> str:
    """Las muestras en Markdown; «▸» separa el principio de lo que escribe el modelo."""
    parts = [f"# Muestras de {report.lineage.run_name}\n", _settings(report.evaluation) + "\n"]
    for index, sample in enumerate(report.samples, start=1):
        parts.append(f"## Muestra {index}\n")
        parts.append(markdown.code_block(f"{sample.prompt}{_CURSOR}{sample.continuation}"))
        parts.append(f"{_ending(sample)}\n")
    return "\n".join([*parts, f"{report.lineage.line()}\n"])


def report_markdown(report: EvaluationReport) -> str:
    """El informe sin figuras, para leer en una terminal o en una forja de git."""
    parts = [
        f"# Evaluación de {report.lineage.run_name}\n",
        markdown.table(["Medida", "Valor"], _figure_rows(report.figures)),
        explain(report.figures, report.vocab_size) + "\n",
        "Las continuaciones están en [samples.md](samples.md).\n",
        "## Linaje\n",
        markdown.table(["Qué", "Valor"], report.lineage.rows()),
    ]
    return "\n".join(parts)


def report_html(report: EvaluationReport) -> str:
    """El informe como una sola página HTML, sin red."""
    figures = report.figures
    headline = html.cards(
        [
            html.Card(number(figures.bits_per_byte, 3), "bits por byte"),
            html.Card(number(figures.perplexity, 2), "perplejidad"),
            html.Card(number(figures.loss, 4), "pérdida (nats por token)"),
            html.Card(integer(figures.tokens), "tokens de validación"),
        ]
    )
    sections = [("", html.join([headline, _paragraph(explain(figures, report.vocab_size))]))]
    if report.curve is not None and not report.curve.empty:
        sections.append(("Cómo aprendió", _curve_figure(report.curve)))
    sections.append(("Lo que escribe", _samples_html(report)))
    sections.append(("Las cifras", html.table(_figure_rows(figures))))
    sections.append(("De dónde sale", html.table(report.lineage.rows())))
    return html.page(
        f"Evaluación de {report.lineage.run_name}",
        f"El modelo tras {integer(report.lineage.step)} pasos, medido con texto que no ha visto.",
        sections,
        report.lineage.line(),
    )


def _figure_rows(figures: LossFigures) -> list[tuple[str, str]]:
    return [
        ("Pérdida (nats por token)", number(figures.loss, 4)),
        ("Perplejidad", number(figures.perplexity, 2)),
        ("Bits por byte", number(figures.bits_per_byte, 4)),
        ("Tokens de validación", integer(figures.tokens)),
        ("Bytes de validación", integer(figures.raw_bytes)),
    ]


def _curve_figure(curve: Curve) -> html.Html:
    return html.svg_figure(
        curve_svg(curve),
        "Curva de la pérdida de entrenamiento y de validación según el paso",
        "Pérdida en cada paso; la de validación se mide con texto apartado.",
    )


def _samples_html(report: EvaluationReport) -> html.Html:
    quotes = [
        html.join(
            [
                html.element(
                    "blockquote", html.element("strong", sample.prompt), sample.continuation
                ),
                html.element("p", _ending(sample), css="note"),
            ]
        )
        for sample in report.samples
    ]
    return html.join([_paragraph(_settings(report.evaluation)), *quotes])


def _paragraph(content: str) -> html.Html:
    return html.element("p", content)


def _settings(evaluation: EvaluationConfig) -> str:
    greedy = evaluation.temperature == 0
    temperature = "0 (siempre el token más probable)" if greedy else number(evaluation.temperature)
    candidates = "todos los tokens" if evaluation.top_k == 0 else f"{evaluation.top_k} tokens"
    return (
        f"El principio lo ponemos nosotros; el resto, el modelo. Temperatura {temperature}, "
        f"candidatos: {candidates}, semilla {evaluation.seed}."
    )


def _ending(sample: Sample) -> str:
    tokens = f"{integer(sample.new_tokens)} tokens"
    if sample.finished:
        return f"{tokens}; el modelo dio el texto por terminado."
    return f"{tokens}; se cortó al llegar al máximo pedido."
