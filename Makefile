# Every target sets up what it needs, and does so once: a stamp in .venv, the files in .tools and, for jars, the user's cache tell what is there.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules --no-print-directory
# Images of Python set it. Every process would compile Spark's and our modules anew, for most of a second.
unexport PYTHONDONTWRITEBYTECODE
UV := $(or $(shell command -v uv 2>/dev/null),.tools/bin/uv)
PYTHON := .venv/bin/python

.PHONY: help
help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 22

# The demo needs neither Airflow nor what tests need: without them it installs a third. What is there already is taken as it is.
INSTALLED := $(if $(wildcard .venv/stamp),.venv/stamp,.venv/demo-stamp)

.PHONY: demo
demo: $(INSTALLED) java ## run the whole life of the data on the shipped events
	@$(PYTHON) -m sessionlake.jars >/dev/null
	@$(PYTHON) -m sessionlake fast-start >/dev/null
	@.venv/bin/sessionlake demo

.PHONY: kafka
kafka: setup kafka-jars ## start a Kafka broker on port 9092, until ctrl-C
	@$(PYTHON) infra/kafka/broker.py

.PHONY: cluster
cluster: setup ## start a Spark master and two workers on port 7077, until ctrl-C
	@$(PYTHON) infra/spark/cluster.py

.PHONY: test
test: lint kafka-jars ## check style and types, run all but the slow tests
	@$(PYTHON) -m pytest -n 2 -m "not slow"

.PHONY: test-seconds
test-seconds: lint kafka-jars ## run the tests of `make test` and note the seconds of each module, by which they are ordered
	@$(PYTHON) -m pytest -p tests.seconds -n 2 -m "not slow"

.PHONY: test-all
test-all: export HYPOTHESIS_PROFILE := search
test-all: lint kafka-jars ## the same with the slow tests and new random examples; those that can't share the machine come last, one by one. PART=1/4 runs a quarter
	@$(PYTHON) -m pytest -n 2 -m "not alone" $(PART:%=--part %); found=$$?; $(PYTHON) -m pytest -m alone $(PART:%=--part %) && exit $$found

.PHONY: model-commit
model-commit: SECONDS := 3600
model-commit: setup ## search the states of the commit protocol for an hour, or SECONDS=n
	@$(PYTHON) -m tests.engine.commit_model $(SECONDS)

.PHONY: crash-store
crash-store: .venv/stamp ## run a store beside a dict, with faults at any file operation, for SECONDS=60; SEED=n repeats a history
	@$(PYTHON) -m tests.store.crash $(or $(SECONDS),60) $(or $(SEED),0)

.PHONY: airflow
airflow: setup ## start Airflow with all DAGs on the demo's pipeline
	@$(PYTHON) infra/airflow/up.py

.PHONY: bench
bench: setup ## measure throughput against the peers, and with BASE=COMMIT against an older commit
	@$(PYTHON) -m benchmarks.run $(if $(BASE),--base $(BASE))

.PHONY: bench-chain
bench-chain: setup ## measure what a pipeline behind another one costs to follow its results
	@$(PYTHON) -m benchmarks.chain
	@$(PYTHON) -m benchmarks.chain_latency

.PHONY: bench-sinks
bench-sinks: setup kafka-jars ## measure the steps of tables of Delta and PostgreSQL, and of topics
	@$(PYTHON) -m benchmarks.sinks

.PHONY: bench-cluster
bench-cluster: setup ## measure four workers of half a core against one, and ten minutes in which executors are killed; 25 minutes, as root
	@$(PYTHON) -m benchmarks.cluster

.PHONY: bench-jobs
bench-jobs: setup ## measure the scheduled jobs on 10M sessions against the plain ways
	@$(PYTHON) -m benchmarks.compact --only fold
	@$(PYTHON) -m benchmarks.expire
	@$(PYTHON) -m benchmarks.backfill
	@$(PYTHON) -m benchmarks.quality

.PHONY: bench-kafka
bench-kafka: setup kafka-jars ## measure a topic of JSON and of Avro against files of JSON
	@$(PYTHON) -m benchmarks.kafka

.PHONY: bench-latency
bench-latency: setup kafka-jars ## measure event to Delta row through Kafka at 10,000 events a second
	@$(PYTHON) -m benchmarks.latency

.PHONY: bench-peers
bench-peers: setup kafka-jars kstreams-jars ## measure Kafka Streams, Flink, Spark's own operators, Pathway and DuckDB on the same events
	@$(PYTHON) -m sessionlake.jars infra/flink/jars.toml >/dev/null
	@$(PYTHON) -m benchmarks.peers.run

.PHONY: bench-windows
bench-windows: setup ## measure windows that become full at once, beside many that are stored, and idle
	@$(PYTHON) -m benchmarks.windows

.PHONY: bench-stores
bench-stores: setup ## measure the stores of sessionlake.stores against their goals
	@$(PYTHON) -m benchmarks.stores

.PHONY: bench-ttl
bench-ttl: setup ## measure the patterns by which rows of a keyed table expire, beside none
	@$(PYTHON) -m benchmarks.ttl

.PHONY: bench-keyed
bench-keyed: setup ## measure updates a second of a keyed table: one of each key in a batch, and five
	@$(PYTHON) -m benchmarks.keyed

.PHONY: bench-serve
bench-serve: setup ## measure look-ups over HTTP, beside the stream and with nothing else
	@$(PYTHON) -m benchmarks.serve

.PHONY: bench-project
bench-project: setup ## measure memory and idle CPU of ten pipelines in one process, beside one
	@$(PYTHON) -m benchmarks.project

.PHONY: bench-lookup
bench-lookup: setup ## measure the sessions of one key of 10M in SQL, by warm Spark and without
	@$(PYTHON) -m benchmarks.lookup

.PHONY: lint
lint: setup ## ruff and mypy
	@.venv/bin/ruff check . && .venv/bin/ruff format --check . && .venv/bin/lint-imports --no-logo && .venv/bin/mypy --num-workers 2

.PHONY: format
format: .venv/stamp ## let ruff format the code and sort the imports
	@.venv/bin/ruff format . && .venv/bin/ruff check --fix .

.PHONY: setup
setup: jars ## install what is missing: uv, the Python packages, Java, Spark's jars and an archive of its classes

.PHONY: clean
clean: ## remove all that make or the tools put here; jars stay in the cache, ~/.cache/sessionlake
	@rm -rf .venv .tools .kafka .cluster .airflow demo spark-warehouse .mypy_cache .mypy_worker.* .ruff_cache .import_linter_cache .pytest_cache .hypothesis

.PHONY: java
java:
	@infra/setup/java

.venv/demo-stamp: uv.lock pyproject.toml | $(UV)
	@$(UV) sync --frozen --no-default-groups --extra spark --extra demo --extra quality --extra serve && touch $@

.venv/stamp: uv.lock pyproject.toml | $(UV)
	@$(UV) sync --frozen && touch $@

.PHONY: jars
jars: .venv/stamp java
	@$(PYTHON) -m sessionlake.jars >/dev/null
	@$(PYTHON) -m sessionlake fast-start >/dev/null

.PHONY: promtool
promtool: ## fetch promtool into .tools, which the tests of the alert rules need
	@infra/setup/promtool

.PHONY: kafka-jars
kafka-jars: .venv/stamp java
	@$(PYTHON) -m sessionlake.jars infra/kafka/jars.toml >/dev/null

.PHONY: kstreams-jars
kstreams-jars: .venv/stamp java ## fetch Kafka Streams and its test driver, with which tests compare
	@$(PYTHON) -m sessionlake.jars infra/kstreams/jars.toml >/dev/null

.tools/bin/uv:
	@infra/setup/uv
