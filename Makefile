# Every job that a person, CI or a commit hook does here. A bare `make` lists them.
# The text after two hashes is the help; tests/tidy checks that each target has one.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# Each test starts processes, and each process would compile four hundred modules again.
unexport PYTHONDONTWRITEBYTECODE

# Only set-up uses the machine's own Python; everything else runs in the environment that it makes.
PYTHON ?= $(shell for candidate in python3.13 python3.12 python3.11 python3; do \
	command -v $$candidate >/dev/null && $$candidate -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& echo $$candidate && break; done)
BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest
PROTOS := $(wildcard wire/control/*.proto)
# What tests the compiled modules (runtime/compiled.py): make test runs it a second time, interpreted;
# test_record_machine.py gives damaged records to both.
BOTH_WAYS := -k "not damaged and not random_bytes" tests/golden/test_record_verdicts.py tests/unit/wire/batches/test_record_batch.py \
	$(foreach name,hot_codecs partition producer_replay record_batches record_machine wire_frames,tests/property/test_$(name).py) \
	$(foreach name,log/core/test_leader_epochs log/core/test_producer_state log/core/test_retention log/test_log_failures log/test_log_reading log/test_partition_log replication/test_hosted_partition replication/test_wake_ups network/test_channels network/test_request_memory network/test_compressed_channel,tests/unit/broker/$(name).py) \
	tests/unit/mirror/translate/core/test_merging.py tests/integration/broker/network
# Packages whose unit tests run side by side with the others: both take about as long.
FIRST_PARTS := broker mirror wire dr cli
# Tests with processes wait more than they compute: three for each core. Those of Spark run before
# them: Spark gives its Python workers 10 s to start, too little among three workers a core.
WORKERS ?= $(shell echo $$((3 * $$(nproc))))

SITES ?= a,b
BROKERS ?= 1
DIR ?= out/sites
COUNT ?= 2000
SEED ?=
FAULTS ?=
FIRST ?= 1
KIND ?= replication
JOBS ?= $(shell nproc)
SCENARIO ?=
SECONDS ?= 60
TARGET ?=

.PHONY: help
help: ## List the targets
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: setup
setup: ## Everything that demo and up need: environment, packages, Java, ZooKeeper, toxiproxy (seconds when it is there)
	@test -n "$(PYTHON)" || { echo "error: no Python 3.11 or newer on PATH: install python3, or run make setup PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) deploy/bootstrap.py

.PHONY: setup-java
setup-java: ## setup, and by Maven the Java programs that only compatibility tests and benchmarks use
	@test -n "$(PYTHON)" || { echo "error: no Python 3.11 or newer on PATH: install python3, or run make setup PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) deploy/bootstrap.py --java-programs

.PHONY: setup-clients
setup-clients: ## setup-java, and what only the compatibility matrix needs: Streams, Connect, Go's and Node's clients
	@test -n "$(PYTHON)" || { echo "error: no Python 3.11 or newer on PATH: install python3, or run make setup PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) deploy/bootstrap.py --client-programs

.PHONY: demo
demo: setup ## Two sites, a cut link, a lost site, a failover, proof of equality: two minutes, then an HTML report; SECURE=1 with certificates
	@$(BIN)/antipode demo $(if $(SECURE),--secure)

.PHONY: up
up: setup ## A pair of embedded sites that runs until Ctrl-C (SITES=a,b BROKERS=1 DIR=out/sites)
	@$(BIN)/antipode up --sites $(SITES) --brokers $(BROKERS) --dir $(DIR)

.PHONY: check
check: setup ## Formatting, lint, types, import directions, tidiness: everything that runs nothing
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(PYTEST) -q tests/tidy

.PHONY: test
test: setup-java ## Set-up, check, then every test but the long chaos scenarios: what CI runs
	@mkdir -p out/test
	@echo "four runs side by side: unit tests of five packages, and those of compiled modules once more interpreted; the other unit tests, golden and property tests; the tests of Spark; make check. What the last three print comes at the end"
	@$(MAKE) --no-print-directory check > out/test/check.log 2>&1 & check=$$!; \
	ANTIPODE_PORTS=22000-32499 $(PYTEST) -q -m "not long" tests/spark > out/test/spark.log 2>&1 & spark=$$!; \
	ANTIPODE_PORTS=17000-21999 $(PYTEST) -q tests/unit tests/golden tests/property $(foreach part,$(FIRST_PARTS),--ignore=tests/unit/$(part)) > out/test/unit.log 2>&1 & others=$$!; failed=0; \
	ANTIPODE_PORTS=12000-16999 $(PYTEST) -q $(foreach part,$(FIRST_PARTS),tests/unit/$(part)) || failed=1; \
	ANTIPODE_INTERPRETED=1 $(PYTEST) -q $(BOTH_WAYS) || failed=1; \
	wait $$others || failed=1; wait $$spark || failed=1; wait $$check || failed=1; cat out/test/unit.log out/test/spark.log out/test/check.log; exit $$failed
	@echo "$(WORKERS) workers share the tests with processes, the chaos tests and those of the simulation"
	@ANTIPODE_PORTS=12000-32499 $(BIN)/python -m tests.support.second_attempt out/test/cache -m "not long" -n $(WORKERS) --dist loadscope --no-loadscope-reorder tests/integration tests/chaos tests/sim

.PHONY: unit
unit: setup ## Unit, golden and property tests: a minute or two, loopback only
	$(PYTEST) -q tests/unit tests/golden tests/property
	ANTIPODE_INTERPRETED=1 $(PYTEST) -q $(BOTH_WAYS)
	$(PYTEST) -q -m "not long" tests/sim

.PHONY: integration
integration: setup-java ## Tests with real processes: ZooKeeper, brokers, other people's clients
	$(PYTEST) -q tests/integration

.PHONY: spark
spark: setup-java ## Tests in a Spark session
	$(PYTEST) -q tests/spark

.PHONY: spark-bundle
spark-bundle: setup ## out/spark/antipode.tar.gz: what Spark's workers need, for spark-submit --archives
	$(BIN)/python -m deploy.spark_bundle

.PHONY: chaos
chaos: setup ## All fault scenarios, the long ones included (SCENARIO=word picks some; FAULTS=150, SEED= repeats choices)
	ANTIPODE_FAULTS=$(or $(FAULTS),150) ANTIPODE_SEED=$(SEED) $(PYTEST) -v tests/chaos tests/sim $(if $(SCENARIO),-k "$(SCENARIO)")
	$(if $(SCENARIO),,$(PYTEST) -v -m long tests/integration tests/spark)

.PHONY: proof-soak
proof-soak: setup ## RUNS=100 comparisons of two sites while producers write and the line between them fails, and what they found (SEED= chooses the faults)
	$(BIN)/python -m bench.false_alarms --runs $(or $(RUNS),100) $(if $(SEED),--seed $(SEED))

.PHONY: proof-ingest
proof-ingest: setup ## KILLS=100 kills of a streaming ingest between its write and its commit, and whether a record is missing or twice
	ANTIPODE_KILLS=$(or $(KILLS),100) $(PYTEST) -q -s tests/spark/test_killed_sink.py

.PHONY: proof-failover
proof-failover: setup ## KILLS=100 losses of the active site of a sync link, then MOVES=10 moves there and back, under load; a line for each, and what was lost or read twice (SEED= repeats the losses)
	ANTIPODE_FAULTS=$(or $(KILLS),100) ANTIPODE_MOVES=$(or $(MOVES),10) ANTIPODE_SEED=$(SEED) $(PYTEST) -q -s tests/chaos/test_failover_rounds.py

.PHONY: compatibility
compatibility: setup-clients ## Other people's clients at a lone broker, three brokers and a routed pair, and docs/compatibility.md written anew; half an hour in all, one environment 2 to 14 minutes (ONLY=client AT=environment try a part)
	$(BIN)/python -m tests.compatibility $(if $(ONLY),--only "$(ONLY)") $(if $(AT),--at "$(AT)")
	$(if $(AT),,$(BIN)/python -m tests.compatibility.security $(if $(ONLY),--only "$(ONLY)"))

.PHONY: sim
sim: setup ## The simulated site under COUNT=2000 seeds of random faults, KIND=transactions with transactions, KIND=links two sites and a link; SEED= replays one with its history (FAULTS= its first ones)
	$(BIN)/python -m tests.sim --kind $(KIND) $(if $(SEED),--seed $(SEED) $(if $(FAULTS),--faults $(FAULTS)),--count $(COUNT) --first $(FIRST) --jobs $(JOBS))

.PHONY: properties
properties: setup ## Property tests of the machines with COUNT=2000 random histories each
	ANTIPODE_EXAMPLES=$(COUNT) $(PYTEST) -q tests/property --timeout=3600

.PHONY: fuzz
fuzz: setup ## Coverage-guided fuzzing with atheris (installed on demand): SECONDS=60 for each target, TARGET=requests for one
	@$(BIN)/python -c "import atheris" 2>/dev/null || $(BIN)/python -m pip install --quiet "atheris>=3"
	$(BIN)/python -m tests.fuzz --seconds $(SECONDS) $(if $(TARGET),--target $(TARGET))

.PHONY: bench
bench: setup-java ## Benchmarks, each beside Apache Kafka and MirrorMaker 2 in the same run
	$(BIN)/python -m bench

.PHONY: golden-rewrite
golden-rewrite: setup ## Rewrite what the golden scripts expect; say why in the commit message
	$(PYTEST) -q tests/golden --golden-rewrite

.PHONY: proto
proto: setup ## Generate the gRPC stubs anew from wire/control/*.proto
	$(BIN)/python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. --grpc_python_out=. $(PROTOS)

.PHONY: lock
lock: setup ## Resolve pyproject.toml anew into deploy/requirements.txt
	$(BIN)/python -m deploy.lock

.PHONY: clean
clean: ## Remove what tests and tools leave behind; with ALL=1 also the environment and the parts
	rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis build out *.egg-info spark-warehouse metastore_db derby.log
	find . -name __pycache__ -type d -not -path './.venv/*' -prune -exec rm -rf {} +
	$(if $(ALL),rm -rf .venv .parts)
