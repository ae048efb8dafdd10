"""La etapa del corpus: leer, limpiar, quitar repetidos, repartir y contarlo."""
