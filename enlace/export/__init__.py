"""Del modelo terminado a los programas de siempre: transformers, llama.cpp, LM Studio y Ollama.

Nada sale de aquí sin comprobar: lo que se escribe se abre con transformers y con un llama.cpp de
verdad, y se compara con el modelo de ENLACE (`enlace/export/proof.py`).
"""
