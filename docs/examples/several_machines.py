"""Limpiar un corpus entre varias máquinas con datatrove, con los lectores y reglas de siempre.

    python docs/examples/several_machines.py CARPETA SALIDA MÁQUINA DE_CUÁNTAS

Cada máquina (de 0 en adelante) recorre los mismos registros y limpia uno de cada tantos; lo limpio
queda en SALIDA, un jsonl.gz por máquina. Los ajustes son los de params.yaml.
"""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from datatrove.data import Document as TroveDocument
from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.base import PipelineStep
from datatrove.pipeline.writers.jsonl import JsonlWriter

from enlace.config.load import PARAMS_FILE, load_config
from enlace.config.schema import DataConfig
from enlace.data.documents import Document
from enlace.data.readers import RawRecord, iterate_records, parse_record
from enlace.data.rules.table import RuleTable


class CleanShare(PipelineStep):
    """Los documentos limpios de los registros que tocan a esta máquina."""

    name = "ENLACE"
    type = "Reader"

    def __init__(self, folder: Path, data: DataConfig) -> None:
        super().__init__()
        self.folder = folder
        self.data = data

    def run(
        self, data: Iterable[TroveDocument] | None = None, rank: int = 0, world_size: int = 1
    ) -> Iterator[TroveDocument]:
        """Lo que datatrove pide a cada paso; este es el primero y no recibe nada."""
        table = RuleTable(self.data)
        for number, record in enumerate(iterate_records(self.folder, self.data)):
            if number % world_size == rank and isinstance(record, RawRecord):
                for document in parse_record(record, self.data):
                    cleaned = table.clean(document) if isinstance(document, Document) else None
                    if cleaned is not None and cleaned.document is not None:
                        found = cleaned.document
                        yield TroveDocument(found.text, found.source, metadata={"document": found})


def line_of(data: DataConfig) -> Any:
    """Cómo se escribe cada documento: con los campos que después leerá la etapa corpus."""

    def line(_writer: JsonlWriter, trove: TroveDocument) -> dict[str, Any]:
        found: Document = trove.metadata["document"]
        if found.turns:
            record: dict[str, Any] = {"messages": [turn._asdict() for turn in found.turns]}
        else:
            record = {data.text_column: found.text}
        labels = {data.genre_column: found.genre, data.license_column: found.license}
        return record | {column: label for column, label in labels.items() if column and label}

    return line


def clean_share(folder: Path, output: Path, data: DataConfig, machine: int, machines: int) -> None:
    """La parte de una máquina. `machines` son las tareas de datatrove; aquí se hace una."""
    writer = JsonlWriter(str(output), "limpio-${rank}.jsonl.gz", adapter=line_of(data))
    LocalPipelineExecutor(
        [CleanShare(folder, data), writer],
        tasks=machines,
        local_tasks=1,
        local_rank_offset=machine,
        workers=1,
        logging_dir=str(output / ".datatrove"),
    ).run()


if __name__ == "__main__":
    settings = load_config(Path(PARAMS_FILE)).data
    clean_share(Path(sys.argv[1]), Path(sys.argv[2]), settings, int(sys.argv[3]), int(sys.argv[4]))
