# Every target does its own set-up. `make` alone lists them.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
ARGS ?=
VENV := .venv
OTHER := .venv-other
# the engine alone runs on an older Python
OLDEST := .venv-oldest
PY := $(VENV)/bin/python
# which one makes .venv, such as python3.13; the newest where nothing is said
PYTHON ?=
# of make release
VERSION ?=
# kills by target, 1,000 in all
CHAOS := --target local=700 --target isolated=150 --target ray=150
# the same over a real Kafka: hosts that share a data directory, and hosts of machines of their own;
# the seed is that of bench/results/chaos-kafka.json
CHAOS_KAFKA := --seed 6 --pipeline shop --set spec.source.devices=200 --set spec.source.payloadBytes=100 \
    --mean-delay 0.8 --target kafka=180 --target kafka-machines=120
CHAOS_CLUSTER := --faults 100 --seed 1
# a first start compiles once, later ones read bytecode
unexport PYTHONDONTWRITEBYTECODE
# the packages of another environment must not be found before ours
unexport PYTHONPATH PYTHONHOME

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-16s %s\n", $$1, $$2}'
	@echo "  ARGS='...' is passed on: make run ARGS='--limit 1000', make unit ARGS='-k trigger'"

.PHONY: setup
setup: ## a virtual environment in .venv with everything
	@.ci/python.sh setup $(VENV) $(PYTHON)

.PHONY: run
run: setup ## what it is for: two short runs, one screen, one HTML page
	@$(VENV)/bin/walle demo $(ARGS)

.PHONY: test test-all
test: fmt-check lint types arch ## everything essential, on one Python; needs no other program
	@$(PY) .ci/jobs.py essential $(PY) $(OTHER)/bin/python $(ARGS)
test-all: setup ## the rest: the other Python, faults, kills, Ray, brokers, containers
	@.ci/python.sh other $(OTHER) $(VENV)
	@.ci/python.sh oldest $(OLDEST)
	@$(PY) .ci/jobs.py rest $(PY) $(OTHER)/bin/python $(ARGS)

.PHONY: docs pictures
pictures: setup ## draw the pictures of docs/ from the code and from real runs
	@$(PY) docs/pictures.py
docs: setup ## the documentation as a site, in build/docs; a link that leads nowhere fails
	@$(PY) -m pip install -q --disable-pip-version-check -c requirements.lock furo myst-parser sphinx
	@$(PY) -m sphinx -W --keep-going -q -c docs -b html . build/docs
	@echo "build/docs/docs/index.html"

.PHONY: release
release: setup ## version, changelog, commit, tag, wheel, archive and notes: make release VERSION=0.2.0; pushes nothing
	@$(PY) .ci/release.py $(VERSION)

.PHONY: fmt fmt-check lint types arch size
fmt: setup ## format the code
	@$(VENV)/bin/ruff format . && $(VENV)/bin/ruff check --fix --select I .
fmt-check: setup
	@$(VENV)/bin/ruff format --check -q . || { echo "not formatted: make fmt"; exit 1; }
lint: setup ## ruff, all rules
	@$(VENV)/bin/ruff check -q .
types: setup ## mypy, strict
	@$(VENV)/bin/mypy
arch: setup ## layers and import contracts
	@out=$$($(VENV)/bin/lint-imports --no-cache 2>&1) || { echo "$$out"; exit 1; }; tail -n 1 <<<"$$out"
size: setup ## lines of the product, by room; test kits apart
	@$(PY) .ci/size.py $(ARGS)

.PHONY: unit prop kafka cluster chaos chaos-kafka chaos-cluster chaos-release chaos-power fuzz fuzz-guest long
unit: setup ## unit tests alone
	@$(PY) -m pytest tests/unit $(ARGS)
prop: setup ## property tests alone
	@$(PY) -m pytest tests/property -m "not slow" $(ARGS)
kafka: setup ## tests against a real Apache Kafka alone: Docker, or a JDK and Maven
	@$(PY) -m pytest -m "kafka and not slow" tests/integration $(ARGS)
cluster: setup ## ray up of three container nodes, Kafka with TLS, an S3 server, the main job; ARGS='--json bench/results/cluster.json'
	@.ci/cluster.sh
	@$(PY) -m tests.cluster $(ARGS)
chaos: setup ## 1,000 times kill -9, then compare byte for byte; goes on where it was stopped
	@$(PY) -m walle_stream.testing.chaos $(CHAOS) --folder walle-data/chaos --resume \
	    --json bench/results/chaos.json $(ARGS)
chaos-kafka: setup ## 300 kills of hosts, cloud app, sender and broker, with rebalances and network cuts; goes on, too
	@$(PY) -m walle_stream.testing.chaos $(CHAOS_KAFKA) --folder walle-data/chaos-kafka --resume \
	    --json bench/results/chaos-kafka.json $(ARGS)
chaos-cluster: setup ## 100 faults of a cluster's nodes, processes, brokers, object store and version under a live feed; goes on, too. Needs Docker
	@.ci/cluster.sh
	@$(PY) -m tests.cluster.chaos $(CHAOS_CLUSTER) --folder walle-data/chaos-cluster \
	    --json bench/results/chaos-cluster.json $(ARGS)
chaos-release: setup ## 200 kills of release services, hosts, operators and file server; then every device is looked at
	@$(PY) -m walle_deploy.testing.chaos --kills 200 --json bench/results/chaos-release.json $(ARGS)
chaos-power: setup ## 1,000 power cuts, rebuilt from a log of every file operation; goes on, too. ext4 itself: ARGS='--ext4 50'
	@$(PY) -m tests.power --folder walle-data/chaos-power --json bench/results/chaos-power.json $(ARGS)
fuzz: setup ## 100,000 mutated models: results or an error of the engine, nothing else; goes on, too
	@mkdir -p walle-data
	@$(PY) -m walle_stream.testing.onnx.fuzz --count 100000 --seed 2 \
	    --json walle-data/fuzz.json $(ARGS)
	@cp walle-data/fuzz.json bench/results/fuzz.json
fuzz-guest: setup ## 200,000 random programs of two devices in one VM: none sees anything of the other; goes on, too
	@mkdir -p walle-data
	@$(PY) tests/isolation/fuzz.py --count 200000 --seed 1 --json walle-data/fuzz-guest.json $(ARGS)
	@cp walle-data/fuzz-guest.json bench/results/fuzz-guest.json
long: setup ## the long forms of property and chaos tests
	@$(PY) -m pytest -m slow $(ARGS)

.PHONY: gates conformance conformance-peers zoo
gates: setup ## what the gates of releases decide over simulated fleets; half an hour of one core
	@$(PY) bench/gates.py $(ARGS)
conformance: setup ## ONNX's cases, counted by backend of the tensor engine
	@$(PY) -W ignore -m walle_stream.testing.onnx.report --json bench/results/conformance.json $(ARGS)
conformance-peers: setup ## the same cases on onnxruntime, the ONNX reference and MNN (installed in .venv-peers)
	@$(PY) -W ignore bench/conformance_peers.py $(ARGS)
zoo: setup ## real models of other packages beside onnxruntime (installed in .venv-peers); downloads 600 MB once, see docs/engine.md
	@$(PY) -W ignore -m tests.zoo $(ARGS)

.PHONY: bench-pipeline bench-durability bench-latency bench-core bench-install bench-growth bench-peers bench-fleet bench-tunnel bench-vm \
    bench-cloud bench-calls bench-ipv bench-engine bench-release bench-report
bench-pipeline: setup ## speed of the main job, a plain Python loop beside it; what busy neighbours and partitions cost
	@$(PY) bench/pipeline.py $(ARGS)
bench-latency: setup ## page exit to commit at 25, 50 and 75 % of the maximum rate; wants a quiet machine, makes a busy one beside
	@$(PY) bench/latency.py $(ARGS)
bench-core: setup ## the core without scripts: a trigger on clicks beside one on exits
	@$(PY) bench/core.py $(ARGS)
bench-install: setup ## versions installed into a running host under load, beside a restart
	@$(PY) bench/install.py $(ARGS)
bench-durability: setup ## what spec.state.sync costs: false, interval and true in turns, and on a slow disk
	@$(PY) bench/durability.py $(ARGS)
bench-growth: setup ## memory of one process over 10 million events; five minutes and more
	@$(PY) bench/growth.py $(ARGS)
bench-peers: setup ## the shop against other streaming libraries (installed in .venv-peers): over a file, over Kafka
	@$(PY) bench/peers.py $(ARGS)
	@$(PY) bench/peers.py --kafka $(ARGS)
bench-fleet: setup ## memory of 100,000 devices, activation, a hot device
	@$(PY) bench/fleet.py $(ARGS)
bench-tunnel: setup ## latency and throughput over a real Apache Kafka with TLS: Docker, or a JDK and Maven
	@$(PY) bench/tunnel.py $(ARGS)
bench-cloud: setup ## the cloud side over a real Apache Kafka: CPU and bytes written a feature, a plain loop beside it
	@$(PY) bench/cloud.py $(ARGS)
bench-calls: setup ## a call's round trip over a real Apache Kafka with TLS; look-ups after the kill of a worker
	@$(PY) bench/calls.py $(ARGS)
bench-vm: setup ## VMs against GIL threads, processes and executors, on both Pythons
	@.ci/python.sh other $(OTHER) $(VENV)
	@$(PY) bench/vm.py $(ARGS)
	@if [ -x $(OTHER)/bin/python ]; then $(OTHER)/bin/python bench/vm.py $(ARGS); fi
bench-ipv: setup ## features at the device and in the cloud over one broker: latency, bytes, errors
	@$(PY) bench/ipv.py $(ARGS)
bench-engine: setup ## models on the tensor engine, onnxruntime and MNN (installed in .venv-peers), one thread each
	@$(PY) bench/engine.py $(ARGS)
bench-release: setup ## the release service: each kind of request, decisions, known devices, reports; some nine minutes of a quiet machine
	@$(PY) bench/release.py $(ARGS)
bench-report: setup ## tables from bench/results, and the figures of the README
	@$(PY) bench/report.py $(ARGS)
	@$(PY) bench/readme_figures.py

.PHONY: lock clean
lock: setup ## pin the versions anew, newest: ARGS=--upgrade
	@.ci/lock.sh $(ARGS)
clean: ## remove what the targets made
	@rm -rf $(VENV) $(OTHER) $(OLDEST) .venv-peers .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist build
	@find walle_stream connectors deploy configs tests bench -name __pycache__ -prune -exec rm -rf {} +
