"""For all Python tests: makes the modules of tests/support/python importable, and loads two as plugins."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "support" / "python"))
pytest_plugins = ["tiers", "processes"]

# As users run Python: output waits in a buffer until the buffer is full, or is flushed.
os.environ.pop("PYTHONUNBUFFERED", None)
