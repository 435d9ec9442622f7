# Needs make and Python 3.11 or later with venv; everything else goes into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# What is installed: what `make demo` needs, what the documentation needs, and what everything else here needs.
DEMO := $(VENV)/.demo
DOCS := $(VENV)/.docs
STAMP := $(VENV)/.dev
DEMO_EXTRAS := embedded,uvloop

.DEFAULT_GOAL := help
.PHONY: api help demo test test-all test-part test-versions test-upgrade flaky simulate mutants mutants-sample faults chaos lint types check migrating images bench bench-peers bench-spark check-analytics dashboards client docs docs-serve picture constraints wheel sbom sizes clean

help: ## show the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | while IFS="$$(printf '\t')" read -r name text; \
		do printf '  %-13s %s\n' "$$name" "$$text"; done

demo: $(DEMO) ## watch the queue at work on an embedded Redis, about a minute
	@$(BIN)/streamdq demo

# Much of the suite waits: for servers, browsers and other processes. Each process more collects all tests, nine CPU-s.
# One of the processes gets all that needs Spark (tests/distribution.py).
# It starts Python hundreds of times: without bytecode, whatever the environment says, each compiles everything.
PROCESSES := -n 4 --dist loadfile
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/pytest $(PROCESSES)
FIRST_STAGE := -m "not chaos and not thorough"
test: $(STAMP) ## run the tests, in four processes, on one version of Redis: four minutes
	@$(PYTEST) $(FIRST_STAGE)

test-all: $(STAMP) ## run all tests: other versions of Redis and databases, matrices, and what takes long
	@$(PYTEST) -m "not chaos"

test-part: $(STAMP) ## run a part of what only test-all runs; TURN=7
	@$(PYTEST) -m "thorough and not chaos" --turn $(or $(TURN),0)

test-versions: $(STAMP) ## run the core's tests on each Python, server and release there is, and print a table; ONLY="python 3.13"
	@PYTHONDONTWRITEBYTECODE= $(BIN)/python -m tests.packaging.versions $(if $(ONLY),--only "$(ONLY)")

test-upgrade: $(STAMP) ## run an older version and this one side by side under load, minutes; FROM=a wheel, a tag or a commit, else the last release
	@$(BIN)/python -m tests.upgrade.beside $(or $(FROM),$(wildcard tests/upgrade/*.whl))

flaky: $(STAMP) ## run the tests again and again, every other time on a busy machine; RUNS=20
	@PYTHONDONTWRITEBYTECODE= $(BIN)/python -m tests.flaky --runs $(or $(RUNS),20) -- $(BIN)/pytest $(PROCESSES) -q $(FIRST_STAGE)

SIMULATE := $(if $(FIRST),--first $(FIRST)) $(if $(SEEDS),--seeds $(SEEDS)) $(if $(MINUTES),--minutes $(MINUTES))
simulate: $(STAMP) ## simulate histories with every fault; SEEDS=100 or MINUTES=10, FIRST=17 to repeat one
	@$(BIN)/python -m tests.simulation $(SIMULATE)

MUTANTS := $(if $(ONLY),--only $(ONLY)) $(if $(SAMPLE),--sample $(SAMPLE)) $(if $(SEED),--seed $(SEED))
mutants: $(STAMP) ## change scripts and decisions, and see whether tests notice; ONLY="claim finish", SAMPLE=100
	@$(BIN)/python -m tests.mutants $(MUTANTS)

mutants-sample: $(STAMP) ## change the scripts in a few places, which others for each TURN
	@$(BIN)/python -m tests.mutants --lua --quick --sample 30 --seed $(or $(TURN),0) --at-least 90

faults: $(STAMP) ## try each fault under load, print the table of docs/reliability.md; FAULT=worker_killed
	@$(BIN)/python -m tests.crash.table $(FAULT)

chaos: $(STAMP) ## let everything fail and change at random under load; MINUTES=20
	@$(BIN)/python -m tests.crash.chaos --minutes $(or $(MINUTES),20)

migrating: $(STAMP) ## run both sides of the guides for users of other queues, minutes; GUIDES="rq arq"
	@$(BIN)/python -m tests.docs.migrating $(GUIDES)

images: $(STAMP) ## build the Dockerfiles and run each command in them, minutes; as root, with buildah and debootstrap
	@$(BIN)/python -m tests.deploy.images $(if $(BASE),--base $(BASE))

lint: $(STAMP) ## check style, format, which room imports which, and that no test depends on speed
	@$(BIN)/ruff check .
	@$(BIN)/ruff check -q --preview --select PLW1514 --config lint.explicit-preview-rules=true streamdq spark docs
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/python -m tests.real_time

types: $(STAMP) ## check types
	@$(BIN)/mypy

check: lint types docs test ## lint, types, the documentation site and test

bench: $(STAMP) ## measure speed and lateness
	@$(BIN)/python -m benchmarks

bench-peers: $(STAMP) ## measure streamdq beside fourteen other queues, over an hour; PEERS="huey rq" WORKLOADS=drain
	@$(BIN)/python -m benchmarks.peers $(if $(PEERS),--peers "$(PEERS)") $(if $(WORKLOADS),--workloads "$(WORKLOADS)")

bench-spark: $(STAMP) ## measure the analysis of 1, 3 and 10 million events, some minutes
	@$(BIN)/python -m benchmarks.spark --json bench-spark.json

check-analytics: $(STAMP) ## measure both engines of the analysis, and compare every table; EVENTS=10000000
	@$(BIN)/python -m benchmarks.engines --check --events $(or $(EVENTS),1000000)

dashboards: $(STAMP) ## build dashboards and rules; PAGES=URL of the runbook's pages
	@$(BIN)/python -m dashboards $(if $(PAGES),--pages $(PAGES))

DESCRIBE := import json; from streamdq.http import create_app; print(json.dumps(create_app("memory://unused", authentication="mine").openapi(), indent=2))
client: $(STAMP) ## build the types of the TypeScript client from the description of the HTTP API; needs npm
	@$(BIN)/python -c '$(DESCRIBE)' > clients/typescript/openapi.json
	@cd clients/typescript && npm ci --ignore-scripts && npm run generate

MKDOCS := NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs
docs: $(DOCS) ## build the documentation site into build/site; a broken link or anchor is an error
	@$(MKDOCS) build --strict
	@echo "The site is in build/site: make docs-serve shows it at http://127.0.0.1:8000"

docs-serve: $(DOCS) ## show the documentation site at http://127.0.0.1:8000, also while you write it
	@$(MKDOCS) serve

picture: $(STAMP) ## take the documentation's pictures anew; needs chromium
	@$(BIN)/python docs/images/stats_watch.py
	@$(BIN)/python docs/images/web_page.py
	@$(BIN)/python docs/images/report.py
	@$(BIN)/python docs/images/diagrams.py

api: $(STAMP) ## write the public names anew (tests/api/public.txt), which tests compare, and print what changes
	@$(BIN)/python -m tests.api $(if $(COVERED),--covered)

constraints: $(STAMP) ## write constraints.txt anew: the newest release of everything that is installed
	@UV_SYSTEM_CERTS=true $(BIN)/uv pip compile --quiet --upgrade --universal --no-header --no-annotate --all-extras \
		--python-version 3.11 --output-file constraints.txt pyproject.toml

wheel: $(STAMP) ## build the wheel and the source archive into dist/
	@rm -rf dist && $(BIN)/python -m build --outdir dist .

# Of what `pip install streamdq` brings, in the versions of constraints.txt. The tool reads no version but that of a
# pyproject.toml.
sbom: $(STAMP) ## list what the wheel in dist/ brings with it, as CycloneDX, into dist/
	@$(BIN)/uv venv --quiet --clear build/sbom && $(BIN)/uv pip install --quiet --python build/sbom/bin/python \
		-c constraints.txt dist/*.whl
	@version=$$(sed -n 's/^__version__ = //p' streamdq/version.py) && \
		sed "s/^dynamic = .*/version = $$version/" pyproject.toml > build/sbom/pyproject.toml
	@$(BIN)/uv tool run --quiet --from cyclonedx-bom cyclonedx-py environment \
		--pyproject build/sbom/pyproject.toml --mc-type library --output-reproducible --of JSON --output-file dist/streamdq.cdx.json build/sbom/bin/python

PRODUCT := streamdq lua spark deploy clients/typescript/src dashboards docs examples
sizes: ## count the lines written by hand, of the product and of its tests
	@count() { git ls-files -- "$$@" | grep -E '\.(py|lua|sql|html|css|js|mjs|ts|tpl|ya?ml|toml|sh)$$' | grep -v /schema.ts | xargs cat | wc -l; }; \
		echo $$(count $(PRODUCT)) $$(count tests) | awk '{ printf "product %d, tests %d: %.2f for a line\n", $$1, $$2, $$2 / $$1 }'

clean: ## remove the venv and everything built
	rm -rf $(VENV) build dist htmlcov .coverage .coverage.* .hypothesis .import_linter_cache .mypy_cache \
		.pytest_cache .ruff_cache .schemathesis bench-spark.json
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# uv installs in a tenth of pip's time. Where it can't be had, or can't reach the index that pip is configured for, pip
# does the same. A stamp is written last, so an interrupted installation starts again.
export UV_SYSTEM_CERTS := true
define install
	@if [ -x $(BIN)/uv ] && $(BIN)/uv pip install --python $(BIN)/python -c constraints.txt $(UV_OPTIONS) -e '.[$(1)]'; then :; \
		else $(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt -e '.[$(1)]'; fi
endef

$(DEMO): $(VENV)/.made
	@echo "Installing streamdq with an embedded Redis into $(VENV) ..."
	$(call install,$(DEMO_EXTRAS))
	@touch $@

$(DOCS): $(VENV)/.made
	@echo "Installing streamdq and what builds its documentation into $(VENV) ..."
	$(call install,docs)
	@touch $@

# Java's classes make up 400 MB of pyspark; packing them on the way into the venv would take half of the time.
$(STAMP): UV_OPTIONS := --config-settings-package pyspark:--build-option=--compression=stored
$(STAMP): $(VENV)/.made
	@echo "Installing streamdq and everything its tests, docs and benchmarks need into $(VENV): about a minute ..."
	$(call install,dev)
	@touch $(DEMO) $(DOCS) $@

# --clear: a venv of another Python, or one that was moved, can't be repaired by installing into it.
$(VENV)/.made: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "streamdq needs Python 3.11 or later as $(PYTHON): install it, or name one: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "$(PYTHON) has no venv module: install it (Debian, Ubuntu: apt-get install python3-venv)" >&2; exit 1; }
	@$(PYTHON) -m venv --clear $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt uv || echo "uv can't be installed; pip takes longer" >&2
	@touch $@
