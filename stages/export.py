"""Etapa export: entregar el modelo a otros programas, tras comprobar que dicen lo mismo."""

from enlace.export.requirements import require_extra
from enlace.paths import CORPUS_REPORT, EVALUATION_REPORTS, EXPORT_REPORT, EXPORTED, MODEL
from stages.start import stage


def main() -> None:
    """Escribe la carpeta exportada y el informe; si lo exportado no es el modelo, falla."""
    with stage("export") as view:
        require_extra()

        from enlace.export.build import export_model
        from enlace.export.card import read_facts
        from enlace.export.report import write_export_report

        report = export_model(
            MODEL,
            EXPORTED,
            view.export,
            prompts=view.data.evaluation.prompts,
            facts=read_facts(CORPUS_REPORT, EVALUATION_REPORTS / "metrics.json"),
            say=lambda line: print(line, flush=True),
        )
        write_export_report(report, EXPORT_REPORT)
        print(f"exportado en {EXPORTED}/; cómo usarlo: {EXPORTED}/README.md")


if __name__ == "__main__":
    main()
