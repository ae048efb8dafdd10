"""El informe del corpus: qué entró, qué salió, por qué, y de qué conviene enterarse.

Es un diccionario de bytes estables (sin fechas, tiempos ni rutas absolutas): lo dibuja
`enlace.reports.corpus`.
"""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from enlace.config.schema import DataConfig
from enlace.data.duplicates.resolve import CONTAINED, EXACT, NEAR, Resolution, similarity
from enlace.data.preparation.batches import Found
from enlace.data.preparation.evaluation_texts import EvaluationTexts
from enlace.data.preparation.fates import Fates
from enlace.data.preparation.staging import Labels, Staging
from enlace.data.preparation.tallies import MAX_EXAMPLES, Flow, Tallies, Tally
from enlace.data.preparation.warnings import warnings_of
from enlace.data.rules.table import RuleTable
from enlace.figures import percent

REPORT_VERSION = 2
LENGTH_EDGES = (0, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000, 1_000_000)
"""Caracteres que separan las barras del histograma de longitudes."""
BYTES_PER_TOKEN = 4.5
"""Bytes de texto español por token de un BPE de 32 768: la cuenta aproximada del informe."""

_READER_RULES = ("bad_bytes", "bad_record", "too_long", "unknown_format")
_LATE_RULES = ("contamination", "duplicate", "near_duplicate", "contained", "weight")


class Outcome(NamedTuple):
    """Todo lo que la preparación sabe al acabar."""

    data: DataConfig
    tallies: Tallies
    found: list[Found]
    evaluation: EvaluationTexts | None
    staging: Staging
    resolution: Resolution
    fates: Fates

    @property
    def examples(self) -> frozenset[int]:
        """Los documentos cuya procedencia cita el informe."""
        numbers = [number for _, numbers in self.late() for number in _first(numbers)]
        clusters = [number for cluster in self.clusters() for number in cluster]
        keepers = self.resolution.keepers[numbers].tolist()
        return frozenset((*numbers, *clusters, *keepers))

    def late(self) -> tuple[tuple[str, npt.NDArray[np.int64]], ...]:
        """Lo que se queda fuera después de limpiar: regla y documentos (en su orden)."""
        verdicts = self.resolution.verdicts
        return (
            ("duplicate", np.flatnonzero(verdicts == EXACT)),
            ("near_duplicate", np.flatnonzero(verdicts == NEAR)),
            ("contained", np.flatnonzero(verdicts == CONTAINED)),
            ("weight", np.flatnonzero(self.fates.unweighted)),
        )

    def clusters(self) -> list[list[int]]:
        """Los tres grupos de casi iguales más numerosos: el que se queda y hasta tres más."""
        near = np.flatnonzero(self.resolution.verdicts == NEAR)
        keepers, counts = np.unique(self.resolution.keepers[near], return_counts=True)
        largest = np.lexsort((keepers, -counts))[:MAX_EXAMPLES]
        return [
            [keeper, *near[self.resolution.keepers[near] == keeper][:MAX_EXAMPLES].tolist()]
            for keeper in keepers[largest].tolist()
        ]


def corpus_report(outcome: Outcome, cited: Mapping[int, bytes]) -> dict[str, Any]:
    """El informe; `cited` son las líneas de los documentos de `outcome.examples`."""
    staging, fates = outcome.staging, outcome.fates
    sources = {number: json.loads(line + b"}")["source"] for number, line in cited.items()}
    rules = _count_late(outcome, sources)
    kept = fates.copies > 0
    tallies = outcome.tallies
    report = {
        "version": REPORT_VERSION,
        "format": outcome.data.format,
        "read": {
            "documents": sum(flow.documents for flow in tallies.origins.values()),
            "bytes": sum(flow.bytes for flow in tallies.origins.values()),
        },
        "splits": {
            "train": _split(staging, fates, kept & ~fates.validation),
            "val": _split(staging, fates, kept & fates.validation),
        },
        **_rules(rules, outcome.data),
        "sources": _flows(tallies.origins, staging, "origins", staging.origins, fates),
        "genres": _flows(tallies.genres, staging, "genres", staging.genres, fates),
        "licenses": _licenses(staging, kept),
        "lengths": _lengths(staging, kept),
        "languages": _languages(tallies),
        "duplicates": _duplicates(outcome, sources),
        "contamination": _contamination(outcome),
        "bytes_per_token": BYTES_PER_TOKEN,
    }
    return report | {"warnings": warnings_of(report, outcome.data)}


def _count_late(outcome: Outcome, sources: Mapping[int, str]) -> dict[tuple[str, str], Tally]:
    """Las cuentas de las reglas, con lo que se decidió después de limpiar."""
    rules = dict(outcome.tallies.rules)
    sizes = outcome.staging.column("sizes")
    for rule, numbers in outcome.late():
        tally = Tally()
        for number in _first(numbers):
            tally.add(0, _late_example(rule, number, outcome, sources))
        tally.documents, tally.bytes = len(numbers), int(sizes[numbers].sum())
        rules[rule, "dropped"] = tally
        for column, labels, flows in (
            ("origins", outcome.staging.origins, outcome.tallies.origins),
            ("genres", outcome.staging.genres, outcome.tallies.genres),
        ):
            counts = np.bincount(outcome.staging.column(column)[numbers], minlength=1)
            for label in np.flatnonzero(counts).tolist():
                flow = flows.setdefault(labels.names[label], Flow())
                flow.dropped[rule] += int(counts[label])
    return rules


def _late_example(rule: str, number: int, outcome: Outcome, sources: Mapping[int, str]) -> str:
    source = sources[number]
    if rule == "weight":
        return f"{source}: fuera por el peso de su fuente"
    keeper = int(outcome.resolution.keepers[number])
    if rule == "duplicate":
        return f"{source}: igual que {sources[keeper]}"
    if rule == "contained":
        return f"{source}: su texto ya está en otros, sobre todo en {sources[keeper]}"
    pair = (np.array([number]), np.array([keeper]))
    alike = float(similarity(outcome.staging.fingerprints().signatures, *pair)[0])
    return f"{source}: se parece a {sources[keeper]} ({percent(alike, 0)})"


def _rules(rules: Mapping[tuple[str, str], Tally], data: DataConfig) -> dict[str, Any]:
    """Una fila por regla encendida, aunque no haya hecho nada; las que nadie declara, detrás."""
    names: list[tuple[str, str]] = [*RuleTable(data).names]
    names += [(name, "dropped") for name in (*_READER_RULES, *_LATE_RULES)]
    names += sorted(set(rules) - set(names))
    return {
        kind: {
            name: rules.get((name, kind), Tally()).as_dict()
            for name, named in names
            if named == kind
        }
        for kind in ("changed", "cut", "dropped")
    }


def _split(staging: Staging, fates: Fates, chosen: npt.NDArray[np.bool_]) -> dict[str, int]:
    sizes = staging.column("sizes")[chosen].astype(np.int64)
    copies = fates.copies[chosen]
    return {
        "documents": len(sizes),
        "characters": int(staging.column("characters")[chosen].sum()),
        "bytes": int(sizes.sum()),
        "epoch_documents": int(copies.sum()),
        "epoch_bytes": int((sizes * copies).sum()),
    }


def _flows(
    flows: Mapping[str, Flow], staging: Staging, column: str, labels: Labels, fates: Fates
) -> dict[str, Any]:
    """De cada origen o género: lo que entra, lo que queda, lo que se ve en una época y por qué."""
    numbers = staging.column(column)
    sizes = staging.column("sizes").astype(np.int64)
    table = {}
    for name, flow in sorted(flows.items()):
        chosen = np.zeros(len(numbers), bool)
        if name in labels.names:
            chosen = (numbers == labels.names.index(name)) & (fates.copies > 0)
        table[name] = {
            "read": {"documents": flow.documents, "bytes": flow.bytes},
            "kept": {"documents": int(chosen.sum()), "bytes": int(sizes[chosen].sum())},
            "epoch_bytes": int((sizes * fates.copies)[chosen].sum()),
            "dropped": dict(sorted(flow.dropped.items())),
        }
    return table


def _licenses(staging: Staging, kept: npt.NDArray[np.bool_]) -> dict[str, Any]:
    numbers, sizes = staging.column("licenses"), staging.column("sizes")
    table = {}
    for name in sorted(staging.licenses.names):
        chosen = kept & (numbers == staging.licenses.names.index(name))
        if chosen.any():
            table[name] = {"documents": int(chosen.sum()), "bytes": int(sizes[chosen].sum())}
    return table


def _lengths(staging: Staging, kept: npt.NDArray[np.bool_]) -> list[dict[str, int | None]]:
    characters = staging.column("characters")[kept].astype(np.int64)
    sizes = staging.column("sizes")[kept].astype(np.int64)
    bins = np.digitize(characters, LENGTH_EDGES) - 1
    documents = np.bincount(bins, minlength=len(LENGTH_EDGES))
    return [
        {
            "from": edge,
            "to": LENGTH_EDGES[number + 1] if number + 1 < len(LENGTH_EDGES) else None,
            "documents": int(documents[number]),
            "bytes": int(sizes[bins == number].sum()),
        }
        for number, edge in enumerate(LENGTH_EDGES)
    ]


def _languages(tallies: Tallies) -> dict[str, Any]:
    return {
        language: {
            "read": {"paragraphs": row[0], "bytes": row[1]},
            "kept": {"paragraphs": row[2], "bytes": row[3]},
        }
        for language, row in sorted(tallies.languages.items(), key=lambda item: -item[1][1])
    }


def _duplicates(outcome: Outcome, sources: Mapping[int, str]) -> dict[str, Any]:
    verdicts, keepers = outcome.resolution.verdicts, outcome.resolution.keepers
    near = verdicts == NEAR
    counts = np.unique(keepers[near], return_counts=True)[1]
    deciders, kept = outcome.resolution.deciders, outcome.fates.copies > 0
    together = np.bincount(deciders[kept], minlength=len(verdicts))
    return {
        "exact": int((verdicts == EXACT).sum()),
        "near": int(near.sum()),
        "contained": int((verdicts == CONTAINED).sum()),
        "clusters": len(counts),
        "largest": int(counts.max()) + 1 if len(counts) else 0,
        "unsplit": int(together[together > 1].sum()),
        "examples": [[sources[number] for number in cluster] for cluster in outcome.clusters()],
    }


def _contamination(outcome: Outcome) -> dict[str, Any]:
    evaluation = outcome.evaluation
    if evaluation is None:
        return {"action": outcome.data.contamination.action}
    texts = {found.hit.text for found in outcome.found}
    files = dict.fromkeys(evaluation.files, 0)
    for number in texts:
        source = evaluation.texts[number].source
        files[source[: max(source.rfind(":"), source.rfind("#"))]] += 1
    return {
        "action": outcome.data.contamination.action,
        "texts": len(evaluation.texts),
        "too_short": evaluation.too_short,
        "found": len(texts),
        "documents": len({found.source for found in outcome.found}),
        "files": files,
        "examples": [
            {
                "document": found.source,
                "text": evaluation.texts[found.hit.text].source,
                "start": evaluation.texts[found.hit.text].start,
                "overlap": round(found.hit.overlap, 3),
            }
            for found in outcome.found[:MAX_EXAMPLES]
        ],
    }


def _first(numbers: npt.NDArray[np.int64]) -> list[int]:
    first: list[int] = numbers[:MAX_EXAMPLES].tolist()
    return first
