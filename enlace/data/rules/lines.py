"""Quitar líneas de un texto sin dejar huecos."""

from collections.abc import Container


def drop_lines(lines: list[str], doomed: Container[int]) -> str:
    """El texto sin las líneas `doomed` y sin las líneas en blanco que dejarían de separar nada."""
    kept: list[str] = []
    gap = False
    for index, line in enumerate(lines):
        if index in doomed:
            gap = True
        elif line.strip():
            kept.append(line)
            gap = False
        elif not gap or (kept and kept[-1].strip()):
            kept.append(line)
    return "\n".join(kept).strip("\n")
