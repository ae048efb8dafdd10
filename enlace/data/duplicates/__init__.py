"""Repetidos: iguales, casi iguales y contenidos unos en otros."""
