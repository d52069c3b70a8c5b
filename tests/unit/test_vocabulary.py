"""Vocabulary: limits, aliases, actors, diagrams."""

from typing import Any

import pytest

from docs import diagrams
from holdfast.core import payloads, vocabulary
from holdfast.core.model import Actor, EventType, Phase, Role, StallReason, Status
from holdfast.core.table import EVENT_ROLES, STEPS, TRANSITIONS

# Actors


@pytest.mark.parametrize(
    "actor",
    [
        Actor(Role.CLIENT, "shop"),
        Actor(Role.CLIENT, "a:b#c"),
        Actor(Role.CLIENT, "worker:x#y"),
        Actor(Role.OPERATOR, "ann#1"),
        Actor(Role.SYSTEM, "ledger"),
        Actor(Role.WORKER, "w-1", "boot"),
        Actor(Role.WORKER, "w:1#x", "boot"),
        Actor(Role.WORKER, "w-1", "boot:2"),
        Actor(Role.WORKER, "w#", "b"),
        Actor(Role.WORKER, "größe", "ñ"),
    ],
    ids=str,
)
def test_the_text_of_an_actor_is_read_back(actor: Actor):
    assert Actor.parse(str(actor)) == actor


def test_an_actor_of_no_role_is_refused():
    with pytest.raises(ValueError, match="robot"):
        Actor.parse("robot:r2")


# Vocabulary

Dialect = vocabulary.Dialect


@pytest.mark.parametrize("dialect", Dialect)
@pytest.mark.parametrize("kind", EventType)
def test_the_name_that_a_dialect_writes_for_an_event_is_read_as_that_event(dialect: Dialect, kind: EventType):
    name = vocabulary.event_name(dialect, kind)
    assert vocabulary.event_type(name) is kind
    assert (name != kind.value) == vocabulary.has_name(dialect, kind)


def test_the_events_that_each_dialect_has_names_for():
    named = {dialect: [kind.value for kind in EventType if vocabulary.has_name(dialect, kind)] for dialect in Dialect}
    assert named == {
        "holdfast": [],
        "liveness": ["heartbeat", "stalled", "resumed"],
        "jobs": ["claimed", "started", "heartbeat", "succeeded", "failed", "cancelled", "dead_lettered", "compensated"],
        "tasks": ["claimed", "heartbeat"],
    }


@pytest.mark.parametrize("dialect", Dialect)
@pytest.mark.parametrize("phase", [None, *Phase])
@pytest.mark.parametrize("status", Status)
def test_the_name_that_a_dialect_writes_for_a_status_is_read_as_that_status(dialect: Dialect, status: Status, phase: Any):
    name = vocabulary.status_name(dialect, status, phase)
    assert vocabulary.status(name) is status
    if name in vocabulary.PHASE_ALIASES:
        assert vocabulary.phase(name) is phase


@pytest.mark.parametrize("dialect", Dialect)
@pytest.mark.parametrize("reason", StallReason)
def test_the_name_that_a_dialect_writes_for_a_reason_is_read_as_that_reason(dialect: Dialect, reason: StallReason):
    assert vocabulary.stall_reason(vocabulary.reason_name(dialect, reason)) is reason


def test_other_reasons_are_written_as_they_are():
    assert vocabulary.reason_name(Dialect.LIVENESS, "spilled") == "spilled"
    assert vocabulary.reason_name(Dialect.LIVENESS, "WORKER_ERROR") == "ROBOT_ERROR"


def test_no_name_of_a_dialect_is_one_of_holdfasts_own():
    own = {*Status, *Phase, *EventType, *StallReason}
    assert not own & {*vocabulary.EVENT_ALIASES, *vocabulary.REASON_ALIASES, *vocabulary.STATUS_ALIASES}


# The table and its diagrams


@pytest.mark.parametrize("kind", EventType)
def test_every_event_has_a_step_and_a_signer(kind: EventType):
    assert any(step[0] is kind for step in STEPS)
    assert EVENT_ROLES[kind]


def test_every_transition_is_made_of_steps():
    for row in TRANSITIONS:
        for status in row.targets:
            assert any(step[2] is status and step[0] in row.events for step in STEPS), row


def test_the_table_has_a_line_for_every_transition():
    lines = diagrams.table().splitlines()
    assert len(lines) == 2 + 1 + len(TRANSITIONS) + 1
    assert all(line.count("|") == 7 for line in lines)
    assert "| assist | running | same | operator | assist_started | Changes the phase from executing to assisted. |" in lines


def test_the_diagram_has_every_change_of_status():
    text = diagrams.diagram()
    for kind, source, target in STEPS:
        if source is not None and source is not target:
            assert any(f"{source.value} --> {target.value}:" in line and kind.value in line for line in text.splitlines())
    assert text.count("--> [*]") == 4


def test_diagrams_are_inserted_between_their_marks():
    page = "# A\n<!-- generated: table -->\nOUTDATED\n<!-- end -->\nB\n<!-- generated: diagram -->\nOUTDATED\n<!-- end -->\nC\n"
    made = diagrams.insert(page)
    assert "OUTDATED" not in made
    assert diagrams.table() in made
    assert f"```mermaid\n{diagrams.diagram()}\n```" in made
    assert made.endswith("\n<!-- end -->\nC\n")
    assert diagrams.insert(made) == made


def test_a_diagram_without_an_end_mark_is_refused():
    with pytest.raises(ValueError, match="no end mark"):
        diagrams.insert("<!-- generated: table -->\nOUTDATED\n")


def test_a_page_without_marks_is_not_changed():
    assert diagrams.insert("# A\n") == "# A\n"


# Payloads


def test_an_empty_beat_has_no_payload():
    assert payloads.beat_payload(payloads.NO_BEAT) is None
    assert payloads.beat_payload(payloads.BeatPayload(progress=0)) == b'{"progress":0}'
    assert payloads.decode(payloads.BeatPayload, None) == payloads.NO_BEAT
