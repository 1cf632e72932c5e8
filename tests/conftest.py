"""The modules that tests share lie in tests/support/python: here they become importable."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "support" / "python"))
