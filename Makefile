# Two commands: `make submit` and `make test`. Variables: EXPERIMENT, SITE, RUN_DIR, SET (key=value ...).
EXPERIMENT ?= quickstart
SITE ?= auto
RUN_DIR ?=
SET ?=
PYTHON ?= python3
VENV ?= .venv
PART ?=

SHELL := /bin/bash
HPCDDM := $(VENV)/bin/hpcddm
SUITS := -c 'import sys; sys.exit(sys.version_info < (3, 11))'
# A virtual environment of another Python than the one that is named is made again, and so is one of a Python too old.
version = $(shell { $(1) -V || echo none; } 2>/dev/null)
IS_NAMED := $(filter-out file,$(origin PYTHON))
IS_OTHER := $(if $(IS_NAMED),$(filter-out $(call version,$(VENV)/bin/python),$(call version,$(PYTHON))))
TESTBED := slurm/testbed
# One word for the shell, whatever it holds; SET alone is several.
quote = '$(subst ','\'',$(1))'

.PHONY: $(if $(IS_OTHER),$(VENV)/installed) help install submit test test-fast test-bare test-long gpu-check benchmarks lint docs testbed-up testbed-down clean

help:
	@echo "make submit [EXPERIMENT=quickstart] [SITE=auto] [RUN_DIR=runs/NAME] [SET='key=value ...']"
	@echo "make test          everything that can be tested here, on a real Slurm where it can be installed"
	@echo "make test-fast     what is tested quickly, without Slurm and whole runs: for whoever edits"
	@echo "make test-long     storms, races of submitters, containers, newer Slurms: hours, and some GB below /var/tmp;"
	@echo "                   PART=storms is one part of it; tests/long.sh lists them"
	@echo "make test-bare     this commit's make submit and make test on a bare Debian 12 and 13, which need root: two hours"
	@echo "make gpu-check     tests and a table of figures on the GPUs of this machine, 25 minutes; an error where it has none"
	@echo "make benchmarks    the figures of docs/results/ about submitting, backbones and dispatch, measured here"
	@echo "make testbed-up    three real Slurm clusters on this machine; make testbed-down removes them"
	@echo "make lint          ruff and mypy"
	@echo "make docs          docs/ and an API reference as a site with search, in build/docs/index.html"

install: $(VENV)/installed

submit: $(VENV)/installed
	@$(call quote,$(HPCDDM)) submit $(call quote,$(EXPERIMENT)) --site $(call quote,$(SITE)) \
		$(if $(RUN_DIR),--run-dir $(call quote,$(RUN_DIR))) $(SET)

test: $(VENV)/installed-test
	@VENV=$(call quote,$(VENV)) bash tests/run.sh

test-fast: $(VENV)/installed-test
	@CUDA_VISIBLE_DEVICES= OMP_NUM_THREADS=1 PYTHONHASHSEED=0 $(VENV)/bin/python -m pytest -q -n auto --dist loadfile \
		-m "not slow and not slurm and not long and not gpu and not foreign"

test-long: $(VENV)/installed-test
	@VENV=$(call quote,$(VENV)) HPCDDM_ROUNDS=20 PART=$(call quote,$(PART)) bash tests/long.sh

test-bare: $(VENV)/installed-test
	@$(VENV)/bin/python -m tests.isolation.bare_machine

gpu-check: $(VENV)/installed-test
	@status=0; $(VENV)/bin/python -m pytest -m gpu tests/gpu || status=1; \
		$(VENV)/bin/python -m tests.benchmarks.gpu_table || status=1; exit $$status

benchmarks: $(VENV)/installed-test
	@bash $(TESTBED)/install.sh && bash $(TESTBED)/up.sh
	@export HPCDDM_TESTBED=$${HPCDDM_TESTBED:-/tmp/hpcddm-testbed}; \
		$(VENV)/bin/python -m tests.benchmarks.submitting && $(VENV)/bin/python -m tests.benchmarks.sweeping
	@$(VENV)/bin/python -m tests.benchmarks.backbones && $(VENV)/bin/python -m tests.benchmarks.dispatch

lint: $(VENV)/installed-test
	@$(VENV)/bin/ruff check . && $(VENV)/bin/ruff format --check --quiet . && $(VENV)/bin/mypy

# The notice that is turned off advertises the successor of this theme.
docs: $(VENV)/installed-docs
	@NO_MKDOCS_2_WARNING=1 $(VENV)/bin/python -m mkdocs build --strict --config-file docs/site/mkdocs.yml

testbed-up:
	@bash $(TESTBED)/install.sh && bash $(TESTBED)/up.sh

testbed-down:
	@bash $(TESTBED)/down.sh

clean:
	rm -rf $(VENV) build *.egg-info

# torch first and alone: a later requirement could otherwise replace it by a much larger CUDA build.
$(VENV)/installed: setup.cfg pyproject.toml constraints.txt
	@if test -n "$(IS_OTHER)" || ! test -x $(VENV)/bin/pip || ! $(VENV)/bin/python $(SUITS); then \
		{ $(PYTHON) $(SUITS); } 2>/dev/null || { echo "error: hpcddm needs Python 3.11 or later, and $(PYTHON) is $(call version,$(PYTHON));" \
			"next: apt-get install python3.11-venv && make install PYTHON=python3.11" >&2; exit 1; }; \
		$(PYTHON) -m venv --clear $(VENV); \
	fi
	@echo "installing into $(VENV) (once, about a minute)"
	@$(VENV)/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt torch
	@DS_BUILD_OPS=0 $(VENV)/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable .
	@touch $@

$(VENV)/installed-test: $(VENV)/installed
	@$(VENV)/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[test]'
	@touch $@

$(VENV)/installed-docs: $(VENV)/installed
	@$(VENV)/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[docs]'
	@touch $@
