"""Pruebas del linaje."""
