# Everything a developer runs. Python lives in $(VENV); C++ is built under build/.
#   make setup   install what is missing and build the package      make demo    train the demo model three times
#   make test    all tests that need no GPU                         make gpu     the tests that need one
#   make bench   benchmarks                                         make lint    style, layers, sizes, clang-tidy
#   make format  clang-format and ruff, in place                    make clean   remove build/ (not $(VENV))
#   make cuda    the CUDA part without a card: PyTorch's CUDA build on a runtime of our own (fetches it once)
#   make asan    the torch layer's C++ tests under AddressSanitizer
#   make compat  models and scripts of libraries against the CPU, and docs/compatibility.md of it (by hand)
#   make check-torch  compile the torch layer against every PyTorch that is supported, CUDA's part included
#   make fresh RUN="make lint"  a command, or make test, in a clone on an empty Debian (USER_MODE=1: in a home of its own)
#   QUICK=1      behind demo, bench, lint, asan, compat or check-torch: the shortest form, to see that it works
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help setup demo test bench gpu cuda lint format clean check-torch asan compat fresh

VENV ?= .venv
PYTHON ?= python3
export VENV PYTHON QUICK USER_MODE

help:
	@sed -n 's/^#  //p' Makefile

setup:
	@tools/setup.sh

demo: setup
	@tools/demo.sh

test: setup
	@tools/test.sh

bench: setup
	@tools/bench.sh

gpu:
	@tools/gpu.sh

cuda:
	@tools/cuda.sh

compat: setup
	@tools/compat.sh

asan: setup
	@tools/asan.sh

check-torch: setup
	@tools/check_torch.sh

lint: setup
	@tools/lint.sh all

format: setup
	@tools/lint.sh fix

fresh:
	@tools/fresh.sh $(RUN)

clean:
	rm -rf build
