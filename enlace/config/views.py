"""Lo que cada etapa puede leer: exactamente los `params` que declara en `dvc.yaml`.

Si una etapa leyera una clave que no declara, DVC no la repetiría al cambiarla y el resultado
quedaría viejo sin aviso. La vista convierte ese olvido en un error inmediato.
"""

from pathlib import Path
from typing import Any

from enlace.config.load import PARAMS_FILE, leaves, load_config
from enlace.config.schema import Config, Section
from enlace.config.yaml_io import read_yaml
from enlace.errors import ConfigError

PIPELINE_FILE = Path("dvc.yaml")


class View:
    """Una configuración de la que solo se leen las claves declaradas (y lo que cuelga de ellas)."""

    def __init__(self, section: Section, declared: frozenset[str], stage: str, prefix: str) -> None:
        """`prefix` es la ruta de `section` con su punto final, o vacía en la raíz."""
        self._section = section
        self._declared = declared
        self._stage = stage
        self._prefix = prefix

    def __getattr__(self, name: str) -> Any:
        path = self._prefix + name
        value = getattr(self._section, name)
        if any(path == key or path.startswith(f"{key}.") for key in self._declared):
            return value
        if isinstance(value, Section) and any(k.startswith(f"{path}.") for k in self._declared):
            return View(value, self._declared, self._stage, f"{path}.")
        raise ConfigError(
            f"{PIPELINE_FILE}: la etapa {self._stage} lee {path} sin declararla en params; añádela"
        )


def declared_params(stage: str, root: Path = Path()) -> frozenset[str]:
    """Las claves que la etapa declara en `params`, como rutas con puntos.

    Raises:
        ConfigError: si la etapa no existe en `dvc.yaml`.
    """
    stages = read_yaml(root / PIPELINE_FILE).get("stages", {})
    if stage not in stages:
        raise ConfigError(f"{PIPELINE_FILE}: no hay ninguna etapa «{stage}»; revisa el nombre")
    return frozenset(stages[stage].get("params", []))


def stage_view(stage: str, root: Path = Path()) -> Any:
    """`params.yaml` validado entero y restringido a lo que declara la etapa."""
    config = load_config(root / PARAMS_FILE)
    return View(config, declared_params(stage, root), stage, "")


def declared_values(config: Config, declared: frozenset[str]) -> dict[str, Any]:
    """Las hojas de `config` que cubren las claves declaradas: {"train.steps": 300, …}."""
    return {
        key: value
        for key, value in leaves(config.model_dump(mode="json"))
        if any(key == name or key.startswith(f"{name}.") for name in declared)
    }
