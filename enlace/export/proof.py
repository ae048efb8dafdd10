"""La prueba de que lo exportado es el modelo: transformers y un llama.cpp de verdad lo leen igual.

Se comparan, con `enlace.export.reference`: los ids de textos difíciles, la plantilla de las
conversaciones, los logits en todas las posiciones y el texto que sale al elegir siempre el token
más probable. Con llama.cpp se usa un GGUF en F32, donde la igualdad debe ser la del redondeo; los
formatos que pierden precisión se comparan, byte a byte, con los pesos de los que salen.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gguf
import numpy as np
import torch

from enlace.config.export import GgufType
from enlace.errors import ExportError
from enlace.export.battery import CONVERSATION
from enlace.export.gguf_writer import encoded, gguf_tensors
from enlace.export.llama import LlamaServer, Step
from enlace.export.reference import Continuation, Reference
from enlace.export.source import Source
from enlace.figures import scientific

TOLERANCE = 1e-4
"""La mayor diferencia admitida entre logits en fp32: varias veces el redondeo de un motor."""
CANDIDATES = 20
"""Los mejores candidatos que se comparan con llama.cpp en cada texto."""


class Equality(NamedTuple):
    """Lo comparado con un motor.

    Attributes:
        texts: textos cuyos ids coinciden.
        positions: posiciones cuyos logits (o los mejores) coinciden.
        logit_difference: la mayor diferencia entre dos logits, o logaritmos de probabilidad.
        greedy_tokens: tokens elegidos iguales.
        ties: textos que se separan en un empate, con dos candidatos a menos de la tolerancia.
    """

    texts: int
    positions: int
    logit_difference: float
    greedy_tokens: int
    ties: int


class Fidelity(NamedTuple):
    """Cuánto cambia un formato lo que dice el modelo, en los finales de los textos difíciles.

    Attributes:
        logit_difference: la mayor diferencia entre logaritmos de probabilidad de los mejores.
        mean_difference: la media de esas diferencias.
        same_best: proporción de finales con el mismo candidato más probable.
    """

    logit_difference: float
    mean_difference: float
    same_best: float


def check_huggingface(reference: Reference, folder: Path) -> Equality:
    """Abre la carpeta con transformers y la compara.

    Raises:
        ExportError: difiere; dice en qué y por cuánto.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    options: dict[str, Any] = {"local_files_only": True}
    tokenizer = AutoTokenizer.from_pretrained(folder, **options)
    for name, text in reference.texts.items():
        found = list(tokenizer(text)["input_ids"])
        _same_ids("transformers", name, reference.token_ids(text, special=True), found)
    prompt = tokenizer.apply_chat_template(
        [dict(turn) for turn in CONVERSATION], tokenize=False, add_generation_prompt=True
    )
    _same_text("transformers", reference, str(prompt))
    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="sdpa", **options
    )
    worst, positions = 0.0, 0
    with torch.inference_mode():
        for case in reference.cases:
            logits_TV = model(torch.tensor([case.ids])).logits[0]
            difference = float((logits_TV - case.logits_TV).abs().max())
            _close("transformers", case.name, difference)
            worst, positions = max(worst, difference), positions + len(case.ids)
        chosen = [_transformers_greedy(model, each, reference) for each in reference.continuations]
    same, ties = _same_choices("transformers", reference.continuations, chosen)
    return Equality(len(reference.texts), positions, worst, same, ties)


def check_llama(reference: Reference, path: Path) -> Equality:
    """Abre un GGUF en F32 con llama.cpp, con claves y valores en fp32, y lo compara.

    Raises:
        ExportError: difiere; dice en qué y por cuánto.
    """
    worst = 0.0
    with LlamaServer(path, reference.source.shape.seq_len, "exact") as server:
        _same_tokens(server, reference)
        prompt = server.apply_template([dict(turn) for turn in CONVERSATION])
        _same_text("llama.cpp", reference, prompt)
        for case, found in zip(reference.cases, _endings(server, reference), strict=True):
            difference, _ = _candidate_differences(case.logits_TV[-1], found)
            _close("llama.cpp", case.name, max(difference))
            worst = max(worst, *difference)
        chosen = [server.greedy(each.ids, len(each.new_ids)) for each in reference.continuations]
    same, ties = _same_choices("llama.cpp", reference.continuations, chosen)
    return Equality(len(reference.texts), len(reference.cases), worst, same, ties)


def check_format(reference: Reference, path: Path, dtype: GgufType) -> Fidelity:
    """Comprueba que un GGUF lleva los pesos del modelo y que llama.cpp lo abre; mide cuánto cambia.

    Raises:
        ExportError: le falta un tensor, o alguno no es el del modelo en ese formato.
    """
    _same_tensors(reference.source, path, dtype)
    with LlamaServer(path, reference.source.shape.seq_len, "usual") as server:
        _same_tokens(server, reference)
        pairs = [
            _candidate_differences(case.logits_TV[-1], found)
            for case, found in zip(reference.cases, _endings(server, reference), strict=True)
        ]
    differences = [value for values, _ in pairs for value in values]
    same_best = sum(best for _, best in pairs) / len(pairs)
    return Fidelity(max(differences), float(np.mean(differences)), same_best)


def _same_tensors(source: Source, path: Path, dtype: GgufType) -> None:
    stored = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    expected = gguf_tensors(source)
    if stored.keys() != expected.keys():
        odd = sorted(stored.keys() ^ expected.keys())[0]
        raise ExportError(f"{path.name}: el tensor {odd} sobra o falta")
    for name, values in expected.items():
        data, kind = encoded(name, values, dtype)
        tensor = stored[name]
        if tensor.tensor_type != kind or tensor.data.tobytes() != data.tobytes():
            raise ExportError(f"{path.name}: el tensor {name} no es el del modelo")


def _same_tokens(server: LlamaServer, reference: Reference) -> None:
    for name, text in reference.texts.items():
        for special in (False, True):
            expected = reference.token_ids(text, special)
            _same_ids("llama.cpp", name, expected, server.tokenize(text, special))


def _same_ids(engine: str, name: str, expected: list[int], found: list[int]) -> None:
    if found == expected:
        return
    pairs = zip(expected, found, strict=False)
    place = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(expected), len(found)))
    raise ExportError(
        f"{engine} parte de otra manera el texto «{name}»: desde el token {place} lee "
        f"{found[place : place + 4]} y debe leer {expected[place : place + 4]}"
    )


def _same_text(engine: str, reference: Reference, found: str) -> None:
    expected = reference.prompt(CONVERSATION)
    if found != expected:
        raise ExportError(
            f"la plantilla de conversación da en {engine} {found!r} y debe dar {expected!r}"
        )


def _close(engine: str, name: str, difference: float) -> None:
    # `not <=` y no `>`: un NaN tampoco pasa.
    if not difference <= TOLERANCE:
        raise ExportError(
            f"los logits de {engine} no son los de ENLACE: con el texto «{name}» difieren en "
            f"{scientific(difference)}, más de {scientific(TOLERANCE)}"
        )


def _same_choices(
    engine: str, expected: Sequence[Continuation], found: Sequence[list[int]]
) -> tuple[int, int]:
    """Cuántos tokens coinciden y cuántos textos se separan en un empate."""
    same = ties = 0
    for continuation, ids in zip(expected, found, strict=True):
        for place, (token, other) in enumerate(zip(continuation.new_ids, ids, strict=False)):
            logits_V = continuation.logits_NV[place]
            if token == other:
                same += 1
                continue
            if float(logits_V[token] - logits_V[other]) > 2 * TOLERANCE:
                raise ExportError(
                    f"{engine} continúa {continuation.name} de otra manera: tras {place} tokens "
                    f"elige el {other} y debe elegir el {token}"
                )
            ties += 1
            break
        else:
            if len(ids) != len(continuation.new_ids):
                raise ExportError(
                    f"{engine} continúa {continuation.name} con {len(ids)} tokens y deben ser "
                    f"{len(continuation.new_ids)}"
                )
    return same, ties


def _transformers_greedy(model: Any, case: Continuation, reference: Reference) -> list[int]:
    ids_BT = torch.tensor([case.ids])
    output_BT = model.generate(
        ids_BT,
        attention_mask=torch.ones_like(ids_BT),
        max_new_tokens=len(case.new_ids),
        do_sample=False,
        repetition_penalty=1.0,
        temperature=None,
        top_p=None,
        top_k=None,
        min_p=None,
        eos_token_id=sorted(reference.stops),
        pad_token_id=reference.source.tokenizer.eos_id,
    )
    new_ids: list[int] = output_BT[0, len(case.ids) :].tolist()
    return new_ids


def _endings(server: LlamaServer, reference: Reference) -> list[Step]:
    """Los mejores candidatos de llama.cpp tras cada texto de la batería."""
    letter = reference.token_ids("a", special=False)[0]
    return [server.candidates(case.ids, CANDIDATES, letter) for case in reference.cases]


def _candidate_differences(logits_V: torch.Tensor, found: Step) -> tuple[list[float], bool]:
    """Las diferencias con los candidatos de un motor, y si el mejor es el mismo."""
    logprobs_V = logits_V.double().log_softmax(dim=-1)
    differences = [abs(float(logprobs_V[token]) - value) for token, value in found.items()]
    best = max(found, key=lambda token: found[token])
    return differences, best == int(logits_V.argmax())
