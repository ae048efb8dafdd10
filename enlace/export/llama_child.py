"""El proceso que abre un GGUF con llama.cpp y atiende en la propia máquina hasta que lo paran.

    python -m enlace.export.llama_child PADRE MODELO CONTEXTO PRECISION

Escribe su dirección en la salida estándar cuando está listo. Con PRECISION `exact`, claves y
valores en fp32 y sin flash attention: así sus logits son los de una referencia en fp32.
"""

import sys

from enlace.llama_process import attend, cpu_params
from enlace.process import die_with_parent


def main() -> None:
    """Atiende hasta recibir SIGTERM o quedarse sin padre."""
    parent, model, context, precision = sys.argv[1:]
    die_with_parent(int(parent))
    params = cpu_params(model, int(context), parallel=1)
    if precision == "exact":
        import xllamacpp

        params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
        attention = xllamacpp.llama_flash_attn_type
        params.flash_attn_type = attention.LLAMA_FLASH_ATTN_TYPE_DISABLED
    attend(params)


if __name__ == "__main__":
    main()
