"""Adds an offset to the monotonic clock of every Python process that has this folder on its path."""

import os
import time

offset, real = float(os.environ.get("MONOTONIC_OFFSET", "0")), time.monotonic
time.monotonic = lambda: real() + offset
