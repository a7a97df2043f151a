# Every target that needs .venv makes it first; that takes no time when it is there.
# ARGS adds flags to the command of a target: make train ARGS="--total-env-steps 1000000"

PYTHON ?= python3
ARGS ?=
# Where `make certs` writes, and the names or addresses by which actors call the learner.
CERTS ?= certs
HOSTS ?=

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PROTOC := $(BIN)/python -m grpc_tools.protoc -I seed/pb=protos
SOURCES := seed actors learner tests tools

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup train test check format protos protos-check pong pong-r2d2 bench smoke certs clean

help: ## Show this list.
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) ## Make .venv with everything installed.

# The stamp is written last: an interrupted setup starts again.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

train: $(STAMP) ## Train Pong on this machine's CPU, with a live view. Ctrl-C saves and ends.
	$(BIN)/seed train atari-vtrace-cpu $(ARGS)

test: $(STAMP) ## Run all tests.
	$(BIN)/python -m pytest $(ARGS)

check: $(STAMP) protos-check ## Check format, style, types, import rules and generated code.
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/python -m pytest -q tests/test_import_rules.py

format: $(STAMP) ## Format the code and mend what can be mended mechanically.
	$(BIN)/ruff check --fix-only $(SOURCES)
	$(BIN)/ruff format $(SOURCES)

protos: $(STAMP) ## Make seed/pb from protos/.
	$(PROTOC) --python_out=. --grpc_python_out=. --pyi_out=. seed/pb/inference.proto

protos-check: $(STAMP)
	@made=$$(mktemp -d) && trap 'rm -rf "$$made"' EXIT && \
	$(PROTOC) --python_out=$$made --grpc_python_out=$$made --pyi_out=$$made \
		seed/pb/inference.proto && \
	diff -r -x __init__.py -x __pycache__ $$made/seed/pb seed/pb || \
	{ echo 'seed/pb is not what protos/ makes: run `make protos`' >&2; exit 1; }

pong: $(STAMP) ## Train Pong to the end and write docs/results/pong.json and its plot.
	$(BIN)/seed train atari-vtrace-cpu --env-id ALE/Pong-v5 --run-dir runs/pong $(ARGS)
	$(BIN)/python tools/results.py runs/pong --name pong --thresholds 0 15 18

pong-r2d2: $(STAMP) ## Train Pong with R2D2 to the end and write docs/results/pong-r2d2.json and its plot.
	$(BIN)/seed train atari-r2d2-cpu --env-id ALE/Pong-v5 --run-dir runs/pong-r2d2 $(ARGS)
	$(BIN)/seed eval runs/pong-r2d2 --episodes 100 --json > runs/pong-r2d2/eval.json
	$(BIN)/python tools/results.py runs/pong-r2d2 --name pong-r2d2 --thresholds 0 15 18 \
		--evaluation runs/pong-r2d2/eval.json

bench: $(STAMP) ## Measure this machine's ceilings, and the whole system against them.
	$(BIN)/seed bench $(ARGS)

smoke: $(STAMP) ## Learn Catch from pixels through real gRPC.
	$(BIN)/python -m pytest -m learning -k catch $(ARGS)

certs: ## Make a private CA, certificates and a token: make certs HOSTS="learner 10.0.0.5"
	$(PYTHON) tools/make_certs.py $(CERTS) $(addprefix --host ,$(HOSTS))

clean: ## Remove .venv and caches; runs/ stays.
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .ruff_cache
	find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +
