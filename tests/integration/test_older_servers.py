"""The contract, the plans and the locks on each older PostgreSQL that the pages name, with a real server of that version."""

import os
import subprocess
import sys

import pytest

from tests.support.processes import ROOT
from tools.pgserver import TESTED

FILES = (
    "contract",
    "integration/test_fences.py",
    "integration/test_follow.py",
    "integration/test_locks.py",
    "integration/test_migrations.py",
    "integration/test_notifications.py",
    "integration/test_pgbouncer.py",
    "integration/test_plans.py",
    "integration/test_row_columns.py",
    "integration/test_transactional.py",
    "integration/test_unknown_commits.py",
    "integration/test_vitals.py",
    "tools/test_pgserver.py",
)
NEEDS_NEWER = "integration/test_notifications.py::test_a_full_notification_queue_prevents_no_enqueue"
"""It makes the queue of notifications small, with a setting of PostgreSQL 17. Otherwise the queue has room for 8 GB."""


@pytest.mark.torture
@pytest.mark.parametrize("version", sorted(TESTED)[:-1])
def test_every_rule_holds_on_an_older_postgresql(version: int) -> None:
    chosen = ["-m", "not torture", "-k", "postgres or integration or tools", *(f"tests/{file}" for file in FILES)]
    chosen += ["--deselect", f"tests/{NEEDS_NEWER}"]
    command = [sys.executable, "-m", "pytest", "-q", "-n", "4", "--dist", "worksteal", *chosen]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment["TEST_POSTGRES"] = str(version)
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-5_000:]
