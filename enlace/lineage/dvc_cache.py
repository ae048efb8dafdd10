"""La caché de DVC, leída sin importar DVC: dónde está cada objeto y qué debe contener.

Un objeto es un fichero que se llama como su MD5. Una carpeta es un objeto `….dir` con la lista de
sus ficheros. Con enlaces duros, cambiar un byte de `data/shards` en el sitio cambia también el de
la caché, y DVC no lo nota: solo mira tamaño y fecha.
"""

import configparser
import json
from pathlib import Path

from enlace.errors import EnlaceError

_CONFIGS = ("config", "config.local")
_DIRECTORY = ".dir"


def cache_folder(root: Path) -> Path:
    """La carpeta de los objetos, según `.dvc/config` y `.dvc/config.local`."""
    folder = ".dvc/cache"
    for name in _CONFIGS:
        parser = configparser.ConfigParser(interpolation=None)
        try:
            parser.read_string((root / ".dvc" / name).read_text(encoding="utf-8"))
        except (OSError, configparser.Error):
            continue
        # Una ruta relativa de la configuración de DVC lo es respecto a `.dvc`.
        if parser.has_option("cache", "dir"):
            given = Path(parser.get("cache", "dir")).expanduser()
            folder = str(given if given.is_absolute() else Path(".dvc") / given)
    return root / folder / "files/md5"


def object_path(cache: Path, md5: str) -> Path:
    """El fichero de un objeto."""
    return cache / md5[:2] / md5[2:]


def listing(cache: Path, md5: str) -> dict[str, str]:
    """{ruta relativa: MD5} de una carpeta guardada; de un fichero suelto, {"": MD5}.

    Raises:
        EnlaceError: el objeto de la carpeta falta o no es una lista.
    """
    if not md5.endswith(_DIRECTORY):
        return {"": md5}
    path = object_path(cache, md5)
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
        return {str(entry["relpath"]): str(entry["md5"]) for entry in entries}
    except FileNotFoundError as error:
        raise EnlaceError(f"{path} no está en la caché") from error
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise EnlaceError(f"{path} está dañado: no es la lista de una carpeta") from error


def expected_md5(path: Path) -> str:
    """El MD5 que debe tener un objeto, que es su nombre."""
    return (path.parent.name + path.name).removesuffix(_DIRECTORY)
