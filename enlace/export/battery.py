"""Los textos con los que se comprueba un modelo exportado.

Cada uno ha roto, o puede romper, el tokenizador de algún motor: mayúsculas con tilde (las
expresiones de otros modelos las parten de otra manera en llama.cpp), signos que abren, cifras,
emoji de varias piezas, saltos de línea de Windows, espacios que no lo parecen, letras escritas en
dos trozos, código y texto que imita un token especial.
"""

HARD_TEXTS: dict[str, str] = {
    "mayúsculas con tilde": "LA PRÁCTICA MÁS LARGA: ACCIÓN, ESPAÑA, PINGÜINO, ÍÑIGO Y ÁRBOL",
    "eñes y diéresis": "El ñandú y la cigüeña añoran la antigüedad; vergüenza, ñoñez, Ñuñoa.",
    "signos que abren": "¿Qué?¡Qué!—dijo—. «¿Y ahora?», preguntó: ¡¡no!! ¿¡cómo!?",
    "cifras y fechas": "En 1936, el 7-11-2024 a las 09:05, 3,1416 y 1.234.567,89 € (50 %)",
    "emoji": "Hola 👋🏽 familia 👨\u200d👩\u200d👧\u200d👦, café ☕\ufe0f y ❤\ufe0f\u200d🔥 🇪🇸",
    "código": (
        "def f(x):\n\treturn {'a': [1, 2], \"b\": x**2}  # ¿sí?\n\n\n"
        "if __name__ == '__main__':\n    f(3)\n"
    ),
    "saltos de Windows": "Uno.\r\nDos.\r\n\r\nTres.\n\n\nCuatro.\r",
    "espacios raros": "a\u00a0b\u202fc\u2009d\u3000e   f\t\tg    \n   h ",
    "letras en dos trozos": "cami\u0301n nin\u0303o pingu\u0308ino E\u0301l",
    "contracciones": "I'll don't WE'RE l'aigua d'Olot O'Higgins 'S",
    "otras escrituras": "Ελλάδα, Москва, 日本語テスト, العربية, हिन्दी, x²+y²≤ℝ",
    "parece especial": "<|endoftext|> y <|im_start|>user\nhola<|im_end|> <|reserved_4|> <|nada|>",
    "sin espacios": "supercalifragilísticoespialidoso" * 3,
    "márgenes": "  \n empieza y acaba con espacio ",
    "control": "campana\x07 y escape\x1b[0m y \u200b cero",
}

PROMPTS = (
    "Había una vez",
    "La ESPAÑA de 1936 y la ACCIÓN",
    "¿Qué es un pingüino? —preguntó la niña—.",
    "def suma(a, b):\n    return",
)
"""Principios que se continúan, además de los de la configuración."""

CONVERSATION: tuple[dict[str, str], ...] = (
    {"role": "system", "content": "Responde en español."},
    {"role": "user", "content": "¿Qué hora es en ÁVILA?\nDímelo ya."},
    {"role": "assistant", "content": "Son las 9:05."},
    {"role": "user", "content": "¡Gracias! 😀"},
)
"""Una conversación con todos los papeles, para comparar plantillas."""
