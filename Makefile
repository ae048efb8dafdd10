# Las órdenes del proyecto. `make` sin más enseña esta ayuda.
.DEFAULT_GOAL := help
.NOTPARALLEL:
MAKEFLAGS += --no-builtin-rules

PYTHON ?= python3
BIN := .venv/bin
ENLACE := $(BIN)/python -m enlace
DVC := $(BIN)/python -m enlace.workspace.dvc_cli
# Sin compilar de antemano: la mitad del trabajo de instalar eran módulos que nadie llega a importar.
PIP := $(BIN)/python -m pip install --disable-pip-version-check --no-compile --constraint .constraints.txt
# Un proceso de pruebas por núcleo, con un hilo de cálculo cada uno: dos a la vez se estorbarían.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n logical --dist loadfile
LIGHT := .venv/.enlace-light
DEV := .venv/.enlace-dev
EXPORT := .venv/.enlace-export

# Va sin sus dependencias: pide un huggingface-hub anterior al de transformers, y no lo usa al entrenar.
LITGPT := litgpt==0.5.13
BENCH = $(if $(WORK),--work $(WORK)) $(if $(ONLY),--only $(ONLY)) $(if $(PAIRS),--pairs $(PAIRS)) \
	$(if $(DEVICE),--device $(DEVICE)) $(if $(PROFILE),--profile $(PROFILE)) $(if $(MALLOC),--malloc $(MALLOC))

# Las etapas de dvc.yaml llaman a `python`: debe ser el de este entorno.
export PATH := $(CURDIR)/$(BIN):$(PATH)
# Viajan por el entorno, para que una ruta con espacios o comillas llegue entera.
export RUN SET SRC SEARCH YES DIR ROUNDS KILLS SEED

ORDERS := help setup setup-dev demo test bench bench-generate bench-peers bench-checkpoint check format preflight params \
	check-params bench-corpus chaos train evaluate export chat serve exp corpus status logs stop report unlock \
	prune accept-code push pull deps lock guard need-run run-for-set
# Lo que existe y no es una orden: make diría de ello, en inglés, que está al día.
OTHERS := $(wildcard $(filter-out $(ORDERS) .%,$(MAKECMDGOALS)))
.PHONY: $(ORDERS) $(OTHERS)

help: ## Enseña esta ayuda
	@awk 'BEGIN {FS = ":.*## "} \
		/^##@ / {printf "\n%s\n", substr($$0, 5)} \
		/^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

##@ Empezar
demo: setup ## De un clon recién hecho a un modelo diminuto, en CPU: instala, mide, entrena y evalúa
	@$(ENLACE) require-run demo
	@exec $(ENLACE) repro --single-item --force preflight
	@exec $(ENLACE) repro evaluate
	@echo "demo terminada: abre reports/evaluation/report.html"

setup: $(LIGHT) ## Instala lo necesario para entrenar, en .venv

setup-dev: $(DEV) ## Instala además las herramientas de desarrollo

##@ Entrenar
corpus: $(LIGHT) ## Copia tu texto a data/raw: make corpus SRC=carpeta; sin SRC, descarga el del run
	@if [ -n "$$SRC" ]; then exec $(ENLACE) corpus -- "$$SRC"; \
		else exec $(ENLACE) corpus --download; fi

params: need-run $(LIGHT) ## Pone un run en params.yaml: make params RUN=pretrain-2060 [SET="train.lr=3e-4"]
	@exec $(ENLACE) params --set "$$SET" -- "$$RUN"

check-params: $(LIGHT) ## Enseña en qué difiere params.yaml de su run
	@exec $(ENLACE) check-params

preflight: run-for-set $(LIGHT) ## Mide si el run de params.yaml cabe y cuánto tarda; SEARCH=1, RUN=… (estima)
	@if [ -n "$$RUN" ] && [ -n "$$SEARCH" ]; then \
		echo "enlace: SEARCH=1 mide el run de params.yaml; quita RUN o ponlo con make params" >&2; exit 2; \
		elif [ -n "$$RUN" ]; then exec $(ENLACE) estimate --set "$$SET" -- "$$RUN"; \
		elif [ -n "$$SEARCH" ]; then exec $(BIN)/python -m stages.preflight --search; \
		else exec $(ENLACE) repro --single-item --force preflight; fi

train: run-for-set $(LIGHT) ## Entrena el run de params.yaml, o sigue donde iba: make train [RUN=…]
	@if [ -n "$$RUN" ]; then $(ENLACE) params --keep-edits --set "$$SET" -- "$$RUN"; fi
	@exec $(ENLACE) repro --pull pretrain

evaluate: $(LIGHT) ## Mide el modelo terminado y escribe informe y muestras
	@exec $(ENLACE) repro --pull evaluate

export: $(EXPORT) ## Entrega el modelo a Ollama, LM Studio, llama.cpp y transformers, en exported/
	@exec $(ENLACE) export

chat: $(LIGHT) ## Habla con el modelo terminado en la terminal: make chat [DIR=otro modelo o checkpoint]
	@exec $(ENLACE) chat -- $${DIR:+"$$DIR"}

serve: $(EXPORT) ## Abre en esta máquina una página para usar el modelo, y la API de OpenAI: make serve [DIR=exportado]
	@exec $(ENLACE) serve -- $${DIR:+"$$DIR"}

exp: need-run $(LIGHT) ## Prueba un run aparte, sin tocar params.yaml: make exp RUN=demo SET="train.lr=1e-3"
	@exec $(ENLACE) exp --with-parent --set "$$SET" -- "$$RUN"

##@ Mirar
status: | $(LIGHT) ## Dice qué run está puesto, hasta dónde ha llegado y qué haría make train
	@exec $(ENLACE) status

logs: | $(LIGHT) ## Sigue el registro del entrenamiento hasta Ctrl-C: make logs [RUN=…]
	@exec $(ENLACE) logs --follow -- $${RUN:+"$$RUN"}

stop: | $(LIGHT) ## Para el entrenamiento en marcha después de guardar
	@exec $(ENLACE) stop -- $${RUN:+"$$RUN"}

report: | $(LIGHT) ## Compara los runs de esta máquina
	@exec $(ENLACE) report

##@ Guardar y compartir
push: | $(LIGHT) ## Envía datos y modelos al almacén de DVC
	@exec $(DVC) push

pull: | $(LIGHT) ## Trae datos y modelos del almacén de DVC
	@exec $(DVC) pull

unlock: | $(LIGHT) ## Quita el cerrojo de DVC que un corte dejó dañado
	@exec $(ENLACE) unlock

prune: | $(LIGHT) ## Enseña qué runs terminados se pueden borrar; con YES=1 los borra
	@exec $(ENLACE) prune $${YES:+--yes}

accept-code: | $(LIGHT) ## Acepta ediciones de comentarios o docstrings sin volver a entrenar
	@exec $(ENLACE) accept-code

##@ Desarrollar
test: setup-dev ## Pasa las pruebas rápidas
	$(PYTEST)

check: setup-dev ## Comprueba formato, estilo, tipos e imports
	$(BIN)/python -m ruff format --check
	$(BIN)/python -m ruff check
	$(BIN)/python -m mypy
	$(BIN)/python -m pytest -q tests/test_ranks.py

bench: setup-dev ## Mide el paso frente a otros: WORK="small smoke", PAIRS=7, ONLY="litgpt", DEVICE=cuda, PROFILE=a100
	@exec $(BIN)/python -m tests.benchmarks.training_bench $(BENCH)

bench-peers: setup-dev ## Instala en .venv los programas con los que se compara make bench
	$(PIP) --editable '.[dev,bench]'
	$(PIP) --no-deps $(LITGPT)

bench-generate: setup-dev ## Mide los tokens por segundo al generar, frente a transformers y llama.cpp: PAIRS=parejas
	$(PIP) --editable '.[dev,export]'
	@exec $(BIN)/python -m tests.benchmarks.generation --pairs $${PAIRS:-5}

bench-checkpoint: setup-dev ## Mide lo que cuesta guardar un checkpoint; DIR=carpeta, ROUNDS=rondas
	@exec $(BIN)/python -m tests.benchmarks.checkpoint_stall "$${DIR:-.enlace}" "$${ROUNDS:-5}"

bench-corpus: setup-dev ## Mide del texto a los shards frente a otros: make bench-corpus TEXTS="a.jsonl.gz …"
	@test -n "$(TEXTS)" || { echo "enlace: faltan ficheros; ejemplo: make bench-corpus TEXTS=textos.jsonl.gz" >&2; exit 2; }
	@$(BIN)/python -c 'import tiktoken' || { echo "enlace: falta tiktoken; .venv/bin/python -m pip install tiktoken" >&2; exit 2; }
	@exec $(BIN)/python -m tests.benchmarks.corpus_throughput $(TEXTS)

chaos: setup-dev ## Mata un entrenamiento pequeño KILLS veces (200) y exige que nada se pierda; SEED=semilla
	@exec $(BIN)/python -m tests.chaos --kills "$${KILLS:-200}" $${SEED:+--seed "$$SEED"}

format: setup-dev ## Da formato al código
	$(BIN)/python -m ruff check --fix-only
	$(BIN)/python -m ruff format

deps: setup ## Pone al día en dvc.yaml las dependencias de código
	@exec $(ENLACE) deps

lock: setup-dev ## Escribe de nuevo .constraints.txt con las versiones instaladas
	@exec $(BIN)/python .ci/constraints.py

# Instala $(1) en .venv, y rehace un .venv roto (Python actualizado, instalación cortada). Con cerrojo:
# `make status` en otra terminal, mientras `make demo` instala, espera y encuentra el trabajo hecho.
define install
@set -e; mkdir -p .enlace; exec 9>.enlace/install.lock; \
flock --nonblock 9 || { echo "enlace: otra orden está instalando; espero a que acabe" >&2; flock 9; }; \
if [ $@ -nt pyproject.toml ] && [ $@ -nt .constraints.txt ]; then exit 0; fi; \
$(BIN)/python -m pip --version >/dev/null 2>&1 || { \
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "enlace: $(PYTHON) no existe o es anterior a 3.11; instala Python 3.11 o posterior" \
		"(o di cuál: make setup PYTHON=python3.12)" >&2; exit 1; }; \
	$(PYTHON) -c 'import ensurepip, venv' || { \
		echo "enlace: a $(PYTHON) le falta venv; en Debian o Ubuntu: sudo apt install python3-venv" \
		>&2; exit 1; }; \
	$(PYTHON) -m venv --clear .venv; }; \
echo "enlace: instalo en .venv lo necesario; la primera vez son unos gigabytes y varios minutos"; \
$(PIP) --editable '$(1)'; touch $(LIGHT) $@
endef

$(LIGHT): pyproject.toml .constraints.txt | guard
	$(call install,.)

$(DEV): pyproject.toml .constraints.txt | guard
	$(call install,.[dev])

$(EXPORT): pyproject.toml .constraints.txt | guard
	$(call install,.[export])

# Lo que falta se pide antes de instalar nada.
need-run:
	@[ -n "$$RUN" ] || { echo "enlace: falta RUN; ejemplo: make $(MAKECMDGOALS) RUN=demo" >&2; exit 2; }

run-for-set:
	@[ -z "$$SET" ] || [ -n "$$RUN" ] || { echo "enlace: SET necesita RUN=…" >&2; exit 2; }

.DEFAULT $(OTHERS):
	@echo "enlace: no hay ninguna orden «$@»; make help las enseña todas" >&2; exit 2

guard:
	@[ "$$(uname -s)" = Linux ] || { \
		echo "enlace: hace falta Linux (en Windows, WSL2); esto es $$(uname -s)" >&2; exit 1; }
	@reason=$$(git rev-parse --git-dir 2>&1 >/dev/null) || { \
		echo "enlace: esta carpeta no es un repositorio git y DVC lo necesita; trae el proyecto con" \
		"git clone ($$reason)" >&2; exit 1; }
