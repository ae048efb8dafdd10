"""Cuántos tokens por segundo genera ENLACE, frente a transformers y a llama.cpp.

    python -m tests.benchmarks.generation [--pairs 5] [--tokens 64] [--prompt 64] [--threads 1 2]
        [--long 512]

tiny-50m con pesos al azar, en CPU y en fp32, los mismos pesos para todos: ENLACE y
`transformers.generate`, los dos con caché de claves y valores y los mismos hilos, se turnan en el
mismo proceso; llama.cpp (el GGUF en F32, a través de xllamacpp) va en el suyo y solo se le mide el
reloj. Todos eligen el token más probable, sin penalizar lo repetido, y dan exactamente los mismos
tokens nuevos; si ENLACE y transformers no escriben lo mismo, no se mide nada. Cargar y preparar los
pesos queda fuera; leer el prompt, dentro. Aparte, lo que se tarda en leer uno largo y dar un token.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from enlace.export.gguf_writer import write_gguf
from enlace.export.huggingface import write_huggingface
from enlace.export.llama import LlamaServer
from enlace.export.source import Source
from enlace.figures import number
from enlace.model.decoder import Decoder
from enlace.model.generation import generate
from enlace.model.sampling import Sampling
from enlace.reports import markdown
from tests.benchmarks.export_equality import tiny_50m
from tests.export.support_export import SETTINGS

Contender = Callable[[], object]


def contenders(
    decoder: Decoder, theirs: Any, ids_BT: torch.Tensor, tokens: int
) -> dict[str, Contender]:
    """Quién genera qué. La primera llamada comprueba que dicen lo mismo."""

    def ours() -> torch.Tensor:
        return generate(decoder, ids_BT, tokens, Sampling(0.0))

    def transformers() -> torch.Tensor:
        result: torch.Tensor = theirs.generate(
            ids_BT,
            attention_mask=torch.ones_like(ids_BT),
            min_new_tokens=tokens,
            max_new_tokens=tokens,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=1,
            repetition_penalty=1.0,  # la de la carpeta exportada haría otro texto
        )
        return result

    if not torch.equal(ours(), transformers()):
        raise SystemExit("ENLACE y transformers no escriben lo mismo: no hay nada que comparar")
    return {"ENLACE": ours, "transformers.generate": transformers}


def timed(contender: Contender) -> tuple[float, float]:
    """Segundos de reloj y de CPU de una llamada."""
    wall, cpu = time.perf_counter(), time.process_time()
    contender()
    return time.perf_counter() - wall, time.process_time() - cpu


def llama_seconds(source: Source, folder: Path, ids: list[int], tokens: int, rounds: int) -> float:
    """Mediana de segundos de reloj de llama.cpp en F32."""
    path = folder / "modelo.gguf"
    request = {"prompt": ids, "n_predict": tokens, "ignore_eos": True, "temperature": 0.0}
    request |= {"repeat_penalty": 1.0, "cache_prompt": False}
    write_gguf(source, path, "f32", SETTINGS)
    with LlamaServer(path, source.shape.seq_len, "exact") as server:
        server.post("/completion", request)
        seconds = []
        for _ in range(rounds):
            start = time.perf_counter()
            server.post("/completion", request)
            seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def alternated(runs: dict[str, Contender], pairs: int) -> dict[str, list[tuple[float, float]]]:
    """Lo que tarda cada uno, por turnos y cambiando quién va primero."""
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
    for pair in range(pairs):
        for name in list(runs) if pair % 2 == 0 else list(reversed(runs)):
            seconds[name].append(timed(runs[name]))
    return seconds


def report(seconds: dict[str, list[tuple[float, float]]], tokens: int, llama: float | None) -> None:
    """Escribe la tabla, con medianas, y la razón de cada pareja."""
    rows = []
    for name, measured in seconds.items():
        wall, cpu = (statistics.median(column) for column in zip(*measured, strict=True))
        rows.append([name, number(tokens / wall, 1), number(1000 * cpu / tokens, 1)])
    if llama is not None:
        rows.append(["llama.cpp F32", number(tokens / llama, 1), "–"])
    _say(markdown.table(["programa", "tokens/s", "ms de CPU por token"], rows))
    ours, theirs = seconds.values()
    for index, label in enumerate(("reloj", "CPU")):
        ratios = [b[index] / a[index] for a, b in zip(ours, theirs, strict=True)]
        _say(
            f"ENLACE frente a transformers, {label}: ×{number(statistics.median(ratios), 2)} "
            f"(de ×{number(min(ratios), 2)} a ×{number(max(ratios), 2)}, {len(ratios)} parejas)"
        )


def main() -> None:
    """Mide con cada número de hilos."""
    from transformers import AutoModelForCausalLM

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    for name, value in (("pairs", 5), ("tokens", 64), ("prompt", 64), ("long", 512)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    given = parser.parse_args()
    source = tiny_50m()
    generator = torch.Generator().manual_seed(1)
    ids_BT = torch.randint(300, 1000, (1, max(given.prompt, given.long)), generator=generator)
    short_BT, long_BT = ids_BT[:, : given.prompt], ids_BT[:, : given.long]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "hf"
        folder.mkdir()
        write_huggingface(source, folder, SETTINGS)
        theirs = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        decoder = Decoder(source.model)
        for threads in given.threads:
            torch.set_num_threads(threads)
            os.environ["OMP_NUM_THREADS"] = str(threads)  # los de llama.cpp
            _say(f"\n{threads} hilo(s): {given.tokens} tokens tras un prompt de {given.prompt}\n")
            runs = contenders(decoder, theirs, short_BT, given.tokens)
            seconds = alternated(runs, given.pairs)
            prompt = short_BT[0].tolist()
            llama = llama_seconds(source, folder, prompt, given.tokens, given.pairs)
            report(seconds, given.tokens, llama)
            _say(f"\n{threads} hilo(s): leer un prompt de {given.long} y dar un token\n")
            report(
                alternated(contenders(decoder, theirs, long_BT, 1), given.pairs), given.long, None
            )


if __name__ == "__main__":
    main()
