"""Cómo se convierte una conversación en el texto que lee el modelo, para cada programa.

Un modelo que conversa usa ChatML, el formato con el que aprendió (`enlace/data/chat.py`). Uno que
solo continúa textos no ha visto nunca los marcadores: su plantilla junta lo escrito, y en un
programa de conversar el modelo sigue lo que escriba la persona. Las instrucciones de sistema van
delante, en su línea: si la plantilla las callara, llama.cpp las pondría así de todos modos.
"""

# Letra por letra la que Ollama reconoce como ChatML al leer un GGUF.
_CHAT_JINJA = (
    "{% for message in messages %}"
    "{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
_BASE_JINJA = (
    "{% for message in messages %}"
    "{{ message['content'] }}{% if message['role'] == 'system' %}{{ '\\n' }}{% endif %}"
    "{% endfor %}"
)
_CHAT_GO = (
    "{{- range .Messages }}<|im_start|>{{ .Role }}\n"
    "{{ .Content }}<|im_end|>\n"
    "{{ end }}<|im_start|>assistant\n"
)
_BASE_GO = "{{ .Prompt }}"


def jinja_template(chats: bool) -> str:
    """La plantilla de transformers, llama.cpp y LM Studio."""
    return _CHAT_JINJA if chats else _BASE_JINJA


def go_template(chats: bool) -> str:
    """La plantilla de Ollama, en el lenguaje de plantillas de Go."""
    return _CHAT_GO if chats else _BASE_GO
