"""La conversación en la terminal: lee una línea, escribe la respuesta según sale, y otra vez."""

import contextlib
import re
import sys
from collections.abc import Callable
from typing import IO

from enlace.errors import EnlaceError
from enlace.figures import counted, integer
from enlace.inference.engine import Ending, Engine, Outcome, Request
from enlace.workspace.generate import check_utf8, context_note, new_talk

# Lo que un modelo escriba no debe mover el cursor ni cambiar la terminal.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_HELP = """\
/nuevo   olvida lo dicho y empieza otra vez
/ayuda   enseña esto
/salir   acaba (también Ctrl-D)
Ctrl-C   corta la respuesta
"""
_HELP_TEXT = "Enter    sin escribir nada, sigue con el mismo texto\n"
_CHATS = "Escribe y pulsa Enter. /ayuda dice qué más se puede hacer."
_COMPLETES = (
    "Este modelo completa texto; todavía no conversa: escribe un principio y lo continuará.\n"
    "/ayuda dice qué más se puede hacer."
)


class Terminal:
    """Por dónde se habla. Sin terminal no hay saludo ni invitación: solo respuestas por la salida.

    Las notas van por la salida de errores cuando la otra la lee un programa.
    """

    def __init__(
        self,
        source: IO[str],
        out: IO[str],
        notes: IO[str],
        read: Callable[[str], str] = input,
    ) -> None:
        """`read` lee una línea con su invitación cuando hay terminal."""
        self.interactive = source.isatty() and out.isatty()
        self._source, self._out, self._notes, self._read = source, out, notes, read

    def line(self, prompt: str) -> str | None:
        """La línea siguiente, sin su salto; None cuando no hay más."""
        if self.interactive:
            try:
                return self._read(prompt)
            except EOFError:
                self.write("\n")
                return None
        text = self._source.readline()
        return text.rstrip("\r\n") if text else None

    def write(self, text: str) -> None:
        """Escribe ya, sin esperar a que acabe la línea."""
        self._out.write(_CONTROL.sub("\ufffd", text) if self._out.isatty() else text)
        self._out.flush()

    def note(self, text: str) -> None:
        """Algo que no es del modelo."""
        stream = self._out if self.interactive else self._notes
        print(f"[{text}]", file=stream, flush=True)


def chat(engine: Engine, request: Request, seed: int, terminal: Terminal, system: str = "") -> None:
    """Habla hasta /salir, Ctrl-D o el final de la entrada.

    Raises:
        ConfigError: `system` con un modelo que no conversa.
    """
    session = _Session(engine, request, seed, terminal, system)
    if terminal.interactive:
        _enable_line_editing()
        terminal.write((_CHATS if engine.chats else _COMPLETES) + f" Semilla: {seed}.\n")
    elif not engine.chats:
        terminal.note("este modelo completa texto; todavía no conversa")
    prompt = "tú> " if engine.chats else "texto> "
    while True:
        try:
            line = terminal.line(prompt)
        except KeyboardInterrupt:
            terminal.write("\n")
            terminal.note("/salir o Ctrl-D para acabar")
            continue
        if line is None or line.strip() == "/salir":
            return
        session.take(line)


class _Session:
    """Lo dicho hasta ahora y qué hacer con cada línea."""

    def __init__(
        self, engine: Engine, request: Request, seed: int, terminal: Terminal, system: str
    ) -> None:
        self._engine, self._request, self._terminal = engine, request, terminal
        self._talk = new_talk(engine, system)
        self._generator = engine.generator(seed)
        self._started = False

    def take(self, line: str) -> None:
        """Cumple una orden o contesta a un mensaje."""
        command = line.strip()
        if command == "/nuevo":
            self._talk.clear()
            self._started = False
            self._terminal.note("empezamos de nuevo")
        elif command == "/ayuda":
            self._terminal.write(_HELP if self._engine.chats else _HELP + _HELP_TEXT)
        elif re.fullmatch(r"/\w+", command):
            self._terminal.note(f"no hay ninguna orden {command}; /ayuda dice cuáles hay")
        elif command:
            self._reply(line)
        elif self._started and not self._engine.chats:
            self._reply("")

    def _reply(self, text: str) -> None:
        try:
            check_utf8(text)
            asked = self._talk.ask(text, _reserve(self._engine, self._request))
        except EnlaceError as error:
            self._terminal.note(str(error))
            return
        if not asked.ids:
            return
        self._started = True
        if asked.forgotten:
            self._terminal.note(_forgotten(self._engine, asked.forgotten))
        outcome = Outcome()
        try:
            for piece in self._engine.stream(asked.ids, self._request, self._generator, outcome):
                self._terminal.write(piece)
        except KeyboardInterrupt:
            outcome.ending = "cut"
        self._terminal.write("\n")
        self._talk.answer(outcome.ids, outcome.text)
        self._explain(outcome.ending)

    def _explain(self, ending: Ending) -> None:
        if ending == "cut":
            self._terminal.note("cortado")
        elif ending == "context":
            self._terminal.note(context_note(self._engine))
        elif ending == "limit" and self._engine.chats:
            # Al completar texto es lo corriente; al contestar, la frase queda a medias.
            length = counted(self._request.max_new_tokens, "token")
            self._terminal.note(f"se para en {length}: --max-new-tokens admite más")


def _reserve(engine: Engine, request: Request) -> int:
    """Sitio que se guarda para la respuesta: lo pedido, sin pasar de la mitad del contexto."""
    return min(request.max_new_tokens, engine.seq_len // 2)


def _forgotten(engine: Engine, count: int) -> str:
    if engine.chats:
        return f"no cabe todo: olvido lo más antiguo ({counted(count, 'turno')})"
    return f"no cabe todo: olvido el principio ({integer(count)} tokens)"


def _enable_line_editing() -> None:
    # Con `readline` cargado, `input` deja corregir la línea y volver a las anteriores.
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401


def standard_terminal() -> Terminal:
    """La de este proceso."""
    return Terminal(sys.stdin, sys.stdout, sys.stderr)
