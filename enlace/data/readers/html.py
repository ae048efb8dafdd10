"""HTML: el texto de una página, sin la navegación ni lo que no se ve.

resiliparse analiza como un navegador y separa los bloques con líneas en blanco. Se quitan por su
nombre los elementos que ninguna página usa para su texto, y no se le pide el «contenido principal»:
ese modo descarta listas cortas y comillas marcadas con `<span>`, que en una receta o en un diálogo
son el texto. Lo que quede de navegación es de la regla `boilerplate`.
"""

_SKIPPED_ELEMENTS = [
    "nav",
    "aside",
    "footer",
    "form",
    "button",
    "dialog",
    "template",
    "svg",
    "body > header",
    "[role=navigation]",
    "[role=banner]",
    "[role=contentinfo]",
    "[role=search]",
    "[hidden]",
    "[aria-hidden=true]",
]
_SKIPPED_NAMES = (
    "nav",
    "navbar",
    "navigation",
    "navheader",
    "navfooter",
    "menu",
    "sidebar",
    "breadcrumb",
    "breadcrumbs",
    "footer",
    "cookie",
    "cookies",
    "share",
    "social",
)
"""Clases o identificadores enteros: `menu` quita `class="menu"` y no `class="menu-del-dia"`."""


def html_text(page: str) -> str:
    """El texto de `page`, con los párrafos separados por una línea en blanco.

    Raises:
        ValueError: el analizador no puede con la página.
    """
    from resiliparse.extract.html2text import extract_plain_text

    named = [f"{mark}{name}" for name in _SKIPPED_NAMES for mark in ".#"]
    try:
        text = extract_plain_text(
            page,
            main_content=False,
            alt_texts=False,
            skip_elements=[*_SKIPPED_ELEMENTS, *named],
        )
    except Exception as error:
        # Sus excepciones no heredan de nada común, y una página no debe parar el corpus.
        raise ValueError(f"no se puede analizar el HTML: {error}") from error
    return str(text)
