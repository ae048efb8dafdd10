"""Lo que vale en todas las pruebas.

Hypothesis es repetible, sin plazos de tiempo y sin base de datos en disco. Y las señales empiezan
como en una terminal: quien lanza las pruebas en segundo plano o con nohup deja ignoradas las de
cortar y colgar, y los procesos que ellas lanzan lo heredarían.
"""

import signal

import pytest
from hypothesis import settings

settings.register_profile("enlace", deadline=None, derandomize=True, database=None, max_examples=60)
settings.load_profile("enlace")


def pytest_configure(config: pytest.Config) -> None:
    """Cortar y colgar hacen lo de siempre, aquí y en lo que se lance desde aquí."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
