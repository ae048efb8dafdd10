"""Las etapas de la tubería: una página cada una, llamadas por DVC con `python -m`."""
