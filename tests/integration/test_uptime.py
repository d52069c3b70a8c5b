"""Nothing depends on how long the machine has been up: a monotonic clock may start anywhere."""

import warnings

import pytest

from tests.support.uptime import Machine, namespace_command

UPTIMES = {"just started": 3, "up for years": 30 * 365 * 86_400}
READ_CLOCK = ("-c", "import time; print(time.monotonic())")
EXPECTED = {
    "worker": {
        "ended": [
            ["succeeded", 2, "reclaimed"],
            ["succeeded", 1, "done"],
            ["dead_lettered", 2, None],
            ["succeeded", 1, "reclaimed"],
        ],
        "delivered": True,
    },
    "sealer": {"anchored": True, "ended": True},
    "supervisor": {"fails": [0, "clean_exit", 2], "hangs": [0, "clean_exit", 1]},
    "keeper": {"beaten": True, "requeued": True},
    "waits": {"waited": "queued", "followed": 0, "tail": ["enqueued", "cancelled", 0]},
    "demo": {"code": 0},
}


@pytest.fixture(scope="module")
def way() -> list[str] | None:
    """The command for a time namespace, or None with a warning if the clock must be injected."""
    found, said = namespace_command()
    if found is None:
        warnings.warn(f"no time namespace here, so the clock is injected: {said}", stacklevel=1)
    return found


@pytest.mark.parametrize(
    ("store_url", "uptime_s"),
    [
        pytest.param("sqlite", UPTIMES["just started"], marks=pytest.mark.torture),
        ("sqlite", UPTIMES["up for years"]),
        ("postgres", UPTIMES["just started"]),
        pytest.param("postgres", UPTIMES["up for years"], marks=pytest.mark.torture),
    ],
    indirect=["store_url"],
)
def test_every_tick_and_wait_behaves_the_same(store_url: str, uptime_s: int, way: list[str] | None) -> None:
    found = Machine(uptime_s, way).run("-m", "tests.integration.programs.ticking", store_url)
    assert uptime_s <= found.pop("clock") < uptime_s + 120
    assert found == EXPECTED


@pytest.mark.parametrize("uptime_s", UPTIMES.values(), ids=UPTIMES)
@pytest.mark.parametrize("injected", [False, True], ids=["as the kernel allows", "injected"])
def test_a_program_reads_the_clock_of_its_machine(uptime_s: int, injected: bool, way: list[str] | None) -> None:
    machine = Machine(uptime_s, None if injected else way)
    assert uptime_s <= machine.run(*READ_CLOCK) < uptime_s + 120
