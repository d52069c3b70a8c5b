"""Refusals for agents: the state of the task, and the command that helps."""

from typing import Any

import pytest

from holdfast import Ledger
from holdfast.agent import Agent
from holdfast.errors import HoldfastError
from holdfast.testing import ManualClock
from tests.contract.builders import queued


def refusal(verb: Any, *given: Any, **options: Any) -> HoldfastError:
    with pytest.raises(HoldfastError) as caught:
        verb(*given, **options)
    return caught.value


def test_a_task_of_another_agent_is_refused(ledger: Ledger, ada: Agent, bob: Agent) -> None:
    one = queued(ledger).id
    ada.start(one)
    taken = refusal(bob.start, one)
    assert taken.message.startswith(f"task {one} is held by ada, until 20")
    assert taken.action == "Take another task: holdfast resume --agent bob"
    assert taken.context["holder_session"] == "agent"
    lost = refusal(bob.heartbeat, one)
    assert (lost.code, lost.message.partition(", until")[0]) == ("fence_lost", f"task {one} is not bob's: it is held by ada")
    assert lost.action.startswith("Stop working on it;") and "holdfast resume --agent bob" in lost.action


def test_a_task_of_the_same_agent_in_another_session_is_refused(ledger: Ledger, ada: Agent) -> None:
    one = queued(ledger).id
    Agent(ledger, "ada", session="s 2").start(one)
    for verb in (ada.start, ada.complete):
        error = refusal(verb, one)
        assert "held by ada in session s 2, until " in error.message
        assert error.message.endswith("; you are in session agent")
        assert (error.context["holder"], error.context["holder_session"]) == ("ada", "s 2")
        assert "use --session 's 2'" in error.action
    ada.start(two := queued(ledger).id)
    other = refusal(Agent(ledger, "ada", session="s 2").start, two)
    assert other.action.endswith("holdfast resume --agent ada --session 's 2'")


def test_a_refusal_has_the_current_task(ledger: Ledger, ada: Agent, bob: Agent, clock: ManualClock) -> None:
    one = queued(ledger, policy={"attempts_max": 1}).id
    ada.start(one)
    clock.advance(600)
    error = refusal(bob.start, one)
    assert (error.code, error.context["why"]) == ("not_claimable", "exhausted")
    assert (error.context["status"], error.context["rev"]) == ("running", ledger.get(one).rev)


def test_a_task_without_a_holder_is_refused(ledger: Ledger, ada: Agent) -> None:
    one = queued(ledger).id
    error = refusal(ada.heartbeat, one)
    assert (error.code, error.message) == ("fence_lost", f"task {one} has no holder: it is queued")
    assert error.action == f"To claim it: holdfast task start {one} --agent ada"
    ada.start(one)
    ada.release(one)
    assert refusal(ada.complete, one).message == f"task {one} has no holder: it is queued"
    assert refusal(ada.start, one, attempt=7).message == f"task {one} has no holder: it is queued, at attempt 1; you gave 7"


def test_a_wrong_attempt_is_refused(ledger: Ledger, ada: Agent) -> None:
    one = queued(ledger).id
    ada.start(one)
    ahead = refusal(ada.heartbeat, one, attempt=2)
    assert (ahead.code, ahead.message) == ("fence_lost", f"task {one} is at attempt 1, which is yours; you gave 2")
    assert ahead.action == "It is yours: use --attempt 1."
    ada.release(one)
    ada.start(one)
    behind = refusal(ada.heartbeat, one, attempt=1)
    assert behind.message == f"task {one} is at attempt 2, which is yours; you gave 1"
    assert behind.action.startswith("Stop if you are the process of attempt 1")
    assert behind.action.endswith("use --attempt 2.")


@pytest.mark.parametrize("verb", ["start", "heartbeat", "complete", "release"])
def test_a_finished_task_is_refused(ledger: Ledger, ada: Agent, bob: Agent, clock: ManualClock, verb: str) -> None:
    one, two = queued(ledger).id, queued(ledger).id
    ada.start(one)
    ada.complete(one)
    ledger.cancel(two)
    for agent in (ada, bob):
        error = refusal(getattr(agent, verb), one)
        assert error.message == f"task {one} has succeeded already, last held by ada, at {clock.now():%Y-%m-%dT%H:%M:%SZ}"
        assert f"holdfast resume --agent {agent.name}" in error.action
    assert refusal(getattr(ada, verb), two).message.startswith(f"task {two} is cancelled already, at ")


def test_a_waiting_task_names_its_dependencies(ledger: Ledger, ada: Agent, bob: Agent) -> None:
    first = [queued(ledger).id for _ in range(7)]
    one, many = queued(ledger, depends_on=first[:1]).id, queued(ledger, depends_on=first).id
    ada.start(first[0])
    error = refusal(bob.start, one)
    assert error.code == "not_claimable"
    assert error.message == f"task {one} cannot be claimed: it waits for task {first[0]} (running, held by ada)"
    assert f"holdfast explain {one}. " in error.action
    assert refusal(bob.start, many).message.endswith(f"task {first[4]} (queued), 2 more")


def test_a_task_that_cannot_be_claimed_yet_has_a_reason(ledger: Ledger, ada: Agent, clock: ManualClock) -> None:
    later, paused = queued(ledger, delay="1h").id, queued(ledger, queue="still").id
    ledger.pause("still")
    assert "it is scheduled for later, until 20" in refusal(ada.start, later).message
    assert refusal(ada.start, paused).message.endswith("its queue still is paused")


def test_an_invalid_agent_or_session_is_named_in_the_message(ledger: Ledger) -> None:
    assert "agent must be" in refusal(Agent, ledger, "").message
    assert "session must be" in refusal(Agent, ledger, "ada", session="").message
