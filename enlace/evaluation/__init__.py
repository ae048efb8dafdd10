"""Qué sabe hacer un modelo terminado: pérdida, muestras e informe."""
