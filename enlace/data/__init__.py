"""Texto → documentos limpios → tokenizador → shards → lotes."""
