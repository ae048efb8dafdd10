"""Servir un modelo exportado: API de OpenAI y página propia delante de llama.cpp."""
