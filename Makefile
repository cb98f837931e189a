# Everything happens in .venv; nothing else on the machine is changed.
PYTHON ?= python3
# Where pip finds PyTorch. auto: at PyTorch's own index the CPU build, if there is no NVIDIA GPU and
# the index answers; empty: where pip finds everything else; or the address of an index.
TORCH_INDEX ?= auto
CPU_INDEX := https://download.pytorch.org/whl/cpu

BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
INSTALL := $(PIP) install -qq
ON_PATH := PATH="$(CURDIR)/$(BIN):$$PATH"

.PHONY: help quickstart test test-cpus test-slow lint count capsules capsule docs fairseq lock clean
.DEFAULT_GOAL := help

help: ## say what there is
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14
	@echo 'variables: PYTHON=python3.12, TORCH_INDEX=URL (or empty)'

quickstart: .venv/.core ## install unitk, then train, generate and score on the bundled sample
	@$(ON_PATH) bash recipes/quickstart/run.sh
	@echo 'Next, type: source .venv/bin/activate    Then this terminal knows unitk; docs/tutorial.md goes on from there.'

test: lint docs ## ruff, mypy, the site and the fast tests
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2

test-slow: .venv/.dev ## the tests that take longer
	$(BIN)/python -m pytest -q -m slow

# what is computed: models, losses, searches, imports; see tests/rounding.py
NUMERIC := $(addprefix tests/,criterions decoding families formats golden models properties)
OTHER_CPUS := ATEN_CPU_CAPABILITY=default ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2

test-cpus: .venv/.dev ## the numeric tests as older processors and other kernels compute
	@for cpu in $(OTHER_CPUS); do for threads in 1 2; do \
	  echo "== $$cpu OMP_NUM_THREADS=$$threads"; \
	  env $$cpu OMP_NUM_THREADS=$$threads $(BIN)/python -m pytest -q $(NUMERIC) || exit; done; done
	@echo '== rounded otherwise'
	UNITK_ROUNDING=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -k 'not flex' $(NUMERIC)

lint: .venv/.dev ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

count: ## lines, folders, cycles and comments of the package
	@$(PYTHON) tests/shape.py

capsules: .venv/.core ## list the capsules; CHECK=1: compare files, hashes and figures with the pages
	@$(BIN)/python docs/capsules.py $(if $(CHECK),,--list)

capsule: .venv/.core ## make the figures of one again: make capsule NAME=read/eyes
	@$(ON_PATH) $(BIN)/python docs/capsules.py $(NAME)

docs: .venv/.dev ## build the site in site/, warnings are errors
	@$(ON_PATH) NO_MKDOCS_2_WARNING=1 mkdocs build --strict

# against the installed PyTorch; pip would build it beside a PyTorch of its own
fairseq: .venv/.dev ## install fairseq, a few minutes with a C++ compiler
	@$(INSTALL) -c constraints.txt cython
	@$(INSTALL) -c constraints.txt --no-build-isolation -e '.[fairseq]'

# PyTorch is not in these files: builds for CPUs and for CUDA have the same version, but other hashes
lock: .venv/.made ## write requirements*.txt anew: the newest versions that constraints.txt allows
	@$(INSTALL) uv
	@for extras in '' '--extra dev --extra docs'; do \
	  $(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
	    --no-emit-package torch --constraints constraints.txt --custom-compile-command 'make lock' \
	    pyproject.toml $$extras --output-file requirements$${extras:+-dev}.txt || exit; done

clean: ## remove .venv and all caches (never runs or data)
	rm -rf .venv build dist site *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/.made:
	@command -v $(PYTHON) >/dev/null || { \
	  echo 'unitk needs Python 3.11 or newer: there is no $(PYTHON); choose one with make PYTHON=...' >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "unitk needs Python 3.11 or newer: $(PYTHON) is $$($(PYTHON) -V 2>&1); choose one with make PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
	  echo '$(PYTHON) has no venv: install it (Debian and Ubuntu: apt install python3-venv) or choose another with make PYTHON=...' >&2; exit 1; }
	$(PYTHON) -m venv .venv
	@touch $@

.venv/.core: .venv/.made setup.py pyproject.toml constraints.txt requirements.txt
	@echo 'Installing into .venv: packages of requirements.txt, 80 MB'
	@$(INSTALL) --require-hashes -r requirements.txt
	@index='$(TORCH_INDEX)'; build='the build that pip finds, 200 MB for a CPU, 3 GB with CUDA'; \
	if [ "$$index" = auto ]; then \
	  index=; \
	  if command -v nvidia-smi >/dev/null; then \
	    build='with CUDA for the NVIDIA GPU, 3 GB'; \
	  elif $(BIN)/python -c 'from urllib.request import urlopen; urlopen("$(CPU_INDEX)/torch/", timeout=3)' 2>/dev/null; then \
	    index='$(CPU_INDEX)'; \
	    build="for a CPU, 200 MB, from $$index"; \
	  fi; \
	fi; \
	echo "Installing into .venv: PyTorch, $$build"; \
	$(INSTALL) $${index:+--index-url "$$index"} "$$(grep '^torch==' constraints.txt)"
	@$(INSTALL) --no-deps --no-build-isolation -e .
	@touch $@

.venv/.dev: .venv/.core requirements-dev.txt
	@echo 'Installing into .venv: packages of requirements-dev.txt, 150 MB'
	@$(INSTALL) --require-hashes -r requirements-dev.txt
	@touch $@
