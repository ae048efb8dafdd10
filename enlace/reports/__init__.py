"""Lo que los informes comparten: números en español, tablas, la página HTML y la curva."""
