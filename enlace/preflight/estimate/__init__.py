"""Prever sin la tarjeta: memoria, tiempo y qué ajustes convienen, a partir de la configuración.

Nada de aquí mide: todo es una estimación, y así se presenta.
"""
