"""Capas → mezcla → validación: de `configs/runs/*.yaml` o `params.yaml` a una `Config`.

Un fichero de run nombra una capa por sección y añade `overrides`; `params.yaml` es la
configuración ya resuelta. La precedencia, de menor a mayor, es: capa < run < params.yaml (editado
a mano o por `dvc exp run -S`). Ejemplo: si `configs/train/pretrain.yaml` pone `lr: 6e-4`, el run
puede bajarlo en `overrides`, y `dvc exp run -S train.lr=3e-4` manda sobre los dos.
"""

import difflib
import json
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from enlace.config.messages import explain, show
from enlace.config.schema import Config
from enlace.config.yaml_io import dump_yaml, parse_yaml, read_yaml
from enlace.errors import ConfigError
from enlace.files import write_text

SECTIONS = ("hardware", "model", "train", "data", "export")
PARAMS_FILE = Path("params.yaml")
RUNS_FOLDER = Path("configs/runs")

_ALIKE = 0.5
"""Cuánto se tiene que parecer el nombre de una clave para proponerla, de 0 a 1."""
_HEADER = """\
# La configuración completa del run actual: lo único que leen las etapas de DVC.
# La escribió `make params RUN={run}{changes}`. Para cambiarla:
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
    config = validate(values, origins, str(path))
    if Path(path).name == PARAMS_FILE.name:
        _check_parent_resolved(config, str(path))
    return config


def _check_parent_resolved(config: Config, path: str) -> None:
    """Un `params.yaml` dice de qué contenido parte, no solo en qué carpeta está."""
    train = config.train
    if train.init_from and not train.init_sha256:
        raise ConfigError(
            f"{path}: train.init_from = {show(train.init_from)} sin train.init_sha256, el resumen "
            f"de su contenido; escríbelos los dos con `make params RUN={config.run_name} "
            f'SET="train.init_from={train.init_from}"`'
        )


def load_values(path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """Los valores resueltos sin validar y, por hoja, el fichero del que salió cada uno."""
    document = read_yaml(path)
    sections = {name: document[name] for name in SECTIONS if name in document}
    presets = [name for name, value in sections.items() if isinstance(value, str)]
    inline = [name for name, value in sections.items() if isinstance(value, Mapping)]
    is_run = "overrides" in document or len(presets) > len(inline)
    if is_run:
        return _resolve_run(path, document)
    if presets:
        name, run = presets[0], document.get("run_name", "…")
        raise ConfigError(
            f"{path}: {name} = {show(document[name])} es el nombre de una capa y aquí van sus "
            f'valores; escríbelos con `make params RUN={run} SET="{name}={document[name]}"`'
        )
    return document, dict.fromkeys((key for key, _ in leaves(document)), str(path))


def validate(values: Mapping[str, Any], origins: Mapping[str, str], source: str) -> Config:
    """Valida los valores resueltos; `origins` da el fichero de cada hoja y `source` el principal.

    Raises:
        ConfigError: con una frase por fallo.
    """

    def origin(dotted: str) -> str:
        path = dotted
        while path:
            if path in origins:
                return origins[path]
            inside = Counter(file for key, file in origins.items() if key.startswith(f"{path}."))
            if inside:
                # Lo que falta en una sección falta en su capa, de donde sale la mayoría.
                return inside.most_common(1)[0][0]
            path = path.rpartition(".")[0]
        return source

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
    if path := _yaml_named(root / RUNS_FOLDER, name):
        return path
    raise ConfigError(f"el run {show(name)} no existe; {_choices(root / RUNS_FOLDER)}")


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
            _layer_path(path, key, value, named_in="SET")
            document[key] = value
    values, origins = _resolve_run(path, document)
    for key, value in pairs:
        if key not in SECTIONS:
            _assign(values, key, value, "SET")
            origins[key] = "SET"
    if values["run_name"] != name:
        # `make check-params` busca el run por este nombre, y la carpeta del run lo lleva.
        raise ConfigError(
            f"{origins['run_name']}: run_name = {show(values['run_name'])} y el fichero se llama "
            f"{path.name}; pon run_name: {name} o cambia el nombre del fichero"
        )
    return validate(values, origins, str(path))


def write_params(config: Config, settings: list[str], root: Path = Path()) -> Path:
    """Escribe `params.yaml` entero, con su cabecera, y devuelve la ruta."""
    path = root / PARAMS_FILE
    header = _HEADER.format(run=config.run_name, changes=_shell_setting(settings))
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
    layers = {section: _layer_path(path, section, document[section]) for section in SECTIONS}
    for layer in layers.values():
        _merge_layer(values, origins, read_yaml(layer), layer)
    for section, layer in layers.items():
        _check_layer_stays_home(section, str(layer), values, origins)
    overrides = document.get("overrides")
    if overrides is not None and not isinstance(overrides, Mapping):
        raise ConfigError(
            f"{path}: overrides = {show(overrides)} debe ser un mapa; escribe secciones y claves"
        )
    changed: set[str] = set()
    for key, value in leaves(overrides or {}):
        if key in changed:
            raise ConfigError(
                f"{path}: overrides repite la clave {key} = {show(value)}; deja solo una"
            )
        changed.add(key)
        _assign(values, key, value, str(path))
        origins[key] = str(path)
    return values, origins


def _layer_path(run: Path, section: str, name: object, named_in: str = "") -> Path:
    """El fichero de una capa de `run`; `named_in` es dónde se nombró, si no fue en el run."""
    folder = run.parent.parent / section
    if isinstance(name, Mapping):
        raise ConfigError(
            f"{named_in or run}: {section} lleva valores y en un run va el nombre de una capa; "
            f"pásalos a overrides. {_choices(folder).capitalize()}"
        )
    if layer := _yaml_named(folder, name):
        return layer
    source = named_in or run
    raise ConfigError(f"{source}: la capa {section} = {show(name)} no existe; {_choices(folder)}")


def _yaml_named(folder: Path, name: object) -> Path | None:
    """El fichero `name`.yaml de la carpeta; se busca en la lista, sin componer rutas ajenas."""
    return next((file for file in folder.glob("*.yaml") if file.stem == name), None)


def _choices(folder: Path) -> str:
    known = ", ".join(sorted(file.stem for file in folder.glob("*.yaml")))
    if known:
        return f"elige en {folder} entre: {known}"
    return f"no hay ningún YAML en {folder}, ¿estás en la raíz del proyecto?"


def _merge_layer(
    values: dict[str, Any], origins: dict[str, str], layer: dict[str, Any], path: Path
) -> None:
    for key, value in leaves(layer):
        # También chocan una clave y la sección que la contiene: `model: null` y `model.seq_len: 8`.
        taken = next((k for k in origins if f"{k}.".startswith(f"{key}.")), None) or next(
            (k for k in origins if f"{key}.".startswith(f"{k}.")), None
        )
        if taken:
            raise ConfigError(
                f"{path}: la clave {key} = {show(value)} ya la pone {origins[taken]}; "
                "déjala en una sola capa (para cambiarla en un run, usa overrides)"
            )
        origins[key] = str(path)
        *parents, leaf = key.split(".")
        section = values
        for parent in parents:
            section = section.setdefault(parent, {})
        section[leaf] = value


def _check_layer_stays_home(
    section: str, layer: str, values: dict[str, Any], origins: dict[str, str]
) -> None:
    flat = dict(leaves(values))
    for key, file in origins.items():
        home = key.partition(".")[0]
        if file == layer and home != section and home in SECTIONS:
            raise ConfigError(
                f"{layer}: la clave {key} = {show(flat.get(key))} no es de {section}; pásala a "
                f"la capa de {home} o a los overrides del run"
            )


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
        # Una sección en común ya parece mucho: el nombre también se tiene que parecer.
        close = [
            name
            for name in difflib.get_close_matches(key, known)
            if difflib.get_close_matches(leaf, [name.rpartition(".")[2]], cutoff=_ALIKE)
        ]
        hint = f"¿querías decir {close[0]}?" if close else "mira en params.yaml las que hay"
        if any(name.startswith(f"{key}.") for name in known):
            raise ConfigError(
                f"{source}: {key} = {show(value)} es una sección; escribe sus claves una a una"
            )
        raise ConfigError(f"{source}: la clave {key} = {show(value)} no existe; {hint}")
    section[leaf] = value


def _shell_setting(settings: list[str]) -> str:
    """Lo que va tras `RUN=…` para repetir la orden; siempre cabe en una línea de comentario."""
    if not settings:
        return ""
    text = " ".join(settings)
    if not text.isprintable():
        text = json.dumps(text)[1:-1]
    quoted = shlex.quote(text) if set(text) & set('"$`\\!') else f'"{text}"'
    return f" SET={quoted}"
