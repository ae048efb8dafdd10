"""Lo que cada etapa puede leer: exactamente los `params` que declara en `dvc.yaml`.

Si una etapa leyera una clave que no declara, DVC no la repetiría al cambiarla y el resultado
quedaría viejo sin aviso. La vista convierte ese olvido en un error inmediato.
"""

import re
from pathlib import Path
from typing import Any

from enlace.config.fields import Section
from enlace.config.load import PARAMS_FILE, leaves, load_config
from enlace.config.messages import suggest
from enlace.config.schema import STANDARD_EXPORT, Config
from enlace.config.yaml_io import read_yaml
from enlace.errors import ConfigError

PIPELINE_FILE = Path("dvc.yaml")
_TEMPLATE = re.compile(r"\$\{([\w.]+)\}")


class View:
    """Una configuración de la que solo se leen las claves declaradas (y lo que cuelga de ellas)."""

    __slots__ = ("_declared", "_prefix", "_section", "_stage")  # sin más atributos: no se asigna

    def __init__(self, section: Section, declared: frozenset[str], stage: str, prefix: str) -> None:
        """`prefix` es la ruta de `section` con su punto final, o vacía en la raíz."""
        self._section = section
        self._declared = declared
        self._stage = stage
        self._prefix = prefix

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # protocolos de Python (copy, pickle…): no son claves
            raise AttributeError(name)
        derived = getattr(type(self._section), name, None)
        if isinstance(derived, property):
            # Un valor derivado solo necesita declaradas las claves de las que sale.
            return derived.fget(self) if derived.fget else None
        path = self._prefix + name
        value = getattr(self._section, name)
        if any(path == key or path.startswith(f"{key}.") for key in self._declared):
            return value
        if isinstance(value, Section) and any(k.startswith(f"{path}.") for k in self._declared):
            return View(value, self._declared, self._stage, f"{path}.")
        raise ConfigError(
            f"{PIPELINE_FILE}: la etapa {self._stage} lee {path} sin declararla en params; añádela"
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, View) and self._values() == other._values()

    def __hash__(self) -> int:
        return hash(self._values())

    def _values(self) -> tuple[Section, frozenset[str], str, str]:
        return self._section, self._declared, self._stage, self._prefix

    def whole(self) -> Config:
        """La configuración de un entrenamiento, para la etapa que declara todas sus secciones.

        Sin `export`, que no es de él: queda `STANDARD_EXPORT`, sean cuales sean los valores
        escritos, y así cambiar cómo se exporta no obliga a entrenar otra vez.

        Raises:
            ConfigError: si la etapa no las declara todas.
        """
        assert isinstance(self._section, Config)
        for name in self._section.training_values():
            getattr(self, name)
            if name not in self._declared:
                raise ConfigError(
                    f"{PIPELINE_FILE}: la etapa {self._stage} lee toda la configuración sin "
                    f"declarar {name} en params; añádela"
                )
        return self._section.model_copy(update={"export": STANDARD_EXPORT})

    def declared_values(self) -> dict[str, Any]:
        """Las hojas que la etapa declara: {"train.steps": 300, …}."""
        assert isinstance(self._section, Config)
        return declared_values(self._section, self._declared)


def declared_params(stage: str, root: Path = Path()) -> frozenset[str]:
    """Las claves que la etapa declara en `params`, como rutas con puntos.

    Raises:
        ConfigError: si la etapa no existe en `dvc.yaml` o declara sus claves de otra manera.
    """
    params = _declared_stage(stage, root).get("params", [])
    if not isinstance(params, list) or not all(isinstance(key, str) for key in params):
        raise ConfigError(
            f"{PIPELINE_FILE}: los params de {stage} deben ser una lista de claves de "
            f"{PARAMS_FILE}; escribe una por línea, como - train.lr"
        )
    return frozenset(params)


def declared_deps(stage: str, config: Config, root: Path = Path()) -> list[Path]:
    """Las rutas de las que depende la etapa, con `${data.source}` y semejantes ya sustituidas.

    Raises:
        ConfigError: si la etapa no existe, o una ruta nombra una clave que no existe.
    """
    values = dict(leaves(config.model_dump(mode="json")))

    def value(match: re.Match[str]) -> str:
        if match[1] not in values:
            raise ConfigError(
                f"{PIPELINE_FILE}: la etapa {stage} depende de {match[0]}, que no existe; "
                f"{suggest(match[1])}"
            )
        return str(values[match[1]])

    deps = _declared_stage(stage, root).get("deps", [])
    return [Path(_TEMPLATE.sub(value, str(dep))) for dep in deps]


def stage_view(stage: str, root: Path = Path()) -> Any:
    """`params.yaml` validado entero y restringido a lo que declara la etapa.

    Raises:
        ConfigError: configuración inválida, o una clave declarada que no existe.
    """
    config = load_config(root / PARAMS_FILE)
    declared = declared_params(stage, root)
    for key in sorted(declared):
        if not declared_values(config, frozenset({key})):
            raise ConfigError(
                f"{PIPELINE_FILE}: la etapa {stage} declara {key}, que no existe; {suggest(key)}"
            )
    return View(config, declared, stage, "")


def declared_values(config: Config, declared: frozenset[str]) -> dict[str, Any]:
    """Las hojas de `config` que cubren las claves declaradas: {"train.steps": 300, …}."""
    return {
        key: value
        for key, value in leaves(config.model_dump(mode="json"))
        if any(key == name or key.startswith(f"{name}.") for name in declared)
    }


def _declared_stage(stage: str, root: Path) -> dict[str, Any]:
    stages = read_yaml(root / PIPELINE_FILE).get("stages")
    found = stages.get(stage) if isinstance(stages, dict) else None
    if not isinstance(found, dict):
        raise ConfigError(f"{PIPELINE_FILE}: no hay ninguna etapa «{stage}»; revisa el nombre")
    return found
