#!/usr/bin/env bash
# cuda_tests.sh 1|2: the pytest arguments of a tier of `make cuda`, one a word.
case "$1" in
  1) echo tests/cuda ;;
esac
