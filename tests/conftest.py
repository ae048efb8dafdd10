"""Hypothesis en todas las pruebas: repetible, sin plazos de tiempo y sin base de datos en disco."""

from hypothesis import settings

settings.register_profile("enlace", deadline=None, derandomize=True, database=None, max_examples=60)
settings.load_profile("enlace")
