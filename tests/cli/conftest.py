"""Tests of the program `innkeeper` (tests/support/python/innkeeper_program.py)."""

from __future__ import annotations

import signal

from innkeeper_program import command, jobs, machine, program, runners

__all__ = ["command", "jobs", "machine", "program", "runners"]  # fixtures

# A shell makes its background jobs ignore SIGINT, and programs pass that on: tests send it.
signal.signal(signal.SIGINT, signal.default_int_handler)
