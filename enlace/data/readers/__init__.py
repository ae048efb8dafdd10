"""Lectores: de una carpeta a registros crudos, y de un registro a documentos.

`iterate_records` corre en un solo proceso: elige ficheros, descomprime y parte en registros, sin
entenderlos. `parse_record` es una función pura que puede correr en cualquier otro: descodifica,
entiende JSON, HTML o Markdown y saca las columnas.
"""

from enlace.data.readers.iterate import iterate_records
from enlace.data.readers.parse import parse_record
from enlace.data.readers.records import RawRecord

__all__ = ["RawRecord", "iterate_records", "parse_record"]
