"""For all Python tests: makes the modules of tests/support/python importable, and loads two as plugins."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "support" / "python"))
pytest_plugins = ["tiers", "processes"]

# As users run Python: what is printed waits in a block until it is full, or is flushed.
os.environ.pop("PYTHONUNBUFFERED", None)
