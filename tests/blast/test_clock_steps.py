"""The ledger's clock steps while a fleet is at work and while a worker joins it. No job is taken from its holder.

The processes are real. The step is injected: their ledgers, and that of the test, read the machine's clock and add the
offset in a file. The monotonic clock is the machine's, which no step changes.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.blast.fleet import Fleet
from tests.blast.watch import Watch

HOUR = 3_600
STEPS = [
    pytest.param([HOUR] * 2, id="forward"),
    pytest.param([-HOUR] * 2, id="back"),
    pytest.param([HOUR, -HOUR] * 6, id="to_and_fro", marks=pytest.mark.torture),
    pytest.param([3, -3, 30, -30, 24 * HOUR, -24 * HOUR, 366 * 24 * HOUR], id="of_all_sizes", marks=pytest.mark.torture),
]


class Clock:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0.0
        self.step(0)

    def step(self, seconds: float) -> None:
        """Change the offset for all processes at the same time."""
        self._offset += seconds
        new = self.path.with_suffix(".new")
        new.write_text(str(self._offset))
        new.replace(self.path)


@pytest.fixture(scope="module")
def clock(tmp_path_factory: pytest.TempPathFactory) -> Clock:
    return Clock(tmp_path_factory.mktemp("clock") / "offset")


@pytest.fixture(scope="module")
def make_fleet(schema_url: Callable[[], str], clock: Clock, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Fleet]:
    """Fleets whose ledgers use the stepped clock."""
    return lambda: Fleet(schema_url(), tmp_path_factory.mktemp("fleet"), clock=clock.path)


@pytest.mark.parametrize("steps", STEPS)
def test_a_step_of_the_clock_takes_no_job_from_its_holder(
    fleet: Fleet, clock: Clock, steps: list[int], request: pytest.FixtureRequest
) -> None:
    joining = f"joins-{request.node.callspec.id}"
    with Watch(fleet, late=True) as watch:
        for number, step in enumerate(steps):
            clock.step(step)
            if number == 0:
                fleet.start(joining)
                fleet.held |= {job.id: joining for job in fleet.hold(joining)}
                fleet.started(joining)
            watch.all_holders_beat()
        watch.during(2)
    assert {fleet.ledger.get(job_id).attempt for job_id in fleet.held} == {1}
