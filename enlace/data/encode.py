"""Del texto a ids: lotes de documentos, con el codificador rápido vigilado por la referencia."""

import threading
from collections.abc import Iterable, Iterator
from itertools import chain, pairwise
from pathlib import Path
from typing import NamedTuple

import fastokens
import numpy as np
import numpy.typing as npt

from enlace.data.chat import TurnMarkers, learned_bytes, render_turns, turn_markers
from enlace.data.corpus import CorpusDocument
from enlace.data.tokenizer import Ids, TextTokenizer, Tokenizer, load_tokenizer
from enlace.errors import DataError

_BATCH_CHARACTERS = 1 << 20
_BATCH_DOCUMENTS = 1024
_CHECKED_CHARACTERS = 500
# fastokens recuerda cada palabra distinta, unos 100 bytes, y no olvida ninguna: se rehace cada
# tantos caracteres para que la memoria no crezca con el corpus.
_RENEWED_CHARACTERS = 128 << 20
# Casos difíciles de los codificadores: siempre se comparan, tenga lo que tenga el corpus.
_HARD_TEXTS = (
    "",
    " ",
    "¡PRÁCTICA, MÁS ACCIÓN! ¿Ñandú?  Dos  espacios\n\n\n y saltos \t\n",
    "it's I'LL we'Ve 1234567 3,1416 «cita» —raya— …",
    "<|endoftext|><|im_start|>user\nhola<|im_end|><|pad|><|reserved_7|>",
    "日本語 العربية हिन्दी 👩‍👩‍👧 e\u0301 \u00a0\u2003fin",
)


class EncoderSettings(NamedTuple):
    """Lo que un codificador necesita saber."""

    tokenizer_dir: Path
    fast: bool
    format: str
    dtype: str


class EncodedBatch(NamedTuple):
    """Un lote de documentos ya en ids, cada uno con su `eos` al final.

    `ids` (N,) del tipo de los shards; `lengths` (D,) int64, tokens de cada documento; `mask` (N,)
    uint8 o None; `sizes` (D,) int64, bytes UTF-8 que se aprenden de cada uno; `copies` (D,) int64,
    veces que se escribe cada uno (None: una); `read_bytes`, los bytes UTF-8 de todo su texto.
    """

    ids: npt.NDArray[np.unsignedinteger]
    lengths: npt.NDArray[np.int64]
    mask: npt.NDArray[np.uint8] | None
    sizes: npt.NDArray[np.int64]
    copies: npt.NDArray[np.int64] | None = None
    read_bytes: int = 0


class Encoder:
    """Codifica lotes. Con `fast`, usa fastokens y lo compara con la referencia en cada lote."""

    def __init__(self, settings: EncoderSettings) -> None:
        """Carga el tokenizador.

        Raises:
            DataError: falta, no admite conversaciones, o el codificador rápido no coincide.
        """
        self.settings = settings
        self.tokenizer: Tokenizer = load_tokenizer(settings.tokenizer_dir)
        self._fast: FastEncoder | None = None
        self._markers: TurnMarkers | None = None
        if isinstance(self.tokenizer, TextTokenizer):
            if settings.fast:
                self._fast = FastEncoder(self.tokenizer)
                self._check(_HARD_TEXTS, "los casos de prueba")
            self._markers = turn_markers(self.tokenizer)
        if settings.format == "chat" and self._markers is None:
            raise DataError(
                "data.format=chat necesita tokens de turno y el tokenizador de bytes no los tiene; "
                "pon data.tokenizer.kind: bpe"
            )

    def encode(self, documents: list[CorpusDocument]) -> EncodedBatch:
        """Codifica un lote.

        Raises:
            DataError: el codificador rápido y la referencia difieren.
        """
        if self._fast is not None:
            self._check([documents[0].text[:_CHECKED_CHARACTERS]], documents[0].source)
        chat = self.settings.format == "chat"
        return self._encode_chat(documents) if chat else self._encode_text(documents)

    def _encode_text(self, documents: list[CorpusDocument]) -> EncodedBatch:
        encoder = self._fast or self.tokenizer
        ids = encoder.encode_arrays([document.text for document in documents])
        sizes = [len(document.text.encode("utf-8")) for document in documents]
        return self._join(documents, ids, None, sizes)._replace(read_bytes=sum(sizes))

    def _encode_chat(self, documents: list[CorpusDocument]) -> EncodedBatch:
        assert self._markers is not None
        encoder = self._fast or self.tokenizer
        turns = [turn for document in documents for turn in document.turns]
        contents = iter(encoder.encode_arrays([turn.content for turn in turns]))
        rendered = [
            render_turns(document.turns, [next(contents) for _ in document.turns], self._markers)
            for document in documents
        ]
        ids, masks = [ids for ids, _ in rendered], [mask for _, mask in rendered]
        sizes = [learned_bytes(document.turns) for document in documents]
        read = sum(len(document.text.encode("utf-8")) for document in documents)
        return self._join(documents, ids, masks, sizes)._replace(read_bytes=read)

    def _join(
        self,
        documents: list[CorpusDocument],
        ids: list[Ids],
        masks: list[npt.NDArray[np.uint8]] | None,
        sizes: list[int],
    ) -> EncodedBatch:
        eos = np.array([self.tokenizer.eos_id], dtype=np.uint32)
        joined = np.concatenate(list(chain.from_iterable((each, eos) for each in ids)))
        dtype = np.dtype(self.settings.dtype)
        if int(joined.max()) > np.iinfo(dtype).max:
            raise DataError(
                f"el id {int(joined.max())} no cabe en {dtype}; reduce model.vocab_size y vuelve a "
                "entrenar el tokenizador"
            )
        mask = None
        if masks is not None:
            unlearned = np.zeros(1, dtype=np.uint8)
            mask = np.concatenate(list(chain.from_iterable((each, unlearned) for each in masks)))
        lengths = np.array([len(each) + 1 for each in ids], dtype=np.int64)
        copies = np.array([document.copies for document in documents], dtype=np.int64)
        return EncodedBatch(joined.astype(dtype), lengths, mask, np.array(sizes, np.int64), copies)

    def _check(self, texts: Iterable[str], where: str) -> None:
        assert self._fast is not None
        texts = list(texts)
        pairs = zip(
            self._fast.encode_arrays(texts), self.tokenizer.encode_arrays(texts), strict=True
        )
        for text, (fast, reference) in zip(texts, pairs, strict=True):
            if not np.array_equal(fast, reference):
                raise DataError(
                    f"el codificador rápido da otros ids que la referencia en {where}: "
                    f"{text[:60]!r}; pon data.tokenizer.fast_encoder: false"
                )


class FastEncoder:
    """fastokens sobre el mismo `tokenizer.json`: los mismos ids, unas veinte veces más deprisa."""

    def __init__(self, reference: TextTokenizer, renewed: int = _RENEWED_CHARACTERS) -> None:
        """Construye el codificador, que cada `renewed` caracteres se rehace y olvida las palabras.

        Raises:
            DataError: fastokens no admite este tokenizador.
        """
        self._content, self._renewed = reference.to_json(), renewed
        self._tokenizer, self._left = self._build(), renewed
        self._lock = threading.Lock()

    def _build(self) -> fastokens.Tokenizer:
        try:
            return fastokens.Tokenizer.from_json_str(self._content)
        except Exception as error:  # la biblioteca no documenta una clase más concreta
            raise DataError(
                f"fastokens no admite este tokenizador ({error}); "
                "pon data.tokenizer.fast_encoder: false"
            ) from error

    def encode_arrays(self, texts: list[str]) -> list[Ids]:
        """Los ids de cada texto; los tokens especiales escritos en él son texto corriente."""
        flat, offsets = self._fresh(sum(map(len, texts))).encode_batch_flat(
            texts, add_special_tokens=False, split_special_tokens=True
        )
        ids = np.frombuffer(flat, dtype="<u4")
        limits = np.frombuffer(offsets, dtype="<u8").astype(np.int64)
        return [ids[start:stop] for start, stop in pairwise(limits)]

    def _fresh(self, characters: int) -> fastokens.Tokenizer:
        """El codificador para esos caracteres: el de antes o, si ya recuerda mucho, uno nuevo."""
        with self._lock:
            if self._left <= 0:
                del self._tokenizer  # antes de hacer el nuevo: los dos a la vez abultan
                self._tokenizer, self._left = self._build(), self._renewed
            self._left -= characters
            return self._tokenizer


def batches_of(documents: Iterable[CorpusDocument]) -> Iterator[list[CorpusDocument]]:
    """Agrupa documentos en lotes de un mebicarácter como mucho (o de un solo documento mayor).

    El reparto depende solo de los documentos, no de los procesos.
    """
    batch: list[CorpusDocument] = []
    characters = 0
    for document in documents:
        full = characters + len(document.text) > _BATCH_CHARACTERS
        if batch and (full or len(batch) == _BATCH_DOCUMENTS):
            yield batch
            batch, characters = [], 0
        batch.append(document)
        characters += len(document.text)
    if batch:
        yield batch
