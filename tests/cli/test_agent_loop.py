"""The loop in the guide for agents: several of them share the tasks of one ledger."""

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

import holdfast
from holdfast.agent import Agent
from tests.cli.conftest import environment
from tests.support import forked
from tests.support.waiting import wait_until

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "agents.md"
AGENTS = ("ada", "bob", "cyd")


@pytest.fixture
def loop(folder: Path) -> Path:
    """The script of the guide, which runs the `holdfast` under test."""
    found = re.search(r"```sh\n(# agent\.sh\n.*?)```", GUIDE.read_text(), re.DOTALL)
    assert found is not None
    program = f'holdfast() {{ {forked.shell_command("holdfast")} "$@"; }}\n'
    (folder / "agent.sh").write_text(program + found[1])
    return folder / "agent.sh"


def test_three_agents_share_eight_tasks(folder: Path, loop: Path, store_url: str) -> None:
    """All wait while another agent holds the only task.

    When it is done, eight tasks are free, and the ledger wakes the agents. Without the wake-up they would wait for an
    hour.
    """
    loop.write_text(loop.read_text().replace("wait=60s", "wait=1h"))
    with holdfast.open(store_url) as ledger:
        dan = Agent(ledger, "dan")
        first = ledger.enqueue("draft").id
        dan.start(first)
        made = ledger.enqueue_many([{"kind": "draft", "depends_on": [first]}] * 8)
        agents = []
        try:
            for name in AGENTS:
                env = environment(HOLDFAST_URL=store_url, HOLDFAST_AGENT=name)
                agents.append(
                    subprocess.Popen(
                        ["sh", str(loop)],  # noqa: S607
                        cwd=folder,
                        env=env,
                        stdout=subprocess.DEVNULL,
                        stderr=subprocess.PIPE,
                        start_new_session=True,
                    )
                )
            for agent in agents:
                assert agent.stderr is not None
                assert agent.stderr.readline() == b"Released: none.\n"  # it has found nothing and waits
            dan.complete(first)
            wait_until(lambda: ledger.counts()["default"] == {"succeeded": 9}, seconds=120)
        finally:
            for agent in agents:
                if agent.poll() is None:
                    os.killpg(agent.pid, signal.SIGKILL)
                agent.communicate()
        jobs = [ledger.get(job.id) for job in made]
        assert {(job.status.value, job.attempt) for job in jobs} == {("succeeded", 1)}
        assert {job.last_owner for job in jobs} <= set(AGENTS)
