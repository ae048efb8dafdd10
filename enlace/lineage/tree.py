"""El linaje de un checkpoint o modelo como un árbol que una persona lee, y como JSON."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from enlace.config.messages import show
from enlace.figures import integer, moment, number
from enlace.lineage.exactness import breaking, exact_until
from enlace.manifest import DvcState, GitState, Origin, ParentRecord, Segment
from enlace.train.artifact import MODEL, Artifact

_DIGITS = 12
_KINDS = {"checkpoint": "checkpoint", "model": "modelo", "export": "modelo exportado"}
_TAKEN = {"weights": "solo los pesos", "all": "todo: pesos, optimizador y paso"}


@dataclass(frozen=True)
class Node:
    """Una línea y lo que cuelga de ella."""

    text: str
    children: list["Node"] = field(default_factory=list)


def lineage_tree(artifact: Artifact) -> Node:
    """El árbol: configuración, pesos, texto, código, segmentos y padre."""
    record, history = artifact.record, artifact.history
    loss = record["evaluation"].get("val_loss") if isinstance(record["evaluation"], dict) else None
    head = (
        f"{_KINDS[artifact.kind]} {artifact.path}: run {artifact.config.run_name}, "
        f"paso {integer(artifact.step)} de {integer(artifact.config.train.steps)}, "
        f"{integer(record['tokens'])} tokens"
    )
    if loss is not None:
        head += f", pérdida de validación {number(loss, 4)}"
    origin = history.origin
    return Node(
        head,
        [
            Node(
                f"configuración: identidad {_cut(record['identity'])}, "
                f"huella {_cut(record['fingerprint'])}"
            ),
            Node(f"pesos: {MODEL} {_cut(artifact.files[MODEL])}"),
            _data(origin),
            _code(origin),
            _segments(history.segments, artifact.step),
            _parent(origin.parent),
        ],
    )


def render(node: Node) -> list[str]:
    """Las líneas del árbol, con sus ramas dibujadas."""
    lines = [node.text]
    for index, child in enumerate(node.children):
        last = index == len(node.children) - 1
        first, *rest = render(child)
        lines.append(("└─ " if last else "├─ ") + first)
        lines += [("   " if last else "│  ") + line for line in rest]
    return lines


def lineage_json(artifact: Artifact) -> dict[str, Any]:
    """Lo mismo, entero y para programas."""
    record, history = artifact.record, artifact.history
    return {
        "path": str(artifact.path),
        "kind": artifact.kind,
        "run_name": artifact.config.run_name,
        "step": artifact.step,
        "steps": artifact.config.train.steps,
        "tokens": record["tokens"],
        "identity": record["identity"],
        "fingerprint": record["fingerprint"],
        "counters": record["counters"],
        "evaluation": record["evaluation"],
        "files": artifact.files,
        "exact_until": exact_until(history.segments),
        "origin": history.origin.model_dump(mode="json"),
        "segments": [segment.model_dump(mode="json") for segment in history.segments],
    }


def _data(origin: Origin) -> Node:
    report = "sin informe" if origin.corpus_report is None else _cut(origin.corpus_report)
    return Node(
        "texto",
        [
            *_sources(origin.dvc),
            Node(f"corpus: informe {report}"),
            Node(f"tokenizador: {_cut(origin.tokenizer)}"),
            Node(f"shards: {len(origin.shards)} ficheros, huella {_cut(origin.data)}"),
        ],
    )


def _sources(dvc: DvcState) -> list[Node]:
    """El texto de partida: lo que entra en la tubería sin que otra etapa lo haga."""
    made = {path for lock in dvc.lock.values() for path in lock.outs}
    raw = {path: md5 for lock in dvc.lock.values() for path, md5 in lock.deps.items()}
    return [
        Node(f"origen: {path}, MD5 de DVC {md5}")
        for path, md5 in sorted(raw.items())
        if path not in made
    ]


def _code(origin: Origin) -> Node:
    return Node(
        f"código: {_git(origin.git)}",
        [
            Node(f"{len(origin.sources)} ficheros, huella {_cut(origin.code)}"),
            Node(f"sin comentarios ni formato: {_cut(origin.code_normalized)}"),
        ],
    )


def _git(git: GitState) -> str:
    if git.commit is None:
        return "fuera de git"
    if git.patch_name is None:
        return f"commit {_cut(git.commit)}, sin cambios"
    return f"commit {_cut(git.commit)} con cambios sin guardar ({git.patch_name})"


def _segments(segments: Sequence[Segment], step: int) -> Node:
    until = exact_until(segments)
    promise = "repetible bit a bit entero" if until is None else f"repetible hasta el paso {until}"
    ends = [*(segment.from_step for segment in segments[1:]), step]
    return Node(
        f"segmentos: {len(segments)}, {promise}",
        [_segment(segment, end) for segment, end in zip(segments, ends, strict=True)],
    )


def _segment(segment: Segment, end: int) -> Node:
    torch = segment.versions.get("torch", "?")
    text = (
        f"pasos {integer(segment.from_step)} a {integer(end)}: {segment.device}, "
        f"{segment.threads} hilos, torch {torch}, desde {moment(segment.started)}"
    )
    lines = []
    if segment.resumed_from is not None:
        point = segment.resumed_from
        lines.append(Node(f"sigue desde el paso {point.step} (pesos {_cut(point.model_sha256)})"))
    important = breaking(segment)
    for key, values in segment.differences.items():
        note = "; desde aquí no se promete la igualdad bit a bit" if key in important else ""
        lines.append(Node(f"cambia {key}: {' → '.join(_short(v) for v in values)}{note}"))
    for rewind in segment.rewinds:
        lines.append(
            Node(
                f"vuelta atrás del paso {rewind.at_step} al {rewind.to_step} ({rewind.reason}), "
                f"sin los lotes {', '.join(map(str, rewind.skipped_batches))}"
            )
        )
    return Node(text, lines)


def _parent(parent: ParentRecord | None) -> Node:
    if parent is None:
        return Node("padre: ninguno, empieza de cero")
    kind = _KINDS[parent.kind]
    return Node(
        f"padre: {kind} de {parent.run_name}, paso {integer(parent.step)}, "
        f"{integer(parent.tokens)} tokens; se toma {_TAKEN[parent.state]}",
        [
            Node(f"contenido {_cut(parent.sha256)}, pesos {_cut(parent.model_sha256)}"),
            Node(f"datos {_cut(parent.data)}, tokenizador {_cut(parent.tokenizer)}"),
            Node(f"código: {_git(parent.git)}"),
            _parent(parent.parent),
        ],
    )


def _cut(digest: str) -> str:
    return digest if len(digest) <= _DIGITS else f"{digest[:_DIGITS]}…"


def _short(value: object) -> str:
    return _cut(value) if isinstance(value, str) and len(value) == len("0" * 64) else show(value)
