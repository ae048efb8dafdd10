"""El resultado de una comprobación y lo que se pide de un fichero."""

from pathlib import Path
from typing import Literal, NamedTuple

from enlace.errors import fault_of
from enlace.lineage.hashing import Algorithm, Wanted

Status = Literal["bien", "dañado", "distinto", "sin comprobar"]
"""`dañado`: no es lo que se escribió. `distinto`: hoy hay otra cosa en su lugar, lo que es legítimo
(el código avanza). `sin comprobar`: falta con qué."""


class Check(NamedTuple):
    """Una comprobación hecha, o que no se pudo hacer."""

    status: Status
    subject: str
    detail: str

    def line(self) -> str:
        """La comprobación en una línea."""
        return f"{self.status}: {self.subject}" + (f": {self.detail}" if self.detail else "")


class Planned(NamedTuple):
    """Un fichero que hay que leer, y qué significa que no coincida.

    Attributes:
        path: el fichero.
        algorithm: con qué se resume.
        expected: el resumen que debe tener.
        subject: cómo se llama en el informe.
        otherwise: qué es si no coincide.
        remedy: qué hacer entonces.
    """

    path: Path
    algorithm: Algorithm
    expected: str
    subject: str
    otherwise: Status
    remedy: str

    def judge(self, found: dict[Wanted, str | OSError]) -> Check:
        """Compara con lo leído."""
        digest = found[Wanted(self.path, self.algorithm)]
        if isinstance(digest, FileNotFoundError):
            missing: Status = "dañado" if self.otherwise == "dañado" else "sin comprobar"
            return Check(missing, self.subject, f"falta; {self.remedy}")
        if isinstance(digest, OSError):
            return Check("dañado", self.subject, f"no se puede leer ({fault_of(digest)})")
        if digest != self.expected:
            name = {"sha256": "SHA-256", "md5": "MD5"}[self.algorithm]
            detail = f"su {name} es {digest} y se anotó {self.expected}; {self.remedy}"
            return Check(self.otherwise, self.subject, detail)
        return Check("bien", self.subject, "")
