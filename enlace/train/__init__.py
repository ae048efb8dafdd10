"""El bucle de entrenamiento y lo que necesita."""
