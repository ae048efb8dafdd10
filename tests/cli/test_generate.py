"""`enlace generate` con un modelo entregado de verdad, y `status` con un run de verdad."""

import codecs
from pathlib import Path

import pytest
import torch

from enlace.config.load import load_config
from enlace.data.tokenizer import ByteTokenizer, save_tokenizer
from enlace.inference.engine import open_backend
from enlace.train.export import export_run, load_model
from enlace.workspace.runs import summarize
from tests.support import make_config
from tests.train.runs import run_training

from .conftest import Project

CHANGES = {"train.steps": 4, "train.decay": 2, "train.warmup": 1, "train.save_every": 2}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Una carpeta con el run terminado y su modelo entregado."""
    folder = tmp_path_factory.mktemp("modelo")
    run_training(folder / f"prueba-{'0' * 16}", make_config(CHANGES))
    save_tokenizer(ByteTokenizer(), folder / "tokenizer")
    run = folder / f"prueba-{'0' * 16}"
    export_run(run, folder / "model", folder / "state", folder / "tokenizer")
    return folder


def test_el_resumen_de_un_run_de_verdad_es_el_suyo(source: Path) -> None:
    config = make_config(CHANGES)
    summary = summarize(source / f"prueba-{'0' * 16}")
    assert (summary.step, summary.steps, summary.logged_step) == (4, 4, 4)
    assert summary.identity == config.identity()
    assert summary.loss is not None
    assert summary.val_loss is not None
    assert summary.finished
    assert summary.damaged == ()
    assert summary.holder is None


def test_voraz_escribe_lo_que_dice_el_modelo(project: Project, source: Path) -> None:
    arguments = ["generate", "Hola", "--model", str(source / "model"), "--temperature", "0"]
    arguments += ["--repetition-penalty", "1"]
    text = project.ok(*arguments, "--max-new-tokens", "6")
    model, _ = load_model(source / "model", "flash", "cpu")
    ids_BT = torch.tensor([list(b"Hola")])
    for _ in range(6):
        with torch.no_grad():
            logits_BTV, _ = model(ids_BT)
        assert logits_BTV is not None
        ids_BT = torch.cat([ids_BT, logits_BTV[:, -1:].argmax(-1)], dim=1)
    expected = ids_BT[0].tolist()
    end = expected.index(0) if 0 in expected else len(expected)
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    assert text == decoder.decode(bytes(expected[:end])) + "\n"


def test_la_misma_semilla_da_el_mismo_texto(project: Project, source: Path) -> None:
    arguments = ["generate", "Hola", "--model", str(source / "model"), "--temperature", "2"]
    first, second, other = (
        project.ok(*arguments, "--max-new-tokens", "20", "--seed", seed) for seed in ("1", "1", "2")
    )
    assert first == second != other


def test_la_continuacion_se_recorta_al_contexto(project: Project, source: Path) -> None:
    limit = load_config(source / "model" / "config.json").model.seq_len
    model = ["--model", str(source / "model"), "--max-new-tokens", "1000"]
    project.ok("generate", "a" * (limit - 1), *model)
    assert f"entre 1 y {limit - 1}" in project.refused("generate", "a" * limit, *model)
    assert "entre 1 y" in project.refused("generate", "", *model)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("Hola", "--temperature", "inf"), "temperature=inf"),
        (("Hola", "--repetition-penalty", "0"), "repetition_penalty=0.0"),
        (("Hola", "--top-p", "2"), "--top-p debe ser 1 o menos"),
        (("Hola", "--seed", str(2**63)), "seed = 9223372036854775808"),
        (("a\udcf1o",), "no es UTF-8"),
    ],
)
def test_una_peticion_imposible_se_niega(
    project: Project, source: Path, arguments: tuple[str, ...], said: str
) -> None:
    assert said in project.refused("generate", *arguments, "--model", str(source / "model"))


def test_una_carpeta_que_no_existe_no_se_confunde_con_un_modelo_por_entrenar(
    project: Project, tmp_path: Path
) -> None:
    given = str(tmp_path / "nada")
    for arguments in (("generate", "Hola", "--model", given), ("chat", given)):
        assert "nada no existe" in project.refused(*arguments)
    assert "make train" in project.refused("chat")


def test_una_temperatura_minima_es_voraz(project: Project, source: Path) -> None:
    model = ["generate", "Hola", "--model", str(source / "model"), "--max-new-tokens", "6"]
    greedy, least = (project.ok(*model, "--temperature", value) for value in ("0", "1e-320"))
    assert greedy == least


def test_un_modelo_entrenado_en_gpu_se_usa_en_cpu_si_no_la_hay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    config = make_config()
    gpu = {"device": "cuda", "dtype": "fp16", "sdpa_backend": "mem_efficient"}
    hardware = config.hardware.model_copy(update=gpu)
    backend = open_backend(config.model_copy(update={"hardware": hardware}))
    assert (backend.device.type, backend.sdpa_backend) == ("cpu", "flash")


def test_al_llenar_el_contexto_se_dice(project: Project, source: Path) -> None:
    model = ["--model", str(source / "model"), "--max-new-tokens"]
    limit = load_config(source / "model" / "config.json").model.seq_len
    told = project.enlace("generate", "Hola", *model, str(limit)).stderr
    silent = project.enlace("generate", "Hola", *model, str(limit - 4)).stderr
    assert f"los {limit} tokens" in told
    assert silent == ""


def test_el_muestreo_que_no_se_pide_es_el_de_params(project: Project, source: Path) -> None:
    config = load_config(project.root / "params.yaml")
    said = config.export
    plain = ["generate", "Hola", "--model", str(source / "model")]
    explicit = [*plain, "--temperature", str(said.temperature), "--top-k", str(said.top_k)]
    explicit += ["--top-p", str(said.top_p), "--min-p", str(said.min_p)]
    explicit += ["--repetition-penalty", str(said.repeat_penalty)]
    explicit += ["--max-new-tokens", str(config.data.evaluation.max_new_tokens)]
    assert project.ok(*plain) == project.ok(*explicit)
    assert project.ok(*plain) != project.ok(*plain, "--temperature", "3", "--min-p", "0")


def test_una_frase_de_parada_no_sale(project: Project, source: Path) -> None:
    plain = ["generate", "Hola", "--model", str(source / "model"), "--max-new-tokens", "12"]
    text = project.ok(*plain).removesuffix("\n")
    stop = text[6:8]
    assert project.ok(*plain, "--stop", stop) == text[: text.index(stop, 4)] + "\n"
