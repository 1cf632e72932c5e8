# Everything a developer runs. Python lives in $(VENV); C++ is built under build/. Tests come in tiers, each with the
# ones before it: check, test; verify and nightly are jobs beside them (docs/testing.md).
#   make setup   install what is missing and build the package      make demo    train the demo model three times
#   make check   the quick tests: minutes (CHANGED=1: only what the changed files reach)
#   make test    all tests that need no GPU and no hour (FAILED=1: only what failed last)
#   make verify  sanitizers, fuzzing, clang-tidy, documented commands and more (JOB="asan tsan": these alone)
#   make nightly what takes an hour a job (JOB=soak), and docs/nightly.md of it
#   make bench   benchmarks                                         make gpu     the tests that need one
#   make table   training under one cap of GPU memory, beside what others use (ALL=1: every cell; tools/table.sh --help)
#   make format  clang-format, ruff and gersemi, in place           make lint    style, layers, sizes, spelling, clang-tidy
#   make docs    the documents and the reference of Python and C++ as a site, without a warning
#   make clean   remove build/ (not .venv)
#   make cuda    the CUDA part without a GPU: PyTorch's CUDA build on a runtime of our own (fetches it once)
#   make asan    the torch layer's C++ tests under AddressSanitizer
#   make compat  models and scripts of libraries against the CPU, and docs/compatibility.md of it (by hand)
#   make check-torch  compile the torch layer against every PyTorch that is supported, CUDA's part included
#   make fresh RUN="make lint"  a command, or make test, in a clone on an empty Debian (USER_MODE=1: in a home of its own)
#   QUICK=1      behind demo, bench, lint, docs, asan, compat or check-torch: the shortest form, to see that it works
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help setup demo check test verify nightly bench gpu table cuda lint format docs clean check-torch asan compat fresh

VENV ?= .venv
PYTHON ?= python3
export VENV PYTHON QUICK USER_MODE CHANGED FAILED

help:
	@sed -n 's/^#  //p' Makefile

setup:
	@tools/setup.sh

demo: setup
	@tools/demo.sh

check:
	@tools/setup.sh check
	@tools/check.sh

test:
	@tools/setup.sh test
	@tools/test.sh

verify:
	@$(PYTHON) tools/jobs.py --known verify $(JOB)
	@tools/setup.sh verify
	@$(VENV)/bin/python tools/jobs.py verify $(JOB)

nightly:
	@$(PYTHON) tools/jobs.py --known nightly $(JOB)
	@tools/setup.sh verify
	@$(VENV)/bin/python tools/jobs.py nightly $(JOB)

bench:
	@tools/setup.sh bench
	@tools/bench.sh

gpu:
	@tools/gpu.sh

table:
	@tools/table.sh

cuda:
	@tools/cuda.sh

compat:
	@tools/setup.sh test
	@tools/compat.sh

asan:
	@tools/setup.sh check
	@tools/asan.sh

check-torch:
	@tools/setup.sh package
	@tools/check_torch.sh

lint:
	@tools/setup.sh verify
	@tools/lint.sh all

format:
	@tools/setup.sh check
	@tools/lint.sh fix

docs:
	@tools/setup.sh docs
	@tools/docs.sh

fresh:
	@tools/fresh.sh $(RUN)

clean:
	rm -rf build
