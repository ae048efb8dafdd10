"""Un Hub de mentira en esta máquina: las rutas que `huggingface_hub` pide, sobre una carpeta.

Como programa descarga de él con las bibliotecas de verdad, que leen HF_ENDPOINT al importarse:

    HF_ENDPOINT=http://127.0.0.1:PUERTO python -m tests.cli.fake_hub '{"dataset": …}'
"""

import json
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from enlace.errors import EnlaceError
from enlace.workspace import raw
from enlace.workspace.download import download_all
from tests.cli.support_hub import with_downloads

COMMIT = "c" * 40
REPO = "prueba/conjunto"
BRANCH = "v1"


class _Handler(BaseHTTPRequestHandler):
    folder: Path
    asked: list[str]

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Nada en la terminal."""

    def do_HEAD(self) -> None:
        """Como GET, sin el contenido."""
        self.do_GET()

    def do_POST(self) -> None:
        """`paths-info`: qué son unas rutas."""
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        paths = json.loads(body)["paths"] if body.startswith("{") else parse_qs(body)["paths"]
        self._json([entry for path in paths if (entry := self._entry(path))])

    def do_GET(self) -> None:
        """Información del conjunto, árbol de ficheros o un fichero (con rangos)."""
        path = unquote(urlsplit(self.path).path)
        self.asked.append(f"{self.command} {path} {self.headers.get('Range', '')}")
        if "/restringido" in path:
            return self._refuse(403, "GatedRepo", "Access to dataset is gated")
        if REPO not in path:
            return self._refuse(404, "RepoNotFound", "Repository not found")
        if match := re.fullmatch(rf"/api/datasets/{REPO}(?:/revision/(.+))?", path):
            return self._info(match[1] or "main")
        if match := re.fullmatch(rf"/api/datasets/{REPO}/tree/[^/]+/?(.*)", path):
            return self._tree(match[1])
        if match := re.fullmatch(rf"/datasets/{REPO}/resolve/([^/]+)/(.+)", path):
            return self._file(self.folder / match[2])
        return self._refuse(404, "EntryNotFound", "not here")

    def _info(self, revision: str) -> None:
        if revision not in ("main", BRANCH, COMMIT):
            return self._refuse(404, "RevisionNotFound", "Invalid rev id")
        files = [{"rfilename": name} for name in self._names()]
        return self._json({"id": REPO, "sha": COMMIT, "siblings": files, "tags": []})

    def _names(self) -> list[str]:
        found = (path for path in self.folder.rglob("*") if path.is_file())
        return sorted(path.relative_to(self.folder).as_posix() for path in found)

    def _entry(self, name: str) -> dict[str, Any] | None:
        path = self.folder / name
        if path.is_file():
            return {"type": "file", "path": name, "size": path.stat().st_size, "oid": "0" * 40}
        return {"type": "directory", "path": name, "oid": "0" * 40} if path.is_dir() else None

    def _tree(self, under: str) -> None:
        recursive = "recursive=true" in self.path.lower()
        folder = self.folder / under
        if not folder.is_dir():
            return self._refuse(404, "EntryNotFound", "not here")
        found = sorted(folder.rglob("*") if recursive else folder.iterdir())
        return self._json([self._entry(p.relative_to(self.folder).as_posix()) for p in found])

    def _file(self, path: Path) -> None:
        if not path.is_file():
            return self._refuse(404, "EntryNotFound", "not here")
        content, status, headers = path.read_bytes(), 200, {}
        if wanted := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "")):
            start, end = int(wanted[1]), int(wanted[2] or len(content) - 1)
            headers["Content-Range"] = f"bytes {start}-{end}/{len(content)}"
            content, status = content[start : end + 1], 206
        headers |= {"ETag": f'"{path.name}"', "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"}
        return self._send(status, content, headers)

    def _json(self, value: Any) -> None:
        self._send(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _refuse(self, status: int, code: str, message: str) -> None:
        self._send(status, b"{}", {"X-Error-Code": code, "X-Error-Message": message})

    def _send(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


@contextmanager
def serve(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """La dirección del Hub de mentira y la lista, que va creciendo, de lo que le piden."""
    asked: list[str] = []
    handler = type("Handler", (_Handler,), {"folder": folder, "asked": asked})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def main() -> None:
    """Una descarga por argumento; escribe, por línea, el mensaje de error o «bien»."""
    setattr(raw, "run_dvc", lambda *_: "")  # noqa: B010 - mypy no deja asignarlo
    for entry in sys.argv[1:]:
        try:
            download_all(with_downloads(json.loads(entry)), Path(), lambda _: None, 1500)
        except EnlaceError as error:
            sys.stdout.write(f"{error}\n")
        else:
            sys.stdout.write("bien\n")


if __name__ == "__main__":
    main()
