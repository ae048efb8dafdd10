"""Saber en minutos si dos días de cálculo van a funcionar."""
