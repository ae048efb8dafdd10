"""Hablar con un llama.cpp de verdad, en otro proceso y sin salir de la máquina."""

import http.client
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Literal, Self
from urllib.parse import urlsplit

from enlace.errors import ExportError, fault_of

if TYPE_CHECKING:
    # Solo para que DVC sepa que la etapa depende de él: se ejecuta en otro proceso.
    from enlace.export import llama_child  # noqa: F401

Precision = Literal["exact", "usual"]
_CHILD = (sys.executable, "-m", "enlace.export.llama_child")
_REQUEST_SECONDS = 600.0
_STOP_SECONDS = 10.0
_LAST_WORDS = 300
_FORCED = 1e4
_NO_SAMPLING: dict[str, Any] = {
    "temperature": 0.0,
    "repeat_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "cache_prompt": False,
}
"""Siempre el token más probable, aunque el fichero proponga otro muestreo."""


Step = dict[int, float]
"""Los mejores candidatos a seguir y los logaritmos de su probabilidad."""


class LlamaServer:
    """Un GGUF abierto con llama.cpp; se usa con `with`.

    El proceso muere con este, atiende solo en 127.0.0.1 y en un puerto que elige el sistema.
    """

    def __init__(self, model: Path, context: int, precision: Precision) -> None:
        self._command = [*_CHILD, str(os.getpid()), str(model.absolute()), str(context), precision]
        self._model = model
        self._process: subprocess.Popen[str] | None = None
        self._errors: IO[bytes] | None = None
        self._place = ("", 0)

    def __enter__(self) -> Self:
        """Arranca y espera a que el modelo esté cargado.

        Raises:
            ExportError: llama.cpp no pudo abrir el modelo.
        """
        self._errors = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            self._command, stdout=subprocess.PIPE, stderr=self._errors, text=True
        )
        assert self._process.stdout is not None
        # El motor puede escribir avisos en su salida antes de la dirección.
        for line in self._process.stdout:
            address = urlsplit(line.strip())
            if address.scheme == "http" and address.hostname and address.port:
                self._place = (address.hostname, address.port)
                return self
        words = self._last_words()
        self.close()
        raise ExportError(f"llama.cpp no pudo abrir {self._model.name}: {words}")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Para el proceso y espera a que acabe."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None
        if self._errors is not None:
            self._errors.close()
            self._errors = None

    def post(self, path: str, request: dict[str, Any]) -> dict[str, Any]:
        """La respuesta JSON a una petición JSON.

        Raises:
            ExportError: el motor rechazó la petición o dejó de contestar.
        """
        connection = http.client.HTTPConnection(*self._place, timeout=_REQUEST_SECONDS)
        try:
            body = json.dumps(request, ensure_ascii=False).encode("utf-8")
            connection.request("POST", path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            content = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise ExportError(
                f"llama.cpp dejó de contestar con {self._model.name} ({fault_of(error)}): "
                f"{self._last_words()}"
            ) from error
        finally:
            connection.close()
        if response.status != http.HTTPStatus.OK:
            raise ExportError(
                f"llama.cpp rechazó {path} con {self._model.name}: "
                f"{content.decode('utf-8', 'replace')[:_LAST_WORDS]}"
            )
        answer: dict[str, Any] = json.loads(content)
        return answer

    def tokenize(self, text: str, special: bool) -> list[int]:
        """Los ids de un texto; con `special`, el de un token especial es ese token."""
        request = {"content": text, "add_special": False, "parse_special": special}
        return [int(token) for token in self.post("/tokenize", request)["tokens"]]

    def apply_template(self, messages: list[dict[str, str]]) -> str:
        """El texto al que la plantilla del modelo lleva una conversación."""
        return str(self.post("/apply-template", {"messages": messages})["prompt"])

    def greedy(self, ids: list[int], new_tokens: int) -> list[int]:
        """Continúa unos ids con el token más probable cada vez."""
        request = {"prompt": ids, "n_predict": new_tokens, "return_tokens": True, **_NO_SAMPLING}
        return [int(token) for token in self.post("/completion", request)["tokens"]]

    def candidates(self, ids: list[int], count: int, harmless: int) -> Step:
        """Los `count` candidatos más probables tras unos ids.

        El motor solo los cuenta si el token que elige es un carácter entero: se le obliga a elegir
        `harmless`, lo que no cambia las probabilidades que da.
        """
        forced = {"logit_bias": [[harmless, _FORCED]], "n_predict": 1, "n_probs": count}
        answer = self.post("/completion", {"prompt": ids, **forced, **_NO_SAMPLING})
        entry = answer["completion_probabilities"][0]
        return {int(top["id"]): float(top["logprob"]) for top in entry["top_logprobs"]}

    def _last_words(self) -> str:
        if self._errors is None:
            return ""
        self._errors.seek(0)
        text = self._errors.read().decode("utf-8", "replace").strip()
        return " ".join(text.split())[-_LAST_WORDS:]
