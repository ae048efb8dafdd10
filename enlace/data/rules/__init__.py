"""La tabla de reglas de limpieza: arreglos, cortes y filtros, cada uno con su cuenta."""
