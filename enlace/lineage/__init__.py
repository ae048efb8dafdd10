"""De dónde viene un modelo: contarlo, comprobarlo y volver a hacerlo."""
