"""``python -m innkeeper [OPTIONS OF PYTHON] script.py ARGUMENTS``: see ``innkeeper.launch``."""

import sys

from innkeeper import launch

launch.become(sys.argv[1:])
