import pytest
import torch
from torch import Tensor

from enlace.config.schema import EvaluationConfig
from enlace.data.rules.characters import normalize
from enlace.data.tokenizer import ByteTokenizer
from enlace.errors import ConfigError
from enlace.evaluation.samples import Sample, encode_prompt, generate_samples
from enlace.model.transformer import Transformer
from tests.evaluation.support_evaluation import tiny_backend, tiny_model

PROMPTS = ("Había", "Un día", "¿")


def settings(**changes: object) -> EvaluationConfig:
    values: dict[str, object] = {
        "prompts": PROMPTS, "max_new_tokens": 8, "temperature": 1.0, "top_k": 20, "seed": 5
    }  # fmt: skip
    return EvaluationConfig.model_validate(values | changes)


def run(evaluation: EvaluationConfig, model: Transformer | None = None) -> list[Sample]:
    return generate_samples(model or tiny_model(), ByteTokenizer(), evaluation, tiny_backend())


def test_la_misma_semilla_da_las_mismas_muestras_y_otra_da_otras() -> None:
    assert run(settings()) == run(settings())
    assert run(settings()) != run(settings(seed=6))


def test_cada_muestra_depende_solo_de_su_principio() -> None:
    whole = run(settings())
    assert [run(settings(prompts=(prompt,)))[0] for prompt in PROMPTS] == whole
    assert run(settings(prompts=PROMPTS[::-1])) == whole[::-1]


def test_dos_principios_no_comparten_los_sorteos() -> None:
    # Con todos los logits iguales la continuación es solo el azar.
    model = tiny_model()
    with torch.no_grad():
        model.tok_emb.weight.fill_(1.0)
    first, second = run(settings(prompts=("Había", "Un día"), top_k=0), model)
    assert first.continuation != second.continuation


def test_con_temperatura_cero_es_el_argmax_sin_cache() -> None:
    model, tokenizer = tiny_model(), ByteTokenizer()
    ids = tokenizer.encode("Un día")
    expected: list[int] = []
    with torch.no_grad():
        for _ in range(8):
            logits: Tensor | None = model(torch.tensor([ids + expected]))[0]
            assert logits is not None
            expected.append(int(logits[0, -1].argmax()))
            if expected[-1] == tokenizer.eos_id:
                break
    (sample,) = run(settings(prompts=("Un día",), temperature=0.0), model)
    shown = [token for token in expected if token != tokenizer.eos_id]
    assert sample.continuation == tokenizer.decode(shown)
    assert sample.new_tokens == len(expected)


def test_el_separador_termina_la_muestra_y_no_se_escribe() -> None:
    model = tiny_model()
    # Todos los logits salen iguales y positivos menos el del separador, que es el mayor.
    with torch.no_grad():
        model.tok_emb.weight.fill_(1.0)
        model.tok_emb.weight[0] = 2.0
        model.norm.weight.fill_(1.0)
    (sample,) = run(settings(prompts=("a",), temperature=0.0), model)
    assert sample == Sample("a", "", 1, True)


def test_los_bytes_a_medias_se_ven_y_no_fallan() -> None:
    samples = run(settings(top_k=0, max_new_tokens=20, prompts=("ñ", "a", "€")))
    assert any("\ufffd" in sample.continuation for sample in samples)
    for sample in samples:
        sample.continuation.encode("utf-8")


def test_un_principio_que_no_cabe_dice_cual_y_con_que_numeros() -> None:
    with pytest.raises(ConfigError) as caught:
        run(settings(prompts=("corto", "x" * 30)))
    message = str(caught.value)
    for piece in ("prompts[1]", "30 tokens", "max_new_tokens=8", "38", "model.seq_len=32"):
        assert piece in message


def test_lo_que_cabe_justo_se_genera() -> None:
    (sample,) = run(settings(prompts=("x" * 24,), top_k=1))
    assert sample.finished or sample.new_tokens == 8


def test_los_principios_se_normalizan_como_el_corpus() -> None:
    tokenizer = ByteTokenizer()
    for dirty in ("ma\u0301s\r\ncosas ", "más\u2028co\u00adsas ", "\ufeffmás\x0bcosas\x07 "):
        assert encode_prompt(tokenizer, dirty) == tokenizer.encode("más\ncosas ")
        assert encode_prompt(tokenizer, dirty) == tokenizer.encode(normalize(dirty) + " ")


def test_el_modo_del_modelo_y_el_azar_global_quedan_como_estaban() -> None:
    model = tiny_model()
    model.train()
    state = torch.get_rng_state()
    run(settings(), model)
    assert model.training
    assert torch.equal(torch.get_rng_state(), state)
