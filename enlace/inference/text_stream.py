"""De los ids que van saliendo al texto que se puede enseñar, sin caracteres a medias."""

import codecs
from collections.abc import Sequence

from tokenizers.decoders import DecodeStream

from enlace.data.tokenizer import TextTokenizer, Tokenizer


class TextStream:
    """Convierte ids en trozos de texto y para donde aparece una frase de parada.

    Un carácter UTF-8 repartido en varios tokens no sale hasta que está entero, y lo que podría ser
    el principio de una frase de parada, hasta que se sabe si lo es.
    """

    def __init__(self, tokenizer: Tokenizer, stops: Sequence[str] = ()) -> None:
        self._tokenizer = tokenizer
        self._stops = [stop for stop in stops if stop]
        self._held = ""
        self._bytes = codecs.getincrementaldecoder("utf-8")("replace")
        self._tokens = DecodeStream(skip_special_tokens=True)
        self.stopped = False
        """Si ha aparecido una frase de parada; lo que venga después no cuenta."""

    def push(self, identifier: int) -> str:
        """El texto nuevo que ya se puede enseñar tras un id más."""
        if self.stopped:
            return ""
        self._held += self._decoded(identifier)
        found = [at for stop in self._stops if (at := self._held.find(stop)) >= 0]
        if found:
            self.stopped = True
            shown, self._held = self._held[: min(found)], ""
            return shown
        size = len(self._held) - self._undecided()
        shown, self._held = self._held[:size], self._held[size:]
        return shown

    def close(self) -> str:
        """Lo que se retenía por si era una parada. Un carácter que no se acabó se pierde."""
        shown, self._held = self._held, ""
        return shown

    def _decoded(self, identifier: int) -> str:
        if not isinstance(self._tokenizer, TextTokenizer):
            return self._bytes.decode(bytes([identifier]))
        if identifier >= self._tokenizer.vocab_size:
            return ""
        return self._tokenizer.decode_step(self._tokens, identifier)

    def _undecided(self) -> int:
        """Cuántos caracteres del final son el principio de alguna frase de parada."""
        longest = max((len(stop) for stop in self._stops), default=1) - 1
        for size in range(min(longest, len(self._held)), 0, -1):
            if any(stop.startswith(self._held[-size:]) for stop in self._stops):
                return size
        return 0
