# Everything happens in .venv; nothing else on the machine is changed.
PYTHON ?= python3
# Where pip looks for PyTorch besides its usual index. auto: the CPU builds where no NVIDIA GPU is
# found and the index answers; empty: nowhere else; or the address of an index.
TORCH_INDEX ?= auto
CPU_INDEX := https://download.pytorch.org/whl/cpu

BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
ON_PATH := PATH="$(CURDIR)/$(BIN):$$PATH"

.PHONY: help quickstart test test-cpus test-slow lint count docs clean
.DEFAULT_GOAL := help

help: ## say what there is
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14
	@echo 'variables: PYTHON=python3.12, TORCH_INDEX=URL (or empty)'

quickstart: .venv/.core ## install unitk, then train, generate and score on the bundled sample
	@$(ON_PATH) bash recipes/quickstart/run.sh

test: lint ## ruff, mypy and the fast tests
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2

test-slow: .venv/.dev ## the tests that take longer
	$(BIN)/python -m pytest -q -m slow

# what is computed: models, losses, searches, imports; see tests/rounding.py
NUMERIC := $(addprefix tests/,criterions decoding golden interop latent models properties)
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

docs: .venv/.docs ## build the site, warnings are errors
	@$(ON_PATH) mkdocs build --strict

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

.venv/.core: .venv/.made setup.py pyproject.toml constraints.txt
	@index='$(TORCH_INDEX)'; size='300 MB for a CPU build of PyTorch, 3 GB for one with CUDA'; \
	if [ "$$index" = auto ]; then \
	  index=; \
	  if command -v nvidia-smi >/dev/null; then \
	    size='3 GB (NVIDIA GPU found: PyTorch with CUDA)'; \
	  elif $(BIN)/python -c 'from urllib.request import urlopen; urlopen("$(CPU_INDEX)/torch/", timeout=3)' 2>/dev/null; then \
	    index='$(CPU_INDEX)'; \
	    size="300 MB (no NVIDIA GPU: the CPU build of PyTorch from $$index)"; \
	  else \
	    echo 'No NVIDIA GPU, but $(CPU_INDEX) does not answer: PyTorch from the usual index of pip.'; \
	  fi; \
	fi; \
	echo "Downloads up to about $$size."; \
	$(PIP) install $${index:+--extra-index-url "$$index"} -c constraints.txt -e .
	@touch $@

.venv/.dev .venv/.docs: .venv/.%: .venv/.core
	$(PIP) install -q -c constraints.txt -e '.[$*]'
	@touch $@
