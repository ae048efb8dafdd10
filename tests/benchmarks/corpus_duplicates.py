"""Qué acierta la búsqueda de repetidos, frente a cuentas exactas de n-gramas.

    python -m tests.benchmarks.corpus_duplicates PAREJAS.tsv CORPUS.jsonl.gz…
        [--run configs/runs/demo.yaml]

`PAREJAS.tsv` (con cabecera) dice en cada línea el Jaccard de dos ediciones, el código de la obra en
el corpus, que está en trozos de id `CÓDIGO-número`, y el fichero de la otra edición, desde la
carpeta que está encima de la de la tabla. Todo se firma y se decide con el código de la etapa del
corpus; los documentos van sin limpiar. Dos veces da las mismas cifras.
"""

import argparse
import csv
import gzip
import json
import sys
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from enlace.config.corpus import DedupConfig
from enlace.config.load import load_config
from enlace.data.documents import Document
from enlace.data.duplicates.resolve import KEPT, NEAR, Fingerprints, Resolution, resolve, similarity
from enlace.data.duplicates.shingles import Hashes, ngram_hashes, word_hashes
from enlace.data.duplicates.signatures import Signed, sign
from enlace.data.identity import document_id
from tests.benchmarks.exact_overlap import common_grams, containment, jaccard, pieces_like

_BANDS = ((14, 8), (20, 6), (25, 5), (42, 3))
_THRESHOLDS = (0.5, 0.7)
_EDITED = 2000
_EDITED_THRESHOLDS = (0.5, 0.7, 0.8)
_MARGIN = 0.05
_MOST_CHANGED = 0.2
_RANGES = ((0.5, 0.6), (0.6, 0.7), (0.7, 1.0))
_MEGABYTE = 1_000_000


class Texts(NamedTuple):
    """N documentos: su nombre, su id, sus bytes y los resúmenes de sus palabras."""

    names: list[str]
    ids: list[tuple[int, int]]
    sizes: list[int]
    words: list[Hashes]

    def add(self, name: str, text: str) -> None:
        """Uno más."""
        digest = document_id(Document(text, name))
        self.names.append(name)
        self.ids.append((int(digest[:16], 16), int(digest[16:], 16)))
        self.sizes.append(len(text.encode("utf-8")))
        self.words.append(word_hashes(text))


class Work(NamedTuple):
    """Una obra en dos ediciones: su código y la posición de la suelta en los textos."""

    code: str
    edition: int


def main() -> None:
    """Lee los argumentos y escribe las tablas."""
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n", 1)[0])
    parser.add_argument("pairs", type=Path, help="tabla de parejas")
    parser.add_argument("corpus", nargs="+", type=Path, help="jsonl.gz con «id» y «text»")
    parser.add_argument("--run", type=Path, default=Path("configs/runs/demo.yaml"))
    options = parser.parse_args()
    config = load_config(options.run).data.dedup
    texts = Texts([], [], [], [])
    for path in options.corpus:
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                record = json.loads(line)
                texts.add(record["id"], record["text"])
    pieces = len(texts.names)
    works = _read_works(options.pairs, texts)
    _say(f"{pieces} documentos y {len(works)} ediciones, {sum(texts.sizes) / _MEGABYTE:.0f} MB")
    _whole_works(texts, works, config)
    _contained(texts, works, config)
    _bands(texts, works, config)
    _edits(texts.words[:: max(1, pieces // _EDITED)][:_EDITED], config)


def _read_works(path: Path, texts: Texts) -> list[Work]:
    works = []
    with path.open(encoding="utf-8", newline="") as stream:
        for _, original, copy in list(csv.reader(stream, delimiter="\t"))[1:]:
            work = Work(Path(original).stem, len(texts.names))
            if not _members(texts, work):
                _say(f"{copy}: la obra {work.code} no está en el corpus; no se mide")
                continue
            works.append(work)
            texts.add(copy, (path.parent.parent / copy).read_text(encoding="utf-8"))
    return works


def _members(texts: Texts, work: Work) -> list[int]:
    return [i for i, name in enumerate(texts.names) if name.startswith(f"{work.code}-")]


def _grams(words: list[Hashes], config: DedupConfig) -> list[Hashes]:
    return [np.unique(ngram_hashes(each, config.ngram)) for each in words]


def _decide(
    signed: Signed, ids: list[tuple[int, int]], sizes: list[int], config: DedupConfig
) -> Resolution:
    count = len(ids)
    return resolve(
        Fingerprints(
            np.array(ids, np.uint64),
            np.zeros(count, np.uint16),
            np.array(sizes, np.uint64),
            signed.signatures,
            lambda band: signed.keys[band],
            signed.passages,
        ),
        config,
    )


def _whole_works(texts: Texts, works: list[Work], config: DedupConfig) -> None:
    """Cada obra entera frente a su otra edición, y qué se decide de las ocho juntas."""
    whole = Texts([], [], [], [])
    for work in works:
        members = _members(texts, work)
        whole.words.append(np.concatenate([texts.words[i] for i in members]))
        whole.sizes.append(sum(texts.sizes[i] for i in members))
        whole.ids.append((texts.ids[members[0]][1], texts.ids[members[0]][0]))
    for work in works:
        whole.words.append(texts.words[work.edition])
        whole.sizes.append(texts.sizes[work.edition])
        whole.ids.append(texts.ids[work.edition])
    signed = sign(whole.words, config)
    decided = _decide(signed, whole.ids, whole.sizes, config)
    grams = _grams(whole.words, config)
    left = np.arange(len(works))
    estimated = similarity(signed.signatures, left, left + len(works))
    _say(f"\n| obra | Jaccard exacto, {config.ngram}-gramas | estimado | decisión |")
    _say("|---|--:|--:|---|")
    names = ("se quedan las dos", "iguales", "casi iguales", "contenida")
    for index, work in enumerate(works):
        exact = jaccard(grams[index], grams[index + len(works)])
        verdict = max(decided.verdicts[index], decided.verdicts[index + len(works)])
        title = Path(texts.names[work.edition]).stem
        _say(f"| {title} | {exact:.3f} | {estimated[index]:.3f} | {names[verdict]} |")


def _contained(texts: Texts, works: list[Work], config: DedupConfig) -> None:
    """Los trozos de cada obra con la otra edición entera delante, frente a la cuenta exacta."""
    decided = _decide(sign(texts.words, config), texts.ids, texts.sizes, config)
    gone = decided.verdicts != KEPT
    grams = _grams(texts.words, config)
    share = config.contained_share
    _say(f"\n| obra | trozos | contenidos ({share} o más) | quitados | de ellos, contenidos |")
    _say("|---|--:|--:|--:|--:|")
    totals = np.zeros(4, int)
    known = set[int]()
    for work in works:
        members = _members(texts, work)
        known |= {*members, work.edition}
        held = [
            containment(grams[i], grams[work.edition]) >= config.contained_share for i in members
        ]
        removed = gone[members]
        row = np.array([len(members), sum(held), removed.sum(), (removed & held).sum()])
        totals += row
        _say(f"| {Path(texts.names[work.edition]).stem} | {' | '.join(map(str, row))} |")
    _say(f"| total | {' | '.join(map(str, totals))} |")
    recall, precision = totals[3] / totals[1], totals[3] / totals[2]
    _say(f"\nRecall {recall:.3f}, precisión {precision:.3f}. Los demás quitados:\n")
    _say("| quitado | por | Jaccard exacto con él | contenido en él | en todos los que se quedan |")
    _say("|---|---|--:|--:|--:|")
    kept = np.unique(np.concatenate([grams[i] for i in np.flatnonzero(~gone)]))
    for index in sorted(set(np.flatnonzero(gone).tolist()) - known):
        keeper = grams[decided.keepers[index]]
        cause = "casi igual" if decided.verdicts[index] == NEAR else "contenido"
        _say(
            f"| {texts.names[index]} | {cause}: {texts.names[decided.keepers[index]]} | "
            f"{jaccard(grams[index], keeper):.2f} | {containment(grams[index], keeper):.2f} | "
            f"{containment(grams[index], kept):.2f} |"
        )


def _bands(texts: Texts, works: list[Work], config: DedupConfig) -> None:
    """Todas las parejas de trozos, las dos ediciones cortadas por el mismo sitio."""
    words = [each for each, name in zip(texts.words, texts.names, strict=True) if "/" not in name]
    for work in works:
        members = [texts.words[i] for i in _members(texts, work)]
        words += pieces_like(members, texts.words[work.edition], config.ngram)
    grams = _grams(words, config)
    first, second, exact = common_grams(grams)
    counts = [int((exact >= threshold).sum()) for threshold in _THRESHOLDS]
    shown = ", ".join(f"{n} de {t} o más" for n, t in zip(counts, _THRESHOLDS, strict=True))
    _say(f"\n{len(words)} documentos; parejas por Jaccard exacto: {shown}.\n")
    heads = " | ".join(f"umbral {t}: recall / precisión" for t in _THRESHOLDS)
    _say(f"| bandas × filas | {heads} | parejas comparadas |")
    _say("|---|" + "--:|" * (len(_THRESHOLDS) + 1))
    truth = dict(
        zip(zip(first.tolist(), second.tolist(), strict=True), exact.tolist(), strict=True)
    )
    for bands, rows in _BANDS:
        changed = config.model_copy(update={"bands": bands, "rows": rows})
        signed = sign(words, changed)
        pairs = _collisions(signed.keys)
        left, right = np.array(pairs, np.int64).T
        found = similarity(signed.signatures, left, right)
        cells = []
        for threshold, total in zip(_THRESHOLDS, counts, strict=True):
            hits = [pair for pair, value in zip(pairs, found, strict=True) if value >= threshold]
            right_ones = sum(truth.get(pair, 0.0) >= threshold for pair in hits)
            cells.append(f"{right_ones / total:.3f} / {right_ones / len(hits):.3f}")
        _say(f"| {bands} × {rows} | {' | '.join(cells)} | {len(pairs)} |")


def _collisions(keys: Hashes) -> list[tuple[int, int]]:
    """Las parejas que comparten la clave de alguna banda, cada una una vez."""
    found = set[tuple[int, int]]()
    for band in keys:
        order = np.argsort(band, kind="stable")
        edges = np.flatnonzero(np.diff(band[order]) != 0) + 1
        for group in np.split(order, edges):
            members = group.tolist() if band[group[0]] else []
            found |= {(a, b) for i, a in enumerate(members) for b in members[i + 1 :]}
    return sorted(found)


def _edits(words: list[Hashes], config: DedupConfig) -> None:
    """Documentos de verdad y otros tantos con palabras cambiadas al azar, por pares."""
    rng = np.random.default_rng(config.seed)
    edited = []
    for each in words:
        spoiled = rng.random(len(each)) < rng.random() * _MOST_CHANGED
        noise = rng.integers(0, 2**64, len(each), np.uint64)
        edited.append(np.where(spoiled, noise, each))
    pairs = zip(_grams(words, config), _grams(edited, config), strict=True)
    exact = np.array([jaccard(one, other) for one, other in pairs])
    one, other = sign(words, config), sign(edited, config)
    joined = np.concatenate([one.signatures, other.signatures])
    left = np.arange(len(words))
    estimated = similarity(joined, left, left + len(words))
    meet = (one.keys == other.keys).any(axis=0)
    _say(f"\n{len(words)} documentos y otros tantos con palabras cambiadas:\n")
    _say(f"| umbral | recall | precisión | lo mismo, a más de {_MARGIN} del umbral | |")
    _say("|--:|--:|--:|--:|--:|")
    for threshold in _EDITED_THRESHOLDS:
        found = meet & (estimated >= threshold)
        strict = _scores(found, exact >= threshold, np.abs(exact - threshold) > _MARGIN)
        every = _scores(found, exact >= threshold, np.ones(len(exact), bool))
        _say(f"| {threshold} | {every} | {strict} |")
    for low, high in _RANGES:
        inside = (exact >= low) & (exact < high)
        _say(
            f"\nJaccard de {low} a {high}: {inside.sum()} parejas, "
            f"{meet[inside].mean():.1%} con clave común"
        )


def _scores(
    found: npt.NDArray[np.bool_], true: npt.NDArray[np.bool_], judged: npt.NDArray[np.bool_]
) -> str:
    hits = Counter(zip(found[judged].tolist(), true[judged].tolist(), strict=True))
    recall = hits[True, True] / (hits[True, True] + hits[False, True])
    return f"{recall:.3f} | {hits[True, True] / (hits[True, True] + hits[True, False]):.3f}"


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    main()
