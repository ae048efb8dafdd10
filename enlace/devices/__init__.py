"""¿Corresponde el perfil a la máquina? Reglas puras sobre la descripción de un dispositivo."""
