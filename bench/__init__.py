"""Benchmarks: Holdfast compared with the same statements without it. See `python -m bench --help`."""

import warnings

# The PostgreSQL wheel warns about this variable and works without it.
warnings.filterwarnings("ignore", message="XDG_RUNTIME_DIR is not set")
