"""The sizes of the measurements."""

from typing import NamedTuple


class Sizes(NamedTuple):
    jobs: int = 200_000
    """Jobs each contender works through, in all rounds together."""
    rounds: int = 8
    singles: int = 20_000
    """Calls with one job each from a single thread; many threads make `jobs` of them."""
    threads: int = 64
    history: int = 5_000_000
    leases: int = 10_000
    beats: int = 20
    """How often every lease is renewed."""
    sweeps: int = 5
    sweep_pause: float = 6.0
    """Seconds between sweeps: after five seconds every claim is checked again."""
    lone: int = 200
    """Jobs that are enqueued while the worker is idle."""
    small: int = 100_000
    large: int = 1_000_000
    """The amounts of work over which the memory of a process is compared."""
    fleet_jobs: int = 60_000
    fleet_rounds: int = 5
    idle_seconds: float = 30.0
    settle_seconds: float = 12.0
    """How long a worker has to become idle after its start. PostgreSQL counts what a connection did when it was idle for 10 s."""
    schedules: int = 1_000
    blocked_claims: int = 300
    """Claims of one job each, beside `large` jobs whose limit is used up."""
    dependents: int = 5_000
    """Jobs that wait for one."""
    grouped: int = 10_000
    """Jobs of one group."""
    tasks: int = 100_000
    """Tasks that wait while an agent resumes, with two and a half times as many finished ones."""
    resumes: int = 50
    runs: int = 10
    """Commands that are started one after the other."""
    cycles: int = 10
    cycle_jobs: int = 20_000
    """Cycles of fill, drain and prune, and the jobs of each."""
    patient: bool = True
    """Whether to measure what takes half a minute by default."""

    @property
    def per_round(self) -> int:
        return max(1, self.jobs // self.rounds)

    @property
    def warm_up(self) -> int:
        """Enough batches for every statement to have its generic plan, if there are enough jobs."""
        return min(10_000, self.per_round)


FULL = Sizes()
QUICK = Sizes(
    jobs=20_000,
    rounds=4,
    singles=1_000,
    history=100_000,
    leases=5_000,
    beats=5,
    sweeps=1,
    lone=10,
    small=5_000,
    large=25_000,
    fleet_jobs=5_000,
    fleet_rounds=1,
    idle_seconds=5.0,
    settle_seconds=3.0,
    dependents=1_000,
    grouped=2_000,
    tasks=10_000,
    resumes=20,
    runs=5,
    cycles=4,
    cycle_jobs=4_000,
    patient=False,
)
