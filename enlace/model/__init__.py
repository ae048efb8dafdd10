"""El modelo: arquitectura, pérdida, generación y cuentas."""
