"""HTML: el texto principal de una página."""


def html_text(page: str) -> str:
    """El texto principal de `page`, sin navegación ni código; vacío si no lo hay."""
    import trafilatura

    return trafilatura.extract(page, include_comments=False, include_tables=True) or ""
