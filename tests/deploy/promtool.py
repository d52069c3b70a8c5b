"""Prometheus's own checker of rules, if it is installed."""

import shutil

HOW = "There is no promtool here. It comes with Prometheus: apt-get install prometheus"


def find_promtool() -> str | None:
    return shutil.which("promtool")
