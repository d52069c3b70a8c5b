"""Recovery: the time until another worker starts a killed worker's job, with the default and with the tightest policy."""

from bench import fleet
from bench.places import Host
from bench.report import Heading, Row
from bench.sizes import Sizes

HEADING = Heading("Recovery after SIGKILL in mid-job", ours="seconds", base="silence", judged="most", unit="s")
TARGETS = {"default": (35.0, 30.0), "tight": (3.0, 1.0)}
"""The longest allowed time, and the silence limit of the policy itself."""


def measure(host: Host, sizes: Sizes) -> list[Row]:
    rows = []
    for config, (most, silence) in TARGETS.items():
        if config == "default" and not sizes.patient:
            continue
        with host.place() as place:
            taken = fleet.recovery(place.url, config)
            rows.append(Row(f"{host.name}, {config} policy", taken, silence, most, 0, {config: [taken]}))
    return rows
