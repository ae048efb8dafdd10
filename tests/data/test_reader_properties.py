"""Para cualquier contenido: documentos y rechazos que lo cuentan todo, o un error claro."""

import bz2
import gzip
import json
import lzma
import tempfile
from collections.abc import Callable
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from enlace.data.documents import Document, Rejection
from enlace.data.readers import RawRecord, iterate_records, parse_record
from enlace.errors import DataError
from tests.data.builders import data_config, read_all, write_tree

_NAMES = [
    f"a{suffix}{compression}"
    for suffix in (".txt", ".md", ".html", ".json", ".jsonl", ".parquet")
    for compression in ("", ".gz", ".bz2", ".xz", ".zst")
]
_COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
}
_ODD = "aé€𝄞\ud800\ufeff\u2028\x00\x85 \n\r<>&"
_CONTENT = st.one_of(
    st.binary(max_size=200),
    st.text(alphabet=_ODD, max_size=80).map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.text(alphabet='{}[]":,ñ\\u \n\r', max_size=80).map(str.encode),
    st.text(alphabet="áñ¿ a\n", max_size=80).map(lambda text: text.encode("utf-16")),
)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(_NAMES), _CONTENT, st.sampled_from(["detect", "skip", "fail"]), st.booleans()
)
def test_ningun_contenido_da_otra_cosa_que_documentos_rechazos_o_un_error_claro(
    name: str, content: bytes, policy: str, compressed: bool
) -> None:
    suffix = Path(name).suffix
    if compressed and suffix in _COMPRESS:
        content = _COMPRESS[suffix](content)
    with tempfile.TemporaryDirectory() as folder:
        write_tree(Path(folder), {name: content})
        problem = ""
        try:
            documents, rejections = read_all(Path(folder), on_bad_bytes=policy)
        except DataError as error:
            documents, rejections, problem = [], [], str(error)
    assert documents or rejections or name in problem
    for document in documents:
        document.text.encode("utf-8")
        assert document.source.startswith(name)
    assert all(item.source.startswith(name) for item in rejections)


_LINE = st.one_of(
    st.text(alphabet='aé€𝄞\u2028\x85\x1c \\"\n', max_size=20).map(
        lambda text: json.dumps({"text": text}, ensure_ascii=False).encode()
    ),
    st.just(b'{"text": "' + b"x" * 3000 + b'"}'),
    st.just(b'{"otro": 1}'),
    st.just(b'{"text": "\xff"}'),
    st.binary(max_size=10).map(lambda line: line.replace(b"\n", b"")),
)


@settings(max_examples=40, deadline=None)
@given(st.lists(_LINE, max_size=12))
def test_cada_linea_con_algo_es_un_documento_o_un_rechazo(lines: list[bytes]) -> None:
    lines = [b'{"text": "vale"}', *lines]
    with tempfile.TemporaryDirectory() as folder:
        write_tree(Path(folder), {"a.jsonl": b"\n".join(lines)})
        documents, rejections = read_all(Path(folder), max_record_megabytes=0.002)
    found = [d.source for d in documents] + [r.source for r in rejections]
    expected = [f"a.jsonl:{n}" for n, line in enumerate(lines, start=1) if line.strip()]
    assert sorted(found) == sorted(expected)


@settings(max_examples=40, deadline=None)
@given(st.text(alphabet="añ¿\u2014 \n\r\t#-", max_size=400), st.sampled_from(["a.txt", "a.md"]))
def test_los_documentos_de_un_texto_unidos_son_el_texto(text: str, name: str) -> None:
    data = data_config(max_document_megabytes=60 / 10**6)
    with tempfile.TemporaryDirectory() as folder:
        write_tree(Path(folder), {name: text})
        items = list(iterate_records(Path(folder), data))
    payloads = [item.payload for item in items if isinstance(item, RawRecord)]
    assert b"".join(payload for payload in payloads if isinstance(payload, bytes)) == text.encode()
    parsed = [parse_record(item, data) for item in items if isinstance(item, RawRecord)]
    assert all(len(found) == 1 for found in parsed)
    assert all(isinstance(found[0], Document | Rejection) for found in parsed)
    if not text:
        assert [item.rule for item in items if isinstance(item, Rejection)] == ["empty"]
