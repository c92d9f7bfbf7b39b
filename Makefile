# Every target does its own set-up. `make` without a target lists them.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
ARGS ?=
VENV := .venv
OTHER := .venv-other
# only the engine runs on this older Python
OLDEST := .venv-oldest
PY := $(VENV)/bin/python
# the Python of .venv, such as python3.13; by default the newest
PYTHON ?=
# the version for make release
VERSION ?=
# kills per target, 1,000 in all
CHAOS := --target local=700 --target isolated=150 --target ray=150
# the same over a real Kafka, with hosts that share a data directory, and hosts on separate machines;
# bench/results/chaos-kafka.json was made with this seed
CHAOS_KAFKA := --seed 6 --pipeline shop --set spec.source.devices=200 --set spec.source.payloadBytes=100 \
    --mean-delay 0.8 --target kafka=180 --target kafka-machines=120
CHAOS_CLUSTER := --faults 100 --seed 1
# with bytecode only the first start compiles
unexport PYTHONDONTWRITEBYTECODE
# packages of another environment must not hide ours
unexport PYTHONPATH PYTHONHOME

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-16s %s\n", $$1, $$2}'
	@echo "  ARGS='...' goes to the command: make run ARGS='--limit 1000', make unit ARGS='-k trigger'"

.PHONY: setup
setup: ## make the virtual environment .venv for all other targets
	@.ci/python.sh setup $(VENV) $(PYTHON)

.PHONY: run
run: setup ## the demo: two short runs, one screen, one HTML page
	@$(VENV)/bin/walle demo $(ARGS)

.PHONY: test test-all
test: fmt-check lint types arch ## the essential tests and checks, on one Python; needs no other program
	@$(PY) .ci/jobs.py essential $(PY) $(OTHER)/bin/python $(ARGS)
test-all: setup ## the other tests: second Python, faults, kills, Ray, brokers, containers
	@.ci/python.sh other $(OTHER) $(VENV)
	@.ci/python.sh oldest $(OLDEST)
	@$(PY) .ci/jobs.py rest $(PY) $(OTHER)/bin/python $(ARGS)

.PHONY: docs pictures
pictures: setup ## write the pictures of docs/
	@$(PY) docs/pictures.py
docs: setup ## build the documentation as a site in build/docs; fails on broken links
	@$(PY) -m pip install -q --disable-pip-version-check -c requirements.lock furo myst-parser sphinx
	@$(PY) -m sphinx -W --keep-going -q -c docs -b html . build/docs
	@echo "build/docs/docs/index.html"

.PHONY: release
release: setup ## make version, changelog, commit, tag, wheel, archive and notes: make release VERSION=0.2.0; pushes nothing
	@$(PY) .ci/release.py $(VERSION)

.PHONY: fmt fmt-check lint types arch size
fmt: setup ## format the code
	@$(VENV)/bin/ruff format . && $(VENV)/bin/ruff check --fix --select I .
fmt-check: setup
	@$(VENV)/bin/ruff format --check -q . || { echo "not formatted: make fmt"; exit 1; }
lint: setup ## check with ruff, all rules
	@$(VENV)/bin/ruff check -q .
types: setup ## check types with mypy, strict
	@$(VENV)/bin/mypy
arch: setup ## check layers and import contracts
	@out=$$($(VENV)/bin/lint-imports --no-cache 2>&1) || { echo "$$out"; exit 1; }; tail -n 1 <<<"$$out"
size: setup ## count the lines of the product by room; test kits apart
	@$(PY) .ci/size.py $(ARGS)

.PHONY: unit prop kafka cluster chaos chaos-kafka chaos-cluster chaos-release chaos-power fuzz fuzz-guest long
unit: setup ## only the unit tests
	@$(PY) -m pytest tests/unit $(ARGS)
prop: setup ## only the property tests
	@$(PY) -m pytest tests/property -m "not slow" $(ARGS)
kafka: setup ## only the tests against a real Apache Kafka; needs Docker, or a JDK and Maven
	@$(PY) -m pytest -m "kafka and not slow" tests/integration $(ARGS)
cluster: setup ## run the main job on three container nodes by ray up, with Kafka over TLS and an S3 server; ARGS='--json bench/results/cluster.json'
	@.ci/cluster.sh
	@$(PY) -m tests.cluster $(ARGS)
chaos: setup ## kill -9 1,000 times and compare the results byte for byte; resumable
	@$(PY) -m walle_stream.testing.chaos $(CHAOS) --folder walle-data/chaos --resume \
	    --json bench/results/chaos.json $(ARGS)
chaos-kafka: setup ## 300 kills of hosts, cloud app, sender and broker, with rebalances and network cuts; resumable
	@$(PY) -m walle_stream.testing.chaos $(CHAOS_KAFKA) --folder walle-data/chaos-kafka --resume \
	    --json bench/results/chaos-kafka.json $(ARGS)
chaos-cluster: setup ## 100 faults of a cluster's nodes, processes, brokers, object store and version under a live feed; resumable; needs Docker
	@.ci/cluster.sh
	@$(PY) -m tests.cluster.chaos $(CHAOS_CLUSTER) --folder walle-data/chaos-cluster \
	    --json bench/results/chaos-cluster.json $(ARGS)
chaos-release: setup ## 200 kills of release services, hosts, operators and file server; then a check of every device
	@$(PY) -m walle_deploy.testing.chaos --kills 200 --json bench/results/chaos-release.json $(ARGS)
chaos-power: setup ## 1,000 power cuts, rebuilt from a log of every file operation; resumable. With a real ext4: ARGS='--ext4 50'
	@$(PY) -m tests.power --folder walle-data/chaos-power --json bench/results/chaos-power.json $(ARGS)
fuzz: setup ## 100,000 mutated models, which must give results or an error of the engine; resumable
	@mkdir -p walle-data
	@$(PY) -m walle_stream.testing.onnx.fuzz --count 100000 --seed 2 \
	    --json walle-data/fuzz.json $(ARGS)
	@cp walle-data/fuzz.json bench/results/fuzz.json
fuzz-guest: setup ## 200,000 random programs of two devices in one VM, which must not see each other; resumable
	@mkdir -p walle-data
	@$(PY) tests/isolation/fuzz.py --count 200000 --seed 1 --json walle-data/fuzz-guest.json $(ARGS)
	@cp walle-data/fuzz-guest.json bench/results/fuzz-guest.json
long: setup ## the long forms of property and chaos tests
	@$(PY) -m pytest -m slow $(ARGS)

.PHONY: gates conformance conformance-peers zoo
gates: setup ## decisions of release gates on simulated fleets; half an hour of one core
	@$(PY) bench/gates.py $(ARGS)
conformance: setup ## ONNX's conformance cases, counted by backend of the tensor engine
	@$(PY) -W ignore -m walle_stream.testing.onnx.report --json bench/results/conformance.json $(ARGS)
conformance-peers: setup ## the same cases on onnxruntime, the ONNX reference and MNN (installed in .venv-peers)
	@$(PY) -W ignore bench/conformance_peers.py $(ARGS)
zoo: setup ## real models of other packages beside onnxruntime (installed in .venv-peers); downloads 600 MB once, see docs/engine.md
	@$(PY) -W ignore -m tests.zoo $(ARGS)

.PHONY: bench-pipeline bench-durability bench-latency bench-core bench-install bench-growth bench-peers bench-fleet bench-tunnel bench-vm \
    bench-cloud bench-calls bench-ipv bench-engine bench-release bench-report
bench-pipeline: setup ## speed of the main job and of a plain Python loop; cost of busy neighbours and of partitions
	@$(PY) bench/pipeline.py $(ARGS)
bench-latency: setup ## latency from page exit to commit at 25, 50 and 75 % of the maximum rate, also under load; needs a quiet machine
	@$(PY) bench/latency.py $(ARGS)
bench-core: setup ## speed of the core without scripts, with a trigger on clicks and with one on exits
	@$(PY) bench/core.py $(ARGS)
bench-install: setup ## versions installed into a running host under load, compared with a restart
	@$(PY) bench/install.py $(ARGS)
bench-durability: setup ## cost of spec.state.sync: false, interval and true in turns, and on a slow disk
	@$(PY) bench/durability.py $(ARGS)
bench-growth: setup ## memory of one process over 10 million events; more than five minutes
	@$(PY) bench/growth.py $(ARGS)
bench-peers: setup ## the shop against other streaming libraries (installed in .venv-peers): over a file, over Kafka
	@$(PY) bench/peers.py $(ARGS)
	@$(PY) bench/peers.py --kafka $(ARGS)
bench-fleet: setup ## memory of 100,000 devices, cost of their activation, and a hot device
	@$(PY) bench/fleet.py $(ARGS)
bench-tunnel: setup ## latency and throughput over a real Apache Kafka with TLS; needs Docker, or a JDK and Maven
	@$(PY) bench/tunnel.py $(ARGS)
bench-cloud: setup ## CPU and bytes written per feature by the cloud side over a real Apache Kafka, and by a plain loop
	@$(PY) bench/cloud.py $(ARGS)
bench-calls: setup ## round trip of a call over a real Apache Kafka with TLS; look-ups after the kill of a worker
	@$(PY) bench/calls.py $(ARGS)
bench-vm: setup ## VMs against GIL threads, processes and executors, on both Pythons
	@.ci/python.sh other $(OTHER) $(VENV)
	@$(PY) bench/vm.py $(ARGS)
	@if [ -x $(OTHER)/bin/python ]; then $(OTHER)/bin/python bench/vm.py $(ARGS); fi
bench-ipv: setup ## features on the device and in the cloud over one broker: latency, bytes, errors
	@$(PY) bench/ipv.py $(ARGS)
bench-engine: setup ## models on the tensor engine, onnxruntime and MNN (installed in .venv-peers), one thread each
	@$(PY) bench/engine.py $(ARGS)
bench-release: setup ## the release service: each kind of request, decisions, known devices, reports; nine minutes on a quiet machine
	@$(PY) bench/release.py $(ARGS)
bench-report: setup ## write tables from bench/results, and the figures of the README
	@$(PY) bench/report.py $(ARGS)
	@$(PY) bench/readme_figures.py

.PHONY: lock clean
lock: setup ## pin the versions; take the newest with ARGS=--upgrade
	@.ci/lock.sh $(ARGS)
clean: ## remove the environments, caches and builds of the targets
	@rm -rf $(VENV) $(OTHER) $(OLDEST) .venv-peers .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist build
	@find walle_stream connectors deploy configs tests bench -name __pycache__ -prune -exec rm -rf {} +
