"""ENLACE: entrenar desde cero un modelo de lenguaje en español con la GPU de casa."""
