"""La plantilla frente a la de transformers: los mismos ids y la misma máscara."""

from pathlib import Path
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from enlace.data.chat import render_question, turn_markers
from enlace.data.corpus import CorpusDocument
from enlace.data.documents import Turn
from enlace.data.encode import Encoder, EncoderSettings
from enlace.data.tokenizer import TextTokenizer
from tests.data.builders import bpe, conversations, prepare

_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% if message.role == 'assistant' %}{% generation %}{{ message.content }}<|im_end|>"
    "{% endgeneration %}{% else %}{{ message.content }}<|im_end|>{% endif %}"
    "{{ '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_DIALOGUES = {
    "una vuelta": (Turn("user", "¿Qué hora es?"), Turn("assistant", "Las tres.")),
    "sistema y dos vueltas": (
        Turn("system", "Responde en español."),
        Turn("user", "Cuenta hasta 3:\n\n1, 2…"),
        Turn("assistant", "3\n  — y ya está —\n\n¡Listo!"),
        Turn("user", "¿Y después?"),
        Turn("assistant", "4, ÁÉÍ ñandú 🦤 e\u0301"),
    ),
    "acaba preguntando": (Turn("assistant", "Hola."), Turn("user", "¿Sí?")),
    "dos preguntas seguidas": (
        Turn("user", "Oye"),
        Turn("user", "¿estás?"),
        Turn("assistant", "Aquí estoy"),
    ),
}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    changes = bpe(400, **{"data.format": "chat", "data.include": ["*.jsonl"]})
    folder = tmp_path_factory.mktemp("chat_template")
    return prepare(folder, {"c.jsonl": conversations(40)}, changes).tokenizer


@pytest.fixture(scope="module")
def reference(tokenizer: Path) -> Any:
    return PreTrainedTokenizerFast(
        tokenizer_file=str(tokenizer / "tokenizer.json"), chat_template=_TEMPLATE
    )


@pytest.mark.parametrize("turns", _DIALOGUES.values(), ids=_DIALOGUES)
@pytest.mark.parametrize("fast", [True, False])
def test_ids_y_mascara_son_los_de_transformers(
    tokenizer: Path, reference: Any, turns: tuple[Turn, ...], fast: bool
) -> None:
    expected = reference.apply_chat_template(
        [turn._asdict() for turn in turns],
        tokenize=True,
        return_dict=True,
        return_assistant_tokens_mask=True,
    )
    encoder = Encoder(EncoderSettings(tokenizer, fast, "chat", "uint16"))
    text = "\n".join(turn.content for turn in turns)
    found = encoder.encode([CorpusDocument("0" * 32, text, "a:1", turns)])
    assert found.mask is not None
    assert found.ids.tolist() == [*expected["input_ids"], 0]  # y el separador de documentos
    assert found.mask.tolist() == [*expected["assistant_masks"], 0]


def test_la_pregunta_suelta_es_el_principio_que_da_transformers(
    tokenizer: Path, reference: Any
) -> None:
    question = "¿Cómo quito una mancha de vino?"
    expected = reference.apply_chat_template(
        [{"role": "user", "content": question}],
        tokenize=True,
        return_dict=True,
        add_generation_prompt=True,
    )
    own = TextTokenizer.load(tokenizer)
    assert render_question(own.encode(question), turn_markers(own)) == expected["input_ids"]
