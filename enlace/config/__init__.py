"""Configuración: capas YAML → validación → identidad. Importar este paquete no importa torch."""
