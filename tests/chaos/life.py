"""Una vida del entrenador: la etapa pretrain sin la puerta del preflight ni git.

python -m tests.chaos.life CARPETA CASO [FASE LLAMADA]
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

from enlace.config.schema import Config
from enlace.errors import user_errors
from enlace.manifest import Origin
from enlace.process import die_with_parent
from enlace.provenance import InputsGuard
from stages import pretrain
from tests.chaos.faults import PLANTED, replace
from tests.chaos.instrument import Instruments
from tests.chaos.marks import Marks, Phase
from tests.chaos.plan import Ambush
from tests.support import make_config
from tests.train.runs import ORIGIN

MARKS = "marks.bin"
_SMALL: dict[str, Any] = {
    "hardware.threads": 1,
    "model.n_layer": 1,
    "model.n_head": 2,
    "model.n_kv_head": 1,
    "model.d_model": 16,
    "model.seq_len": 16,
    "data.evaluation.max_new_tokens": 2,
    "model.dropout": 0.1,
    "hardware.micro_batch": 4,
    "train.steps": 40,
    "train.tokens_per_step": 64,
    "train.decay": 8,
    "train.eval_every": 8,
    "train.eval_tokens": 64,
    "train.save_every": 5,
    "train.keep_every": 20,
}
CASES: dict[str, dict[str, Any]] = {
    "fp32": _SMALL,
    "fp16": _SMALL | {"hardware.dtype": "fp16"},
    "fp32-síncrono": _SMALL | {"train.save_background": False},
    "fp16-micro-batch": _SMALL | {"hardware.dtype": "fp16", "hardware.micro_batch": 2},
}


def case_config(name: str) -> Config:
    """La configuración de un caso."""
    return make_config(CASES[name])


def live(home: Path, case: str, ambush: Ambush | None, planted: str | None = None) -> int:
    """Entrena en `home` (con `data/` ya preparada) hasta acabar o morir; devuelve el código."""
    try:
        with user_errors():
            die_with_parent()
            os.chdir(home)
            with Marks(Path(MARKS)) as marks:
                Instruments(marks, ambush).install()
                if planted is not None:
                    PLANTED[planted]()
                replace(pretrain, "collect_origin", _origin)
                pretrain._deliver(case_config(case), InputsGuard.open(dict))
    except SystemExit as finished:
        return finished.code if isinstance(finished.code, int) else 1
    return 0


def _origin(*arguments: Any) -> Origin:
    """Un origen fijo: el de verdad llama a git, que aquí no pinta nada."""
    return Origin.model_validate_json(json.dumps(ORIGIN))


def main() -> None:
    """Una vida en un proceso propio."""
    home, case, *ambush = sys.argv[1:]
    target = Ambush(Phase(int(ambush[0])), int(ambush[1])) if ambush else None
    sys.exit(live(Path(home), case, target))


if __name__ == "__main__":
    main()
