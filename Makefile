# Everything runs in a virtual environment inside this folder; nothing is installed elsewhere.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
TRACE  ?=
ARGS   ?=

# Where it is set (containers of CI often do), each service would compile all of our modules anew at each of its starts: 2 CPU seconds instead of 1.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install demo mutate up test test-all test-kubernetes check simulate planted bench bench-kubernetes vendor shots rights alerts dashboards manifests cli saga planning proto lock clean

help:  ## Show this list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(VENV)/.runtime: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("restow needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Try: make PYTHON=python3.11 ...")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing Restow's locked dependencies into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.dev: requirements-dev.lock $(VENV)/.runtime
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements-dev.lock
	@touch $@

install: $(VENV)/.runtime  ## Install into .venv (Python 3.11 or newer)

demo: $(VENV)/.runtime  ## Fragment a cluster, defragment it, prove that nothing was lost (TRACE=<folder> for a real trace)
	@$(BIN)/restow demo $(if $(TRACE),--trace "$(TRACE)") $(ARGS)

up: $(VENV)/.runtime  ## Keep the embedded stack running (Ctrl-C stops it)
	@$(BIN)/restow up $(ARGS)

test: $(VENV)/.dev  ## Run the tests
	@$(BIN)/python -m pytest -n 4 --dist worksteal $(ARGS)

test-all: $(VENV)/.dev  ## And those that try more of the same
	@RESTOW_TESTS=all $(BIN)/python -m pytest -n 4 --dist worksteal $(ARGS)

test-kubernetes: $(VENV)/.dev  ## Run the suites that need a real API server, and those that need a real scheduler, built at the first run (needs Go 1.26)
	@HELM=1 KUEUE=1 S3=1 OTEL=1 tests/kubernetes/build.sh .kubernetes
	@PATH="$(CURDIR)/.kubernetes:$$PATH" KUBEBUILDER_ASSETS="$(CURDIR)/.kubernetes" $(BIN)/python -m pytest -n 2 --dist worksteal tests/kubesim/conformance tests/e2e $(ARGS)
	@PATH="$(CURDIR)/.kubernetes:$$PATH" KUBEBUILDER_ASSETS="$(CURDIR)/.kubernetes" $(BIN)/python -m pytest tests/kubernetes $(ARGS)
	@PATH="$(CURDIR)/.kubernetes:$$PATH" $(BIN)/python -m pytest tests/contract/eventlog/test_places.py tests/integration/runtime/test_bucket.py tests/integration/runtime/test_bucket_failover.py tests/cli/test_trace.py $(ARGS)

check: $(VENV)/.dev  ## Lint, types and import contracts
	@$(BIN)/ruff check .
	@$(BIN)/lint-imports
	@$(BIN)/mypy libs/restow services/restow

simulate: $(VENV)/.dev  ## All of it on virtual time with faults, fresh seeds, judged (MINUTES=10, SEED=)
	@$(BIN)/restow simulate $(if $(SEED),--seed $(SEED)) --minutes $(or $(MINUTES),10) $(ARGS)

planted: $(VENV)/.dev  ## Plant faults of one line each, and see that the simulator finds them (NAMES=, SEEDS=)
	@PYTHONPATH=tests $(BIN)/python -m simulation.planted $(NAMES) $(if $(SEEDS),--seeds $(SEEDS)) $(ARGS)

$(VENV)/.mutate: requirements-mutate.lock $(VENV)/.dev
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements-mutate.lock
	@touch $@

mutate: $(VENV)/.mutate  ## Change one thing of the core at a time, and see whether a test minds (ARGS="--count 300 --seed 1")
	@$(BIN)/python -m tests.mutation $(ARGS)

bench-kubernetes: $(VENV)/.dev  ## Print it for a real API server, beside the stock kube-scheduler (built at the first run, needs Go 1.26)
	@tests/kubernetes/build.sh .kubernetes
	@KUBEBUILDER_ASSETS="$(CURDIR)/.kubernetes" OPENBLAS_NUM_THREADS=1 $(BIN)/python -m tests.bench kubernetes $(ARGS)

bench: $(VENV)/.dev  ## Print the benchmark table, ours beside a baseline
	@OPENBLAS_NUM_THREADS=1 $(BIN)/python -m tests.bench $(ARGS)

rights: $(VENV)/.runtime  ## Write RBAC and the broker's permissions from libs/restow/kube/rights.py and deploy/rights.py
	@$(BIN)/python deploy/rights.py

cli: $(VENV)/.runtime  ## Write docs/cli.md from the commands' help
	@$(BIN)/python -c 'from restow.cli.reference import page; print(page(), end="")' > docs/cli.md

vendor: $(VENV)/.runtime  ## Fetch what the console's page is made with, by pinned hashes (needs npm)
	@$(BIN)/python deploy/vendor.py

shots: $(VENV)/.dev  ## Take the pictures of docs/console.md anew (LOG=<file of make demo>; needs Chromium)
	@PYTHONPATH=tests $(BIN)/python -m console.shots $(or $(LOG),.restow/demo-log.jsonl.zst)

alerts: $(VENV)/.runtime  ## Write Prometheus' rules from deploy/alerts.py
	@$(BIN)/python deploy/alerts.py

dashboards: $(VENV)/.runtime  ## Write Grafana's dashboards from deploy/dashboards.py
	@$(BIN)/python deploy/dashboards.py

manifests: $(VENV)/.runtime  ## Write deploy/restow.yaml from deploy/chart (needs Helm)
	@$(BIN)/python deploy/render.py

saga: $(VENV)/.runtime  ## Write docs/saga.md from the table in libs/restow/domain/migration/saga.py
	@$(BIN)/python -c 'from restow.domain.migration.saga import page; print(page(), end="")' > docs/saga.md

planning: $(VENV)/.dev  ## Draw the pictures of docs/planning.md from plans of today
	@PYTHONPATH=tests $(BIN)/python -m docs.planning_pictures

proto: $(VENV)/.runtime  ## Regenerate the published contract in proto/
	@$(BIN)/python -m restow.contracts.publish proto

lock: $(VENV)/.dev  ## Refresh the locked dependencies
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	@$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --extra build --extra embedded --extra parquet --extra sql --extra bound --extra s3 --upgrade pyproject.toml -o requirements.lock --no-annotate --no-header
	@$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --extra build --extra embedded --extra parquet --extra sql --extra bound --extra s3 --group dev pyproject.toml -o requirements-dev.lock --no-annotate --no-header -c requirements.lock
	@$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --group mutate pyproject.toml -o requirements-mutate.lock --no-annotate --no-header -c requirements-dev.lock

clean:  ## Remove the environment and everything that a run left here
	@rm -rf $(VENV) .restow .pytest_cache .hypothesis .ruff_cache .mypy_cache .kubernetes
