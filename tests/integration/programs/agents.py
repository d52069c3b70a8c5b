"""Functions that agents run, each in its own process."""

import holdfast
from holdfast.agent import Agent
from tests.integration.programs.workers import Go


def resume_once(number: int, go: Go, *, url: str) -> int | None:
    """Resume once, and return the task."""
    with holdfast.open(url) as ledger:
        agent = Agent(ledger, f"agent-{number}")
        go()
        task = agent.resume(request_id="first").task
        return None if task is None else task.id


def work(number: int, go: Go, *, url: str, tasks: int) -> list[list[int]]:
    """Resume, beat and complete until all tasks are done. Return the tasks that this agent completed, with their attempts."""
    with holdfast.open(url) as ledger:
        agent, waiter = Agent(ledger, f"agent-{number}"), ledger.waiter()
        go()
        done: list[list[int]] = []
        turn = 0
        while ledger.counts()["default"].get("succeeded", 0) < tasks:
            turn += 1
            task = agent.resume(request_id=f"resume-{turn}").task
            if task is None:
                waiter.wait(0.5)
                continue
            agent.heartbeat(task.id, attempt=task.attempt, progress=1, request_id=f"beat-{turn}")
            agent.complete(task.id, {"by": number}, attempt=task.attempt, request_id=f"complete-{turn}")
            done.append([task.id, task.attempt])
        waiter.close()
        return done
