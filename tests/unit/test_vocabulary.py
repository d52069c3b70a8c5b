"""Vocabulary: limits, aliases, actors, diagrams."""

from typing import Any

import pytest

from docs import diagrams
from holdfast.core import limits, payloads, vocabulary
from holdfast.core.model import Actor, EventType, Phase, Role, StallReason, Status
from holdfast.core.table import EVENT_ROLES, STEPS, TRANSITIONS, roles_without_fence, source_statuses
from holdfast.errors import HoldfastError

# Limits


@pytest.mark.parametrize("text", ["x", "x" * 200, "é" * 100, "a b", "größe", "😀", "a\u200db", "ab:c#d/e"], ids=ascii)
def test_a_name_is_a_printable_text(text: str):
    assert limits.check_name("it", text) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        " a",
        "a ",
        "\ta",
        "a\x00",
        "a\nb",
        "a\x7f",
        "é\x85",
        "é\u2028",
        "é\u2029",
        "\ud800",
        "é\ud800",
        "é\u0378",
        1,
        None,
        b"a",
    ],
    ids=ascii,
)
def test_other_names_are_refused(text: Any):
    with pytest.raises(HoldfastError) as caught:
        limits.check_name("it", text)
    assert (caught.value.code, caught.value.context) == ("validation_error", {"field": "it"})


@pytest.mark.parametrize(
    ("check", "most"),
    [(limits.check_name, 200), (limits.check_key, 500), (lambda what, text: limits.check_text(what, text, 7), 7)],
)
def test_texts_are_measured_in_bytes(check: Any, most: int):
    assert check("it", "x" * most)
    with pytest.raises(HoldfastError) as caught:
        check("it", "é" + "x" * (most - 1))
    assert caught.value.code == "limit_exceeded"
    assert caught.value.context == {"field": "it", "actual": most + 1, "limit": most}


@pytest.mark.parametrize("value", [1, 5, 9])
def test_a_number_within_its_limits_passes(value: int):
    assert limits.check_integer("it", value, 1, 9) == value


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (0, "limit_exceeded"),
        (10, "limit_exceeded"),
        (True, "validation_error"),
        ("5", "validation_error"),
        (5.0, "validation_error"),
    ],
)
def test_a_number_past_its_limits_is_refused(value: Any, code: str):
    with pytest.raises(HoldfastError) as caught:
        limits.check_integer("it", value, 1, 9)
    assert caught.value.code == code


def test_a_count_has_a_limit():
    limits.check_count("it", 3, 3)
    with pytest.raises(HoldfastError) as caught:
        limits.check_count("it", 4, 3)
    assert caught.value.context == {"field": "it", "actual": 4, "limit": 3}


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


@pytest.mark.parametrize("status", Status)
def test_every_status_is_known_by_its_own_name(status: Status):
    assert vocabulary.status(status.value) is status


@pytest.mark.parametrize(
    ("alias", "status"),
    [("assigned", "claimed"), ("orphaned", "stalled"), ("in_progress", "running"), ("EXECUTING", "running"),
     ("ASSISTED", "running"),
     ("ABORTING_SAFE_EXIT", "running"), ("STALLED", "stalled")],
)  # fmt: skip
def test_names_of_statuses_in_dialects_are_read(alias: str, status: str):
    assert vocabulary.status(alias) == status


@pytest.mark.parametrize(
    ("alias", "phase"), [("EXECUTING", "executing"), ("ASSISTED", "assisted"), ("ABORTING_SAFE_EXIT", "aborting")]
)
def test_names_of_phases_in_dialects_are_read(alias: str, phase: str):
    assert vocabulary.phase(alias) == vocabulary.phase(phase) == phase


@pytest.mark.parametrize(
    ("alias", "kind"),
    [("JOB_HEARTBEAT", "heartbeat"), ("JOB_EXECUTION_STALLED", "stalled"), ("JOB_EXECUTION_RESUMED", "resumed"),
     ("job_claimed", "claimed"), ("job_lease_renewed", "heartbeat"), ("job_heartbeat", "heartbeat"), ("task_claimed", "claimed"),
     ("task_heartbeat", "heartbeat")],
)  # fmt: skip
def test_names_of_events_in_dialects_are_read(alias: str, kind: str):
    assert vocabulary.event_type(alias) == kind


@pytest.mark.parametrize("kind", EventType)
def test_every_event_is_known_by_its_own_name(kind: EventType):
    assert vocabulary.event_type(kind.value) is kind


def test_the_name_of_a_reason_in_a_dialect_is_read():
    assert vocabulary.stall_reason("ROBOT_ERROR") is StallReason.WORKER_ERROR
    assert [vocabulary.stall_reason(reason.value) for reason in StallReason] == list(StallReason)


@pytest.mark.parametrize("read", [vocabulary.status, vocabulary.phase, vocabulary.event_type, vocabulary.stall_reason])
def test_an_unknown_name_is_refused(read: Any):
    with pytest.raises(ValueError, match="unknown"):
        read("unknown")


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


def test_the_names_that_are_written_for_statuses():
    assert [vocabulary.status_name(Dialect.LIVENESS, Status.RUNNING, phase) for phase in Phase] == [
        "EXECUTING", "ASSISTED", "ABORTING_SAFE_EXIT"
    ]  # fmt: skip
    assert vocabulary.status_name(Dialect.LIVENESS, Status.STALLED, Phase.ASSISTED) == "STALLED"
    assert vocabulary.status_name(Dialect.JOBS, Status.CLAIMED) == "assigned"
    assert vocabulary.status_name(Dialect.TASKS, Status.RUNNING, Phase.ASSISTED) == "in_progress"


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


def test_source_statuses_are_those_of_all_rows_of_the_verb():
    assert source_statuses("cancel") == {"queued", "claimed", "running", "stalled"}
    assert source_statuses("complete") == {"running"}
    assert source_statuses("juggle") == frozenset()


def test_roles_without_a_fence_are_all_but_holders():
    assert roles_without_fence("stall") == {"system"}
    assert roles_without_fence("cancel") == {"client", "operator", "system"}
    assert roles_without_fence("complete") == frozenset()


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


@pytest.mark.parametrize("body", [None, b"null", b'{"a": 1}'])
def test_raw_json_is_read_back_unchanged(body: bytes | None):
    made = payloads.CancelledPayload(error=payloads.to_optional_json(body)).encode()
    assert payloads.json_bytes(payloads.decode(payloads.CancelledPayload, made).error) == body


def test_a_filter_takes_types_by_any_of_their_names():
    assert vocabulary.event_types(["enqueued", "stalled"]) == (EventType.ENQUEUED, EventType.STALLED)
    wrong: list[Any] = [["nothing"], [5], [[]]]
    for names in wrong:
        with pytest.raises(HoldfastError, match="types must be among"):
            vocabulary.event_types(names)
