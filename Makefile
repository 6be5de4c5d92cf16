# Every target works from a fresh clone with Python >= 3.10, pip and make. `make help` lists them.

PYTHON ?= python3
WORKERS ?= 2

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
WHEEL_VENV := build/wheel-venv
PEERS_VENV := .venv-peers
SINABS_VENV := .venv-sinabs
PEERS_TESTS := tests/spikes/frameworks tests/deploy/export/test_readers.py tests/stories --ignore tests/spikes/frameworks/test_frameworks.py

# The environments that pip and build make for the build backend obey the constraints too;
# newer pip reads the second name, older pip the first.
export PIP_CONSTRAINT := constraints.txt
export PIP_BUILD_CONSTRAINT := constraints.txt
export PIP_NO_INPUT := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Tables hold ψ and Ω whatever the locale says.
export PYTHONUTF8 := 1
# Every test worker, and every process that a test starts, would compile all modules anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help check test fuzz demo docs bench browser peers agreement wheel lint types layers clean
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

help:  ## list the targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1	\2/p' Makefile | expand -t 16

# The examples of a document build on each other, and Ray's tests share a cluster: one worker runs a whole file.
check: lint types layers  ## lint, types, layers and the fast tests
	$(BIN)/pytest -q -n $(WORKERS) --dist loadfile -m "not slow"

test: lint types layers browser  ## everything: check, the slow tests, other frameworks, and the wheel in a clean environment
	$(MAKE) docs
	$(BIN)/pytest -q -n $(WORKERS) --dist loadfile
	$(MAKE) peers
	$(MAKE) wheel

# KIND and ONLY run one case again, JOURNAL=file keeps what is done: started again, only the rest is run.
fuzz: $(INSTALLED)  ## random networks, recipes, command lines and files against what is promised (CASES=10000 SEED=0)
	PYTHONPATH=tests:tests/helpers $(BIN)/python -m fuzz --workers $(WORKERS) $(if $(CASES),--cases $(CASES)) $(if $(SEED),--seed $(SEED)) \
		$(if $(KIND),--kind $(KIND)) $(if $(ONLY),--only $(ONLY)) $(if $(JOURNAL),--journal $(JOURNAL))

demo: $(INSTALLED)  ## train without and with the penalty, print the two bills, write demo/report.html
	$(BIN)/picojoule demo --out demo

docs: $(INSTALLED)  ## build the site into build/site: a broken link, a stale page or a public name without a docstring fails
	$(BIN)/python scripts/reference.py --check
	$(BIN)/python scripts/site_pages.py
	$(BIN)/zensical build --strict --clean

bench: $(INSTALLED)  ## run every benchmark
	@set -e; for file in benchmarks/*.py; do echo "== $$file"; $(BIN)/python "$$file"; done

# sinabs needs an older nir than the others. A framework that is missing where it is named fails the tests.
peers: $(PEERS_VENV)/.installed $(SINABS_VENV)/.installed  ## the tests of networks of other frameworks, each in its environment
	PICOJOULE_FRAMEWORKS="spikingjelly snntorch norse neurobench" \
		$(PEERS_VENV)/bin/python -m pytest -q -n $(WORKERS) $(PEERS_TESTS)
	PICOJOULE_FRAMEWORKS="sinabs" \
		$(SINABS_VENV)/bin/python -m pytest -q -n $(WORKERS) $(PEERS_TESTS)

agreement: $(PEERS_VENV)/.installed $(SINABS_VENV)/.installed  ## compare with the peers' counters, write results/agreement.md
	$(PEERS_VENV)/bin/python benchmarks/agreement.py --sinabs $(SINABS_VENV)/bin/python --out results/agreement.md

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(INSTALLED)
	$(BIN)/mypy --strict src

layers: $(INSTALLED)
	$(BIN)/lint-imports

# A Chromium for the tests of the report page: the one on the path, or Debian's in the cache (needs no rights).
browser: $(INSTALLED)
	$(BIN)/python tests/helpers/browser.py

# The clean environment holds the wheel and what it declares, nothing else: a missing dependency or data file shows.
# First with the core alone, then with every extra.
wheel: $(INSTALLED)
	rm -rf dist build
	$(BIN)/python -m build --outdir dist .
	$(PYTHON) -m venv $(WHEEL_VENV)
	$(WHEEL_VENV)/bin/pip install --quiet --no-compile -c constraints.txt dist/*.whl
	cd build && wheel-venv/bin/python -I ../.ci/check_core.py
	$(WHEEL_VENV)/bin/pip install --quiet --no-compile -c constraints.txt "$$(echo dist/*.whl)[all]"
	$(WHEEL_VENV)/bin/pip check
	$(BIN)/python .ci/readme_script.py README.md > build/readme.py
	cd build && wheel-venv/bin/python -I ../.ci/check_installed.py
	cd build && wheel-venv/bin/python -I readme.py
	cd build && wheel-venv/bin/picojoule --help > /dev/null
	rm -rf $(WHEEL_VENV)

$(INSTALLED): pyproject.toml constraints.txt
	@echo "installing into $(VENV): a minute or more, without a word"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@

# They see the packages of the main environment through a path file: PyTorch is installed once.
$(PEERS_VENV)/.installed $(SINABS_VENV)/.installed: .venv-%/.installed: requirements-%.txt $(INSTALLED)
	$(PYTHON) -m venv --clear .venv-$*
	.venv-$*/bin/python .ci/share_packages.py $(BIN)/python src
	PIP_CONSTRAINT= PIP_BUILD_CONSTRAINT= .venv-$*/bin/pip install --quiet --no-compile -r requirements-$*.txt
	touch $@

clean:  ## remove the virtual environments, builds and caches
	rm -rf .cache $(VENV) $(PEERS_VENV) $(SINABS_VENV) build demo dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2> /dev/null || true
