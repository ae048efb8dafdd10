"""Cómo se llama en el informe cada regla de la preparación."""

KINDS = {"changed": "arregla", "cut": "recorta", "dropped": "deja fuera"}

RULES = {
    "mojibake": "texto mal descodificado",
    "html": "etiquetas y entidades sueltas",
    "line_ends": "fines de línea",
    "control": "caracteres de control",
    "invisible": "caracteres invisibles",
    "nfc": "composición Unicode",
    "whitespace": "espacios sobrantes",
    "boilerplate": "navegación y avisos",
    "language": "otras lenguas",
    "length": "demasiado corto o demasiado largo",
    "quality": "no es prosa",
    "repetition": "se repite por dentro",
    "personal_data": "datos personales",
    "empty": "sin texto",
    "empty_turn": "turno vacío",
    "bad_bytes": "bytes que no son texto",
    "bad_record": "registro que no se entiende",
    "too_long": "registro demasiado grande",
    "unknown_format": "formato que no se lee",
    "contamination": "contiene textos de evaluación",
    "duplicate": "copia exacta de otro",
    "near_duplicate": "casi igual que otro",
    "contained": "su texto ya está en otros",
    "weight": "fuera por el peso de su fuente",
}
"""Una regla que falte aquí sale con su clave."""
