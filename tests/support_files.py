"""Apoyo de las pruebas de escrituras: qué hay en una carpeta y cómo se escribe una entera."""

from pathlib import Path

from enlace.files import atomic_dir


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def write_folder(path: Path, content: str, names: tuple[str, ...] = ("a", "b", "c/d")) -> None:
    with atomic_dir(path) as temporary:
        for name in names:
            file = temporary / name
            file.parent.mkdir(exist_ok=True)
            file.write_text(content)
