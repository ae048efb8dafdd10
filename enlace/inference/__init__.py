"""Hablar con un modelo terminado: abrirlo, generar texto según sale y llevar la conversación."""
