# Everything a developer runs. Python lives in $(VENV); C++ is built under build/.
#   make setup   install what is missing and build the package      make demo    train the demo model three times
#   make test    all tests that need no GPU                         make gpu     the tests that need one
#   make bench   benchmarks                                         make lint    style, layers, sizes, clang-tidy
#   make format  clang-format and ruff, in place                    make clean   remove build/ (not $(VENV))
#   make asan    the torch layer's C++ tests under AddressSanitizer
#   make check-torch  compile the torch layer against every PyTorch that is supported, CUDA's part included
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help setup demo test bench gpu lint format clean check-torch asan

VENV ?= .venv
PYTHON ?= python3
export VENV PYTHON

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

asan: setup
	@tools/asan.sh

check-torch: setup
	@tools/check_torch.sh

lint: setup
	@tools/lint.sh all

format: setup
	@tools/lint.sh fix

clean:
	rm -rf build
