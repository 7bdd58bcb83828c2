# SPDX-License-Identifier: Apache-2.0
#
# The only entry point a person needs. `make matrix` and `make test` do everything from a fresh clone.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:

BIN := .venv/bin
export PATH := $(PATH):$(or $(CARGO_HOME),$(HOME)/.cargo)/bin
PYTHON_SOURCES := harness ci runner pintools fuzz
C_SOURCES = $(shell git ls-files -- '*.c' '*.h' '*.cpp' '*.hpp')
ALLOCATORS = $(patsubst allocators/%/src,%,$(wildcard allocators/*/src))
OUT := out
IMAGE := faultline
FUZZ_SECONDS := 10
NIGHTLY_FUZZ_SECONDS := 600
MUTATE_ALL = for allocator in $(ALLOCATORS); do $(BIN)/faultline mutate $$allocator || failed+=" mutate $$allocator"; done

.PHONY: help setup build pin test check format fuzz corpus matrix mutate bench bench-peers paper-nvmalloc paper-nvmreconstruction dax nightly screenshot image clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## install what is missing: system packages, .venv, engine
	@ci/setup.sh

build: setup ## build all allocators, mutants, runner and Valgrind tool
	@$(BIN)/faultline build --mutants

pin: setup ## build the Pin tool with the Pin kit in PIN_ROOT (make pin PIN_ROOT=DIR)
	@PIN_ROOT='$(PIN_ROOT)' $(BIN)/faultline build --tools --tracer pin

test: setup ## run all tests but the nightly ones
	cargo test --quiet --workspace --locked
	$(BIN)/python -m pytest -q -n auto --dist loadfile --no-loadscope-reorder --durations 20

check: setup ## format, lint, types, tests, fuzzing: what CI runs
	$(BIN)/ruff format --check $(PYTHON_SOURCES)
	@echo '$(BIN)/clang-format --dry-run --Werror (C sources)'; $(BIN)/clang-format --dry-run --Werror $(C_SOURCES)
	cargo fmt --all --check
	$(BIN)/ruff check $(PYTHON_SOURCES)
	$(BIN)/mypy
	cargo clippy --quiet --workspace --all-targets --locked -- -D warnings
	$(MAKE) --no-print-directory test fuzz

fuzz: setup ## fuzz every reader, FUZZ_SECONDS each (10)
	@$(BIN)/python ci/fuzz.py --seconds $(FUZZ_SECONDS)

corpus: setup ## add what fuzzing found since to fuzz/corpus
	@$(BIN)/python ci/fuzz.py --merge

format: setup ## format all sources in place
	$(BIN)/ruff format $(PYTHON_SOURCES)
	$(BIN)/ruff check --fix-only --quiet $(PYTHON_SOURCES)
	@$(BIN)/clang-format -i $(C_SOURCES)
	cargo fmt --all

matrix: setup ## the crash matrix (ci/matrix.toml): clean allocators and mutants, to a verdict
	@$(BIN)/faultline matrix --out $(OUT)

mutate: setup ## every flush and fence taken out in turn: the kill rates that matrix says of this build
	@failed=; $(MUTATE_ALL); [ -z "$$failed" ] || { echo "not every place is killed or proved redundant:$$failed" >&2; exit 1; }

bench: setup ## measure tracing, recovery, allocators, matrix (or PARTS of it)
	@$(BIN)/python ci/bench.py --out $(OUT)/bench.json $(PARTS)

bench-peers: setup ## beside pmemcheck and pmreorder, as far as they are there (docs/notes/pmemcheck.md)
	@$(BIN)/python ci/bench.py --out $(OUT)/bench-peers.json peers-tracing peers-exploring

paper-nvmalloc: setup ## the NVMalloc paper's wear and fragmentation figures, made again
	@$(BIN)/python ci/paper_nvmalloc.py --out $(OUT)/paper-nvmalloc

paper-nvmreconstruction: setup ## the NVMReconstruction paper's figures of time, made again
	@$(BIN)/python ci/paper_nvmreconstruction.py --out $(OUT)/paper-nvmreconstruction

dax: setup ## files and heaps on ext4 and xfs with DAX, in a machine (QEMU) that ends at random moments
	@ci/setup.sh ci/dax/packages.txt
	@$(BIN)/python ci/dax.py --out $(OUT)/dax

nightly: setup ## mutate, the long matrix, the nightly tests, the machine with DAX, then 10 minutes of fuzzing a reader: all, then the failures
	@failed=; \
	part() { local name="$$1"; shift; SECONDS=0; "$$@" || failed+=" $$name;"; echo "nightly: $$name: $$SECONDS s"; }; \
	for allocator in $(ALLOCATORS); do part "mutate $$allocator" $(BIN)/faultline mutate $$allocator; done; \
	part matrix $(BIN)/faultline matrix --config ci/nightly.toml --suppressions ci/known.toml --out $(OUT)/nightly; \
	part tests $(BIN)/python -m pytest -q -n auto --dist loadfile --no-loadscope-reorder --durations 20 -m nightly; \
	part dax $(MAKE) --no-print-directory dax; \
	part fuzzing $(BIN)/python ci/fuzz.py --seconds $(NIGHTLY_FUZZ_SECONDS) --seed 0; \
	[ -z "$$failed" ] || { echo "nightly: failed:$${failed%;}" >&2; exit 1; }

screenshot: ## pictures of out/report.html in docs, light and dark (chromium)
	@ci/screenshot.sh

image: ## the Docker image IMAGE (faultline), that holds faultline (docs/docker.md)
	@ci/docker.sh $(IMAGE)

clean: ## remove what was built and found, .venv included
	rm -rf .venv .faultline target $(OUT)
