"""El arnés del caos: cortar un entrenamiento en cualquier momento y exigir que nada se pierda."""
