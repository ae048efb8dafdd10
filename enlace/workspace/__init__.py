"""Lo que hacen las órdenes de `enlace` sobre el proyecto. Solo `generate` importa torch."""
