"""Cuántos tokens por segundo genera ENLACE, frente a transformers y a llama.cpp.

    python -m tests.benchmarks.generation [--pairs 5] [--tokens 64] [--prompt 64] [--threads 1]

tiny-50m con pesos al azar, en CPU y en fp32, los mismos pesos para todos: ENLACE y
`transformers.generate`, los dos con caché de claves y valores, se turnan en el mismo proceso;
llama.cpp (el GGUF en F32, a través de xllamacpp) va en el suyo y solo se le mide el reloj. Todos
eligen el token más probable y dan exactamente los mismos tokens nuevos. Cargar y preparar los pesos
queda fuera.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

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
    source: Source, folder: Path, ids_BT: torch.Tensor, tokens: int
) -> dict[str, Contender]:
    """Quién genera qué, con los mismos pesos. La primera llamada comprueba que dicen lo mismo."""
    from transformers import AutoModelForCausalLM

    write_huggingface(source, folder, SETTINGS)
    theirs = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    decoder = Decoder(source.model)

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
        )
        return result

    same = torch.equal(ours(), transformers())
    _say("texto voraz: " + ("el mismo" if same else "distinto (empates de redondeo)"))
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


def main() -> None:
    """Mide y escribe la tabla: medianas, y la razón de cada pareja."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    for name, value in (("pairs", 5), ("tokens", 64), ("prompt", 64), ("threads", 1)):
        parser.add_argument(f"--{name}", type=int, default=value)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    os.environ["OMP_NUM_THREADS"] = str(given.threads)  # los de llama.cpp
    source = tiny_50m()
    generator = torch.Generator().manual_seed(1)
    ids_BT = torch.randint(300, 1000, (1, given.prompt), generator=generator)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "hf"
        folder.mkdir()
        runs = contenders(source, folder, ids_BT, given.tokens)
        seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
        for pair in range(given.pairs):
            names = list(runs) if pair % 2 == 0 else list(reversed(runs))
            for name in names:
                seconds[name].append(timed(runs[name]))
        llama = llama_seconds(source, folder, ids_BT[0].tolist(), given.tokens, given.pairs)
    rows = []
    for name, measured in seconds.items():
        wall, cpu = (statistics.median(column) for column in zip(*measured, strict=True))
        rows.append([name, number(given.tokens / wall, 1), number(1000 * cpu / given.tokens, 1)])
    rows.append(["llama.cpp F32", number(given.tokens / llama, 1), "–"])
    _say(markdown.table(["programa", "tokens/s", "ms de CPU por token"], rows))
    ours, theirs = seconds.values()
    for index, label in enumerate(("reloj", "CPU")):
        ratios = [b[index] / a[index] for a, b in zip(ours, theirs, strict=True)]
        _say(
            f"ENLACE frente a transformers, {label}: ×{number(statistics.median(ratios), 2)} "
            f"(de ×{number(min(ratios), 2)} a ×{number(max(ratios), 2)}, {given.pairs} parejas)"
        )


if __name__ == "__main__":
    main()
