"""El `Modelfile` de Ollama: qué GGUF, con qué plantilla, dónde parar y qué muestreo."""

from enlace.config.schema import ExportConfig
from enlace.data.bpe import END_OF_TEXT, TURN_END
from enlace.export.source import Source
from enlace.export.templates import go_template
from enlace.figures import integer

MODELFILE = "Modelfile"


def modelfile(source: Source, gguf_file: str, settings: ExportConfig) -> str:
    """El contenido del `Modelfile`; `gguf_file` está en su misma carpeta.

    La plantilla se escribe aunque el GGUF lleve la suya: las versiones antiguas de Ollama no leen
    esa, y si no reconocen el texto eligen otra parecida.
    """
    ends = [TURN_END, END_OF_TEXT] if source.chats else [END_OF_TEXT]
    kind = "conversa" if source.chats else "completa texto; todavía no conversa"
    parameters = [
        ("num_ctx", source.shape.seq_len),
        ("temperature", settings.temperature),
        ("top_k", settings.top_k),
        ("top_p", settings.top_p),
        ("min_p", settings.min_p),
        ("repeat_penalty", settings.repeat_penalty),
        *(("stop", f'"{end}"') for end in ends),
    ]
    lines = [
        f"# {source.name}: {integer(source.model.num_parameters())} parámetros, {kind}.",
        f"# En esta carpeta: ollama create {source.name} -f {MODELFILE}",
        f"FROM ./{gguf_file}",
        f'TEMPLATE """{go_template(source.chats)}"""',
        *(f"PARAMETER {name} {value}" for name, value in parameters),
    ]
    return "\n".join(lines) + "\n"
