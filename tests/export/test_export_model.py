"""La exportación entera: lo que deja, lo que se niega a dejar y lo que permite comprobar."""

import json
from pathlib import Path
from typing import Any

import pytest

from enlace.data.tokenizer import ByteTokenizer, save_tokenizer
from enlace.errors import CheckpointError, ConfigError, ExportError
from enlace.export import build, requirements
from enlace.export.build import export_model
from enlace.export.card import Facts
from enlace.export.report import export_markdown
from enlace.export.requirements import require_extra
from enlace.files import sha256_file
from enlace.lineage.reproduce import plan
from enlace.lineage.tree import lineage_tree
from enlace.lineage.verify import verify
from enlace.train.artifact import open_artifact
from enlace.train.export import export_run
from enlace.train.parent import taken_sha256
from tests.export.support_export import SETTINGS, trained_folder
from tests.support import make_config
from tests.train.runs import run_training

CORPUS = {
    "splits": {
        "train": {"documents": 110, "bytes": 240_009},
        "val": {"documents": 10, "bytes": 10_000},
    },
    "licenses": {"CC0": {"documents": 100, "bytes": 250_000}, "": {"documents": 20, "bytes": 9}},
}
METRICS = {"loss": 5.1, "perplexity": 164.0, "bits_per_byte": 2.33, "tokens": 6129}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained_folder(tmp_path_factory.mktemp("modelo"))


@pytest.fixture(scope="module")
def exported(model: Path) -> tuple[Path, dict[str, Any], list[str]]:
    lines: list[str] = []
    out = model.parent / "exportado"
    report = export_model(
        model, out, SETTINGS, prompts=["Hola"], facts=Facts(CORPUS, METRICS), say=lines.append
    )
    return out, report, lines


Exported = tuple[Path, dict[str, Any], list[str]]


def test_la_carpeta_y_el_informe(exported: Exported) -> None:
    out, report, lines = exported
    assert {file.name for file in out.iterdir()} == {
        "README.md",
        "Modelfile",
        "chat_template.jinja",
        "config.json",
        "enlace.json",
        "enlace.sha256",
        "generation_config.json",
        "model.safetensors",
        "prueba-Q8_0.gguf",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    assert not list(out.parent.glob(".tmp-*"))
    for name, entry in report["files"].items():
        assert entry == {
            "bytes": (out / name).stat().st_size,
            "sha256": sha256_file(out / name),
        }
    assert set(report["equality"]) == {"transformers", "llama.cpp"}
    for equality in report["equality"].values():
        assert equality["logit_difference"] <= report["tolerance"]
    assert report["formats"]["prueba-Q8_0.gguf"]["same_best"] > 0.5
    assert len(lines) == 4
    text = export_markdown(json.loads(json.dumps(report)))
    assert "| transformers |" in text
    assert "prueba-Q8_0.gguf" in text


def test_el_linaje_la_cuenta_y_la_comprueba(exported: Exported, model: Path) -> None:
    out, _, _ = exported
    artifact = open_artifact(out)
    assert (artifact.kind, artifact.step) == ("export", 4)
    assert artifact.weights_sha256 == open_artifact(model).weights_sha256
    assert lineage_tree(artifact).text.startswith(f"modelo exportado {out}: run prueba, paso 4")
    artifact.verify()
    own = [check for check in verify(out, out.parent, data=False) if str(out) in check.subject]
    assert {check.status for check in own} == {"bien"}
    assert len(own) > 10
    assert artifact.weights_sha256 in plan(artifact, Path("clon"), out.parent).commands[-1]
    with pytest.raises(CheckpointError, match="exportado para otros programas"):
        taken_sha256(artifact, "weights")


def test_un_fichero_cambiado_o_de_mas_se_nombra(exported: Exported, tmp_path: Path) -> None:
    out, _, _ = exported
    copy = tmp_path / "copia"
    copy.mkdir()
    for file in out.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    (copy / "Modelfile").write_text("FROM ./otro.gguf\n")
    (copy / "otro.gguf").touch()
    wrong = {c.subject: c.status for c in verify(copy, tmp_path, data=False) if c.status != "bien"}
    assert wrong[str(copy / "Modelfile")] == "dañado"
    assert wrong[str(copy / "otro.gguf")] == "distinto"


def test_lo_que_no_es_el_modelo_no_se_entrega(
    exported: Exported, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, _, _ = exported
    before = {file.name: sha256_file(file) for file in out.iterdir()}

    def different(*_: Any) -> None:
        raise ExportError("los logits no son los de ENLACE")

    monkeypatch.setattr(build, "check_huggingface", different)
    for target in (out, tmp_path / "nuevo"):
        with pytest.raises(ExportError, match="logits"):
            export_model(model, target, SETTINGS)
    assert {file.name: sha256_file(file) for file in out.iterdir()} == before
    assert list(tmp_path.iterdir()) == []
    assert not list(out.parent.glob(".tmp-*"))


@pytest.mark.slow
def test_exportar_dos_veces_da_los_mismos_bytes(exported: Exported, model: Path) -> None:
    out, _, _ = exported
    before = {file.name: sha256_file(file) for file in out.iterdir()}
    orphan = out.parent / f".tmp-0123456789ab-{out.name}"
    orphan.mkdir()
    export_model(model, out, SETTINGS, facts=Facts(CORPUS, METRICS))
    assert {file.name: sha256_file(file) for file in out.iterdir()} == before
    assert not orphan.exists()


def test_no_se_pisa_lo_que_no_es_una_exportacion(model: Path, tmp_path: Path) -> None:
    (tmp_path / "fotos").mkdir()
    (tmp_path / "fotos/abuela.jpg").touch()
    with pytest.raises(CheckpointError, match="fotos ya existe y no es una exportación"):
        export_model(model, tmp_path / "fotos", SETTINGS)


def test_un_modelo_de_bytes_se_rechaza_con_remedio(tmp_path: Path) -> None:
    run = tmp_path / f"prueba-{'0' * 16}"
    run_training(run, make_config({"train.steps": 2, "train.decay": 1, "train.warmup": 0}))
    save_tokenizer(ByteTokenizer(), tmp_path / "tokenizer")
    export_run(run, tmp_path / "model", tmp_path / "state", tmp_path / "tokenizer")
    with pytest.raises(ConfigError, match=r"modelo de bytes .*make train RUN=small"):
        export_model(tmp_path / "model", tmp_path / "out", SETTINGS)
    assert not (tmp_path / "out").exists()


def test_sin_modelo_se_dice_como_tenerlo(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="make train"):
        export_model(tmp_path / "nada", tmp_path / "out", SETTINGS)


def test_sin_el_extra_se_dice_como_instalarlo(monkeypatch: pytest.MonkeyPatch) -> None:
    require_extra()
    monkeypatch.setattr(requirements, "find_spec", lambda name: None if "g" in name else name)
    with pytest.raises(ExportError, match="hace falta gguf; `make export`"):
        require_extra()
