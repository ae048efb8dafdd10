"""Del texto a los shards: ENLACE frente a `datasets.map` y a un guion como el de nanoGPT.

    python -m tests.benchmarks.corpus_throughput FICHERO.jsonl.gz… [--rounds N] [--only NOMBRE…]

Prepara una vez, sin medirlo, el mismo `{train,val}.jsonl.zst` y el mismo tokenizador. Después cada
contrincante corre en un proceso nuevo (ninguna caché de palabras sobrevive) con la caché de HF
vacía, y ENLACE corre justo antes de cada uno. Se mide el proceso entero, arranque e imports
incluidos: segundos, segundos de CPU suyos y de sus hijos, y la mayor suma de memoria de todos ellos
(residente, y la anónima, que deja fuera los ficheros proyectados). Los ids deben ser los mismos.
"""

import argparse
import gzip
import hashlib
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.benchmarks.corpus_peers import PEERS, SPLITS

OURS = "enlace"
_VALIDATION_EVERY = 200
_SAMPLE_SECONDS = 0.05
_MEGABYTE = 1_000_000


class Result(NamedTuple):
    """Una ejecución: tiempos en segundos, memoria en bytes y el resumen de los ids."""

    peer: str
    seconds: float
    cpu: float
    rss: int
    anonymous: int
    sha256: str


def main() -> None:
    """Lee los argumentos, prepara, mide y escribe la tabla y el JSON."""
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n", 1)[0])
    parser.add_argument("texts", nargs="+", type=Path, help="jsonl o jsonl.gz con campo «text»")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--train-megabytes", type=int, default=15, help="muestra del tokenizador")
    parser.add_argument("--only", nargs="+", choices=[name for name in PEERS if name != OURS])
    parser.add_argument("--json", type=Path, help="dónde guardar las cifras")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        size, documents = prepare(options.texts, work / "corpus")
        train_tokenizer(work, options.train_megabytes)
        results = []
        for _ in range(options.rounds):
            for peer in options.only or [name for name in PEERS if name != OURS]:
                for name in (OURS, peer):
                    results.append(run(name, work, options.workers))
                    _say(_row(results[-1], size))
        _say(_summary(results, size, documents))
        different = len({result.sha256 for result in results}) > 1
    if options.json:
        rows = [result._asdict() for result in results]
        values = {"bytes": size, "documents": documents, "cpu": _cpu_name(), "results": rows}
        options.json.write_text(json.dumps(values, indent=2, ensure_ascii=False), encoding="utf-8")
    if different:
        sys.exit("los ids NO son los mismos")


def prepare(texts: list[Path], corpus: Path) -> tuple[int, int]:
    """Escribe los documentos distintos como los deja la etapa corpus; devuelve bytes y cuántos."""
    import zstandard

    corpus.mkdir()
    sizes = {split: {"documents": 0, "bytes": 0, "epoch_bytes": 0} for split in SPLITS}
    streams = {
        split: zstandard.ZstdCompressor(level=3).stream_writer(
            (corpus / f"{split}.jsonl.zst").open("wb")
        )
        for split in SPLITS
    }
    seen: set[str] = set()
    for source, text in _documents(texts):
        identifier = hashlib.sha256(text.encode("utf-8")).hexdigest()[:32]
        if identifier in seen:
            continue
        seen.add(identifier)
        split = "val" if len(seen) % _VALIDATION_EVERY == 0 else "train"
        record = {"id": identifier, "text": text, "source": source}
        line = json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n"
        streams[split].write(line.encode("utf-8"))
        sizes[split]["documents"] += 1
        for field in ("bytes", "epoch_bytes"):
            sizes[split][field] += len(text.encode("utf-8"))
    for stream in streams.values():
        stream.close()
    (corpus / "report.json").write_text(json.dumps({"splits": sizes}), encoding="utf-8")
    return sum(size["bytes"] for size in sizes.values()), len(seen)


def train_tokenizer(work: Path, megabytes: int) -> None:
    """Entrena el vocabulario con una muestra del corpus y lo guarda en `work/tokenizer`."""
    from enlace.config.load import load_config
    from enlace.data.vocabulary import build_tokenizer
    from tests.benchmarks.corpus_peers import RUN

    config = load_config(RUN)
    tokenizer = config.data.tokenizer.model_copy(update={"train_megabytes": float(megabytes)})
    data = config.data.model_copy(update={"tokenizer": tokenizer})
    build_tokenizer(work / "corpus", work / "tokenizer", data, config.model.vocab_size)


def run(peer: str, work: Path, workers: int) -> Result:
    """Corre un contrincante en un proceso nuevo y lo mide desde fuera."""
    out, cache = work / "out", work / "cache"
    environment = os.environ | {
        "HF_DATASETS_CACHE": str(cache),
        "HF_HOME": str(cache),
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
        "OMP_NUM_THREADS": "1",
    }
    if peer != OURS:  # sus procesos ya ocupan los núcleos, y así lo pide tokenizers al bifurcar
        environment["TOKENIZERS_PARALLELISM"] = "false"
    command = [sys.executable, "-m", "tests.benchmarks.corpus_peers"]
    os.sync()
    started = time.perf_counter()
    process = subprocess.Popen(
        [*command, peer, str(work), str(out), str(workers)],
        env=environment,
        stdout=subprocess.DEVNULL,
    )
    peak = Peak(process.pid)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - started
    rss, anonymous = peak.stop()
    if status:
        sys.exit(f"{peer} ha fallado")
    digest = hashlib.sha256()
    for split in SPLITS:
        for file in sorted(out.glob(f"{split}-?????.bin")) or [out / f"{split}.bin"]:
            digest.update(file.read_bytes())
    shutil.rmtree(out)
    shutil.rmtree(cache, ignore_errors=True)
    cpu = usage.ru_utime + usage.ru_stime
    return Result(peer, seconds, cpu, rss, anonymous, digest.hexdigest())


class Peak:
    """La mayor memoria simultánea de un proceso y de sus descendientes."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._peak = (0, 0)
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def stop(self) -> tuple[int, int]:
        """Deja de mirar y devuelve la residente y la anónima mayores, en bytes."""
        self._done.set()
        self._thread.join()
        return self._peak

    def _watch(self) -> None:
        while not self._done.wait(_SAMPLE_SECONDS):
            samples = [memory_of(pid) for pid in _family(self._pid)]
            total = [sum(column) for column in zip(*samples, strict=True)] or [0, 0]
            self._peak = (max(self._peak[0], total[0]), max(self._peak[1], total[1]))


def _family(pid: int) -> Iterator[int]:
    yield pid
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield from _family(int(child))
    except OSError:  # ya ha terminado
        return


def memory_of(pid: int) -> tuple[int, int]:
    """La memoria residente y la anónima de un proceso, en bytes; ceros si ya no está."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0, 0
    values = dict(line.split(":", 1) for line in lines)
    found = [int(values.get(name, "0 kB").split()[0]) << 10 for name in ("VmRSS", "RssAnon")]
    return found[0], found[1]


def _documents(texts: list[Path]) -> Iterator[tuple[str, str]]:
    for path in texts:
        with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
            for number, line in enumerate(lines, start=1):
                yield f"{path.name}:{number}", json.loads(line)["text"]


def _row(result: Result, size: int) -> str:
    return (
        f"| {result.peer} | {result.seconds:.2f} | {result.cpu:.2f} "
        f"| {size / result.seconds / _MEGABYTE:.1f} | {size / result.cpu / _MEGABYTE:.1f} "
        f"| {result.rss / _MEGABYTE:.0f} | {result.anonymous / _MEGABYTE:.0f} |"
    )


def _summary(results: list[Result], size: int, documents: int) -> str:
    """La tabla de medianas y, por contrincante, el cociente con el ENLACE que corrió antes."""
    lines = [
        f"\n{size / _MEGABYTE:.1f} MB en {documents} documentos; {_cpu_name()}\n",
        "| | s | s de CPU | MB/s | MB por s de CPU | RSS MB | anónima MB | × s | × CPU |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for peer in dict.fromkeys(result.peer for result in results):
        mine = [result for result in results if result.peer == peer]
        columns: list[Any] = [
            peer,
            *(statistics.median(values) for values in list(zip(*mine, strict=True))[1:5]),
            "",
        ]
        ratios = [
            (theirs.seconds / ours.seconds, theirs.cpu / ours.cpu)
            for ours, theirs in zip(results[::2], results[1::2], strict=True)
            if theirs.peer == peer
        ]
        median = Result(*columns)
        worst = [f"{min(values):.1f}" for values in zip(*ratios, strict=True)] or ["1", "1"]
        lines.append(f"{_row(median, size)} {worst[0]} | {worst[1]} |")
    return "\n".join(lines)


def _cpu_name() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{len(os.sched_getaffinity(0))} núcleos {names[0] if names else platform.machine()}"


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
