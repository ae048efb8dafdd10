"""Las frases de navegación y de aviso que `boilerplate` reconoce, en minúsculas."""

import re


def words(text: str, separator: str | None = None) -> frozenset[str]:
    """Las palabras, o las frases separadas por `separator`, de un texto de varias líneas."""
    return frozenset(" ".join(part.split()) for part in text.split(separator))


_NETWORK = (
    r"(?:facebook|twitter|x|whatsapp|telegram|linkedin|pinterest|instagram|tumblr|reddit|"
    r"men[eé]ame|tiktok|youtube|bluesky|mastodon|flipboard|correo(?: electrónico)?|e-?mail)"
)
_NUMBER = r"\d[\d.,]{0,11}(?: ?(?:mil|k|m))?"
_COUNTED = (
    r"(?:comentarios?|me gusta|compartidos?|veces compartido|visitas|visualizaciones|seguidores|"
    r"respuestas|likes|retuits)"
)
_RELATED = r"(?:artículos|noticias|entradas|notas|contenidos|lecturas)"
_PATTERNS = (
    # Compartir y seguir.
    rf"(?:compartir|comparte|compártelo|tuitear|enviar|síguenos|seguir|seguinos)"
    rf"(?: (?:esto|este (?:artículo|contenido)|esta (?:noticia|página)))?"
    rf"(?: (?:en|por|vía|a través de|con))? {_NETWORK}(?:(?:,| y| o| ·| \|)? (?:en )?{_NETWORK})*",
    r"(?:haz |haga )?cli(?:c|ck) (?:aquí )?para (?:compartir|enviar|imprimir)\b.*",
    # Derechos.
    r"(?:.{0,80}\W)?(?:todos los|(?:quedan )?reservados todos los) derechos(?: reservados)?"
    r"(?:\W.{0,60})?",
    r"(?:copyright\b|©|\(c\)) ?.{0,20}\b(?:19|20)\d\d\b.{0,90}",
    # Cookies.
    r"(?=.*\bcookies?\b).*\b(?:(?:este|nuestro) sitio|(?:esta|nuestra) (?:web|página)|utilizamos|"
    r"usamos|propias y de terceros|política de cookies|(?:acepta|rechaza)r? (?:todas|el uso)|"
    r"(?:continúas?|sigues?) navegando|configurar cookies)\b.*",
    r"(?:aceptar|rechazar|configurar)(?: todas)?(?: las)? cookies",
    # Leer más, volver, saltar.
    r"(?:leer|ver|mostrar|cargar) más(?: (?:noticias|artículos|entradas|comentarios|resultados|"
    r"sobre este tema))?",
    r"ver (?:todo|todos|todas)(?: (?:las noticias|los artículos|los comentarios))?",
    r"(?:leer|ver)(?: el| la)? (?:artículo|nota|noticia|entrada) complet[oa]",
    r"(?:continuar|continúa|seguir|sigue|siga) leyendo",
    r"(?:volver|ir|subir) (?:arriba|al inicio|al menú|al principio de la página)",
    r"(?:saltar|ir|pasar) al (?:contenido|menú|pie)(?: principal)?",
    # Sesiones, boletines y comentarios.
    r"(?:iniciar sesión|inicia sesión|registrarse|regístrate|crear (?:una )?cuenta|cerrar sesión)"
    r"(?: (?:para comentar|o regístrate|ahora|gratis))?",
    r"(?:suscríbete|suscríbase|suscribite|suscribirse)(?: (?:ahora|gratis|aquí))?"
    r"(?: al? .{0,60}(?:bolet[ií]n|newsletter|canal|noticias|novedades|lista).{0,40})?",
    r"(?:tu|su) (?:dirección de )?(?:correo(?: electrónico)?|email) no será publicad[oa].*",
    r"los campos (?:obligatorios|necesarios|requeridos) est[aá]n marcados.*",
    r"(?:deja|dejar|escribe|escribir|publicar|añadir|agregar|enviar)(?: un| tu| una)?"
    r"(?: comentario| respuesta)(?: cancelar (?:la )?respuesta)?",
    r"(?:activa|active|habilita|habilite|debes activar|necesitas activar) (?:el )?javascript.*",
    r"(?:tu|su) navegador no (?:soporta|admite|es compatible).*",
    # Enlaces a otras páginas, contadores, paginadores y firmas del programa.
    rf"también (?:te|le) (?:puede|podría) interesar|(?:te|le) puede interesar|te recomendamos|"
    rf"{_RELATED} relacionad[oa]s|lo más (?:leído|visto)",
    rf"{_NUMBER} {_COUNTED}(?:[ ·|,]{{1,3}}{_NUMBER} {_COUNTED})*",
    rf"(?:visto|leído|compartido) {_NUMBER} veces",
    r"[«‹<←]{0,2} ?anterior [\d |·…]{0,80}(?:siguiente ?[»›>→]{0,2})?",
    r"\d[\d |·…]{1,80}siguiente ?[»›>→]{0,2}",
    r"(?:desarrollado|funciona|creado|diseñado) (?:con|por) "
    r"(?:wordpress|blogger|joomla|drupal|wix)\b.*",
)
# La línea entera, en minúsculas, salvo los signos del final.
UNMISTAKABLE = re.compile(rf"(?:{'|'.join(_PATTERNS)})[\s.:…»>!]{{0,5}}")
# Dudosas sueltas; en fila, un menú.
MENU = words(
    """inicio|portada|menú|menu|buscar|búsqueda|contacto|contáctanos|contactar|quiénes somos|
    nosotros|acerca de|sobre nosotros|aviso legal|política de privacidad|política de cookies|
    privacidad|términos y condiciones|términos de uso|condiciones de uso|condiciones generales|
    mapa del sitio|mapa web|accesibilidad|publicidad|anúnciate|anuncio|trabaja con nosotros|ayuda|
    faq|preguntas frecuentes|noticias|deportes|economía|política|sociedad|internacional|nacional|
    cultura|opinión|tecnología|ciencia|salud|vídeos|videos|fotos|galería|blog|tienda|carrito|
    mi cuenta|acceder|entrar|salir|suscríbete|suscripción|boletín|newsletter|hemeroteca|archivo|
    archivos|categorías|etiquetas|comentarios|compartir|imprimir|enviar|enviar por correo|guardar|
    descargar|pdf|rss|siguiente|anterior|siguiente »|« anterior|atrás|cerrar|aceptar|rechazar|
    facebook|twitter|instagram|youtube|whatsapp|telegram|linkedin|pinterest|tiktok|servicios|
    productos|empresa|noticias relacionadas|espectáculos|local|sucesos|gente|clasificados|
    horóscopo|el tiempo|programación|directo|en directo|últimas noticias|lo último|especiales|
    newsletters|español|english|català|galego|euskara""",
    "|",
)
