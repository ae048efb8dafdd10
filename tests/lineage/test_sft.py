"""Conversaciones sobre un modelo propio, de punta a punta, con una muerte por medio."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from enlace.data.index import read_index
from enlace.lineage.verify import verify
from enlace.train.artifact import MODEL as WEIGHTS
from enlace.train.artifact import TOKENIZER, open_artifact
from enlace.train.container import read_tensors
from enlace.train.parent import find_parent, store
from enlace.workspace.lineage import lineage_text
from tests.lineage.sft import CHAT, MODEL, ROOT, deliver, prepare_chat, pretrain, train_chat
from tests.train.checkpoints import flip
from tests.train.runs import deterministic_rows, final_state, final_tensors

RUN = "conversa-0123456789abcdef"
KILL_AT = 6


@pytest.mark.slow
def test_de_un_preentrenamiento_a_uno_que_conversa(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    pretrain(tmp_path)
    base = open_artifact(MODEL)
    config = prepare_chat(tmp_path)

    # Se aprende de una parte, y con los ids del padre.
    train = read_index(CHAT / "shards").split("train")
    assert 0 < train.trained_tokens < train.tokens
    assert (CHAT / "tokenizer" / TOKENIZER).read_bytes() == (MODEL / TOKENIZER).read_bytes()

    # Matado en el paso 6 y seguido en otro proceso: lo mismo que sin cortes.
    done = subprocess.run(
        [sys.executable, "-m", "tests.lineage.sft", str(tmp_path), RUN, str(KILL_AT)],
        cwd=ROOT,
        env=os.environ | {"OMP_WAIT_POLICY": "passive"},
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    assert open_artifact(Path("runs") / RUN).step == 4
    train_chat(tmp_path, RUN)
    train_chat(tmp_path, "quieto")
    run, quiet = Path("runs") / RUN, Path("runs/quieto")
    expected, found = final_tensors(quiet), final_tensors(run)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert final_state(run) == final_state(quiet)
    assert deterministic_rows(run) == deterministic_rows(quiet)

    # Se entrega donde estaba el padre, que sigue en su copia, y se sabe de quién viene.
    deliver(tmp_path, RUN)
    child = open_artifact(MODEL)
    parent = child.history.origin.parent
    assert parent is not None
    assert (parent.run_name, parent.step) == ("prueba", base.step)
    assert parent.sha256 == config.train.init_sha256
    kept = find_parent(config.train)
    assert kept is not None
    before, after = read_tensors(kept.path / WEIGHTS), read_tensors(MODEL / WEIGHTS)
    assert any(not torch.equal(before[name], after[name]) for name in before)
    for path in (MODEL, run):
        text = lineage_text(path, as_json=False)
        assert f"padre: modelo de prueba, paso {base.step}" in text, text
        checks = verify(path, Path(), data=False)
        assert not [check.line() for check in checks if check.status == "dañado"]
        assert f"padre prueba (paso {base.step})" in {check.subject for check in checks}
    flip(store() / config.train.init_sha256[:16] / WEIGHTS, 9000)
    (fault,) = (check for check in verify(MODEL, Path(), data=False) if check.status == "dañado")
    assert config.train.init_sha256[:16] in fault.subject
