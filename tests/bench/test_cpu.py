"""Processor time of other processes is counted, also of children that have ended."""

import subprocess
import sys

import psycopg

from bench.cpu import Cpu, Meter

BURN = "import time\nwhile time.process_time() < 0.3: pass\n"
BOTH = f"""
import subprocess, sys
sys.stdin.readline()
subprocess.run([sys.executable, "-c", {BURN!r}], check=True)
{BURN}
print("done", flush=True)
sys.stdin.readline()
"""


def test_a_process_counts_with_its_ended_child() -> None:
    process = subprocess.Popen([sys.executable, "-c", BOTH], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    meter = Meter([process.pid])
    process.stdin.write("go\n")
    process.stdin.flush()
    assert process.stdout.readline() == "done\n"
    found = meter.spent(2)
    process.communicate()
    assert found.server is None
    assert found.client > 150_000, "each of the two has used 0.3 s, of which a part is its start"


def test_the_backends_of_a_server_are_counted(postgres_url: str) -> None:
    work = "SELECT count(*) FROM generate_series(1, 1000000)"
    with psycopg.connect(postgres_url, autocommit=True) as watcher, psycopg.connect(postgres_url, autocommit=True) as other:
        meter = Meter(watcher=watcher)  # the time of its own backend is left out
        other.execute(work)
        counted = meter.spent(1).server
        assert counted is not None
        assert counted > 1_000, "a million rows take more than a millisecond"


def test_the_median_of_processor_times_has_both_parts() -> None:
    assert Cpu.median([Cpu(1.0), Cpu(2.0), Cpu(6.0)]) == Cpu(2.0)
    assert str(Cpu.median([Cpu(1.0, 5.0), Cpu(3.0, 7.0)])) == "2.0 client + 6.0 server"
