"""Capas → mezcla → validación: de `configs/runs/*.yaml` o `params.yaml` a una `Config`.

Un fichero de run nombra una capa por sección y añade `overrides`; `params.yaml` es la
configuración ya resuelta. La precedencia, de menor a mayor, es: capa < run < params.yaml (editado
a mano o por `dvc exp run -S`). Ejemplo: si `configs/train/pretrain.yaml` pone `lr: 6e-4`, el run
puede bajarlo en `overrides`, y `dvc exp run -S train.lr=3e-4` manda sobre los dos.
"""

import difflib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from enlace.config.messages import explain, show
from enlace.config.schema import Config
from enlace.config.yaml_io import dump_yaml, parse_yaml, read_yaml
from enlace.errors import ConfigError
from enlace.files import write_text

SECTIONS = ("hardware", "model", "train", "data")
PARAMS_FILE = Path("params.yaml")
RUNS_FOLDER = Path("configs/runs")

_HEADER = """\
# La configuración completa del run actual: lo único que leen las etapas de DVC.
# La escribió `make params RUN={run}`{changes}. Para cambiarla:
#   make params RUN={run} SET="train.lr=3e-4"    otro run u otros valores
#   dvc exp run --temp -S train.lr=3e-4          un experimento aparte
# Los cambios permanentes van en configs/. `make check-params` muestra qué difiere del run.
"""


def load_config(path: str | Path) -> Config:
    """Lee un fichero de run o un `params.yaml` y devuelve la configuración validada.

    Raises:
        ConfigError: cualquier fallo, con campo, valor, fichero y remedio.
    """
    values, origins = load_values(Path(path))
    return validate(values, origins, str(path))


def load_values(path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """Los valores resueltos sin validar y, por hoja, el fichero del que salió cada uno."""
    document = read_yaml(path)
    kinds = {name: type(document.get(name)) for name in SECTIONS if name in document}
    presets = [name for name, kind in kinds.items() if kind is str]
    if presets and len(presets) == len(kinds):
        return _resolve_run(path, document)
    if presets:
        name = presets[0]
        raise ConfigError(
            f"{path}: {name} = {show(document[name])} es el nombre de una capa y las otras "
            f"secciones llevan valores; cámbiala con `make params RUN={document.get('run_name')} "
            f'SET="{name}={document[name]}"`'
        )
    return document, dict.fromkeys((key for key, _ in leaves(document)), str(path))


def validate(values: Mapping[str, Any], origins: Mapping[str, str], source: str) -> Config:
    """Valida los valores resueltos.

    Raises:
        ConfigError: con una frase por fallo.
    """

    def origin(dotted: str) -> str:
        if dotted in origins:
            return origins[dotted]
        inside = {file for key, file in origins.items() if key.startswith(f"{dotted}.")}
        return inside.pop() if len(inside) == 1 else source

    try:
        return Config.model_validate(values)
    except ValidationError as error:
        raise ConfigError(explain(error, origin)) from None


def leaves(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Las hojas como ("train.lr", 3e-4), en orden; una lista es una hoja."""
    for key, value in values.items():
        dotted = f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from leaves(value, f"{dotted}.")
        else:
            yield dotted, value


def run_path(name: str, root: Path = Path()) -> Path:
    """El fichero del run `name`.

    Raises:
        ConfigError: si no existe, con la lista de los que hay.
    """
    path = root / RUNS_FOLDER / f"{name}.yaml"
    if not path.is_file():
        known = sorted(file.stem for file in (root / RUNS_FOLDER).glob("*.yaml"))
        raise ConfigError(
            f"el run «{name}» no existe en {RUNS_FOLDER}; elige entre: {', '.join(known)}"
        )
    return path


def resolve(name: str, settings: list[str], root: Path = Path()) -> Config:
    """El run `name` con los cambios `clave=valor` de `settings` (también `model=capa`).

    Raises:
        ConfigError: run, capa o clave inexistentes, o valores inválidos.
    """
    path = run_path(name, root)
    document = read_yaml(path)
    pairs = [_split_setting(item) for item in settings]
    for key, value in pairs:
        if key in SECTIONS:
            document[key] = value
    values, origins = _resolve_run(path, document)
    for key, value in pairs:
        if key not in SECTIONS:
            _assign(values, key, value, "SET")
            origins[key] = "SET"
    return validate(values, origins, str(path))


def write_params(config: Config, settings: list[str], root: Path = Path()) -> Path:
    """Escribe `params.yaml` entero, con su cabecera, y devuelve la ruta."""
    changes = f' SET="{" ".join(settings)}"' if settings else ""
    path = root / PARAMS_FILE
    header = _HEADER.format(run=config.run_name, changes=changes)
    write_text(path, header + dump_yaml(config.model_dump(mode="json")))
    return path


def differences(config: Config, base: Config) -> list[tuple[str, Any, Any]]:
    """Las hojas que difieren: (clave, valor en `base`, valor en `config`)."""
    old = dict(leaves(base.model_dump(mode="json")))
    return [
        (key, old.get(key), value)
        for key, value in leaves(config.model_dump(mode="json"))
        if old.get(key) != value
    ]


def _resolve_run(path: Path, document: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    unknown = sorted(set(document) - {"run_name", "overrides", *SECTIONS})
    if unknown:
        raise ConfigError(
            f"{path}: la clave {unknown[0]} = {show(document[unknown[0]])} no existe en un run; "
            f"usa run_name, {', '.join(SECTIONS)} u overrides"
        )
    missing = [name for name in ("run_name", *SECTIONS) if name not in document]
    if missing:
        raise ConfigError(f"{path}: falta la clave {missing[0]}; un run la necesita")
    values: dict[str, Any] = {"run_name": document["run_name"]}
    origins = {"run_name": str(path)}
    for section in SECTIONS:
        layer = _layer_path(path, section, document[section])
        _merge_layer(values, origins, read_yaml(layer), layer)
    overrides = document.get("overrides") or {}
    if not isinstance(overrides, Mapping):
        raise ConfigError(f"{path}: overrides = {show(overrides)} debe ser un mapa de secciones")
    for key, value in leaves(overrides):
        _assign(values, key, value, str(path))
        origins[key] = str(path)
    return values, origins


def _layer_path(run: Path, section: str, name: object) -> Path:
    folder = run.parent.parent / section
    layer = folder / f"{name}.yaml"
    if not isinstance(name, str) or not layer.is_file():
        known = sorted(file.stem for file in folder.glob("*.yaml"))
        raise ConfigError(
            f"{run}: la capa {section} = {show(name)} no existe en {folder}; "
            f"elige entre: {', '.join(known)}"
        )
    return layer


def _merge_layer(
    values: dict[str, Any], origins: dict[str, str], layer: dict[str, Any], path: Path
) -> None:
    for key, value in leaves(layer):
        if key in origins:
            raise ConfigError(
                f"{path}: la clave {key} = {show(value)} ya la pone {origins[key]}; "
                "déjala en una sola capa (para cambiarla en un run, usa overrides)"
            )
        origins[key] = str(path)
        *parents, leaf = key.split(".")
        section = values
        for parent in parents:
            section = section.setdefault(parent, {})
        section[leaf] = value


def _split_setting(item: str) -> tuple[str, Any]:
    key, sign, text = item.partition("=")
    if not sign or not key:
        raise ConfigError(f"SET: «{item}» no tiene la forma clave=valor; prueba train.lr=3e-4")
    return key, parse_yaml(text, f"SET {key}")


def _assign(values: dict[str, Any], key: str, value: Any, source: str) -> None:
    *parents, leaf = key.split(".")
    section: Any = values
    for parent in parents:
        section = section.get(parent) if isinstance(section, dict) else None
    if not isinstance(section, dict) or leaf not in section or isinstance(section[leaf], dict):
        known = [name for name, _ in leaves(values)]
        close = difflib.get_close_matches(key, known, n=1)
        hint = f"¿querías decir {close[0]}?" if close else "mira params.yaml para ver las que hay"
        raise ConfigError(f"{source}: la clave {key} = {show(value)} no existe; {hint}")
    section[leaf] = value
