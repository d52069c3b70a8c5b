"""Every change of an export is noticed, and its place is reported."""

import json
import re
from collections.abc import Callable
from typing import NamedTuple

import pytest

from holdfast.proof.verify import Finding
from tests.support.signers import OPERATOR, WORKER
from tests.verify.files import File, first, verified
from tests.verify.rich import OTHER, SERVER_2, Exported


class Place(NamedTuple):
    """The expected first finding: rule, line, and event.

    `changed` is the changed line if that is another one: then the range of a wrong head that contains it may be
    reported first.
    """

    rule: str
    line: int
    job: str | None = None
    rev: int | None = None
    changed: int | None = None


Mutation = Callable[[File], Place]
BY_RULE: dict[str, Mutation] = {}
"""Changes that break a rule. They are found even if the attacker has the server's keys and seals everything again."""
BY_SEAL: dict[str, Mutation] = {}
"""Changes that are found only because the events were sealed."""
BY_FORM: dict[str, Mutation] = {}
"""Changes that make the file incomplete."""


def _into(table: dict[str, Mutation]) -> Callable[[Mutation], Mutation]:
    def keep(mutation: Mutation) -> Mutation:
        table[mutation.__name__] = mutation
        return mutation

    return keep


rule, seal, form = _into(BY_RULE), _into(BY_SEAL), _into(BY_FORM)


def _edited(file: File, expected: str, job: str, rev: int, /, **fields: object) -> Place:
    """Change fields of one event. A field of None is removed."""
    number = file.event_at(job, rev)
    event = file.of(number)
    for name, value in fields.items():
        event[name] = value
        if value is None:
            del event[name]
    return Place(expected, number, job, event["rev"])


def edit(expected: str, job: str, rev: int, /, **fields: object) -> Mutation:
    """A change of fields of one event. A field of None is removed."""
    return lambda file: _edited(file, expected, job, rev, **fields)


BY_RULE.update(
    a_revision_is_left_out=edit("rev", "plain", 4, rev=9),
    another_status_before=edit("step", "plain", 5, from_status="claimed"),
    another_status_after=edit("step", "plain", 6, to_status="failed"),
    another_type=edit("step", "stalled", 6, type="started"),
    an_event_of_another_attempt=edit("attempt", "plain", 5, attempt=2),
    another_worker_completes=edit("holder", "plain", 6, actor="worker:w-2#d3c10da19ee7fec1"),
    another_boot_of_the_worker_beats=edit("holder", "plain", 4, actor="worker:w-1#another"),
    a_client_does_what_only_the_system_may=edit("role", "stalled", 4, actor="client:ann"),
    an_actor_without_a_role=edit("role", "plain", 6, actor="unknown"),
    a_policy_without_its_line=edit("policy", "plain", 2, policy=99),
    a_claim_without_a_policy=edit("policy", "plain", 2, policy=None),
    a_payload_that_is_no_payload=edit("payload", "plain", 6, payload='{"result":1,"more":2}'),
    a_dead_letter_of_another_reason=edit("record", "dead", 4, reason="timeout"),
    a_signature_is_taken_away=edit("unsigned", "live", 5, key_id=None, signature=None, statement=None, at=None),
    a_part_of_a_signature_is_taken_away=edit("unsigned", "live", 5, key_id=None),
    what_was_signed_cannot_be_read=edit("illegible", "live", 5, statement="{"),
    a_signed_beat_tells_of_more_progress=edit("statement", "live", 6, payload='{"progress":3}'),
    a_signed_beat_names_an_unknown_key=edit("key", "live", 5, key_id="0" * 16),
)
BY_SEAL.update(
    another_request_id=edit("tree", "plain", 6, request_id="0" * 16),
    another_actor_cancelled=edit("tree", "cancelled", 2, actor="client:bob"),
    a_beat_is_said_to_be_pruned=edit("tree", "plain", 4, payload='{"pruned":"' + "0" * 64 + '"}'),
)


# Steps, revisions, attempts


@rule
def a_write_from_an_older_attempt(file: File) -> Place:
    """The first holder of a job that was released, and claimed by another worker, completes it."""
    return _edited(file, "attempt", "released", 8, attempt=1, actor=file.event("released", 2)["actor"])


@rule
def a_beat_after_its_lease(file: File) -> Place:
    number = file.event_at("plain", 4)
    for rev in (4, 5, 6):
        file.event("plain", rev)["received_at"] += 70_000_000
    return Place("late holder", number, "plain", 4)


# Time and policy


@rule
def a_beat_is_dated_back(file: File) -> Place:
    return _edited(file, "time", "plain", 4, received_at=file.event("plain", 3)["received_at"] - 1)


@rule
def an_unsigned_beat_has_a_signer_s_time(file: File) -> Place:
    return _edited(file, "time", "plain", 4, at=file.event("plain", 4)["received_at"] - 1)


@rule
def a_stall_comes_too_early(file: File) -> Place:
    event = file.event("silent", 4)
    return _edited(file, "stalled too early", "silent", 4, received_at=event["received_at"] - 14_000_000)


@rule
def a_stall_tells_of_another_last_beat(file: File) -> Place:
    payload = json.loads(file.event("silent", 4)["payload"])
    payload["last_beat_at"] -= 30_000_000
    return _edited(file, "record", "silent", 4, payload=json.dumps(payload, separators=(",", ":")))


@rule
def a_stall_names_another_holder(file: File) -> Place:
    payload = json.loads(file.event("silent", 4)["payload"])
    payload["holder"] = "another"
    return _edited(file, "record", "silent", 4, payload=json.dumps(payload, separators=(",", ":")))


@rule
def the_beat_before_a_resume_is_taken_away(file: File) -> Place:
    file.take(file.event_at("stalled", 5))
    for rev in (6, 7):
        file.event("stalled", rev)["rev"] = rev - 1
    file.row("stalled")["rev"] = 6
    file.recount()
    return Place("resumed without a beat", file.event_at("stalled", 5), "stalled", 5)


@rule
def a_stall_under_another_policy(file: File) -> Place:
    other = file.event("plain", 2)["policy"]
    return _edited(file, "policy snapshot", "silent", 4, policy=other)


@rule
def a_policy_with_longer_intervals(file: File) -> Place:
    """Under the changed policy, the system stalled the job too early."""
    policy = file.of(file.at("policy", id=file.event("silent", 2)["policy"]))
    policy["body"] = policy["body"].replace('"heartbeat_interval_ms":10000', '"heartbeat_interval_ms":19000')
    changed = file.at("policy", id=policy["id"])
    return Place("stalled too early", file.event_at("pruned", 7), "pruned", 7, changed)


@rule
def a_claim_too_early(file: File) -> Place:
    payload = json.loads(file.event("plain", 1)["payload"]) | {"delay_us": 5_000_000}
    file.event("plain", 1)["payload"] = json.dumps(payload, separators=(",", ":"))
    return Place("claimed too early", file.event_at("plain", 2), "plain", 2)


@rule
def another_correlation(file: File) -> Place:
    place = _edited(file, "fold", "plain", 1, correlation_id="order-8")
    return place._replace(line=file.at("job", id=file.jobs["plain"]), rev=6, changed=place.line)


# Signatures


@rule
def another_signature(file: File) -> Place:
    signature = file.event("live", 5)["signature"]
    return _edited(file, "signature", "live", 5, signature=("0" if signature[0] != "0" else "1") + signature[1:])


@rule
def signatures_are_swapped(file: File) -> Place:
    one, other = file.event("live", 4), file.event("live", 5)
    for name in ("signature", "statement"):
        one[name], other[name] = other[name], one[name]
    return Place("statement", file.event_at("live", 4), "live", 4)


@rule
def what_was_signed_is_spelled_anew(file: File) -> Place:
    return _edited(file, "statement", "live", 5, statement=file.event("live", 5)["statement"].replace(",", ", ", 1))


@rule
def what_was_signed_has_another_shape(file: File) -> Place:
    statement = file.event("live", 5)["statement"].replace('"attempt":1', '"attempt":"x"')
    return _edited(file, "statement", "live", 5, statement=statement)


@rule
def what_was_signed_says_something_else(file: File) -> Place:
    return _edited(
        file, "signature", "live", 5, statement=file.event("live", 5)["statement"].replace('"attempt":1', '"attempt":2')
    )


@rule
def a_signed_beat_is_dated_back(file: File) -> Place:
    return _edited(file, "statement", "live", 6, at=file.event("live", 6)["at"] - 1)


@rule
def a_signed_beat_comes_later(file: File) -> Place:
    number = file.event_at("rotated", 5)
    file.of(number)["received_at"] += 50_000_000
    return Place("fold", file.at("job", id=file.jobs["rotated"]), "rotated", 5, number)


@rule
def a_signed_beat_is_used_again(file: File) -> Place:
    """Repeat the same beat as the next revision."""
    number = file.event_at("live", 6)
    again = {**file.of(number), "rev": 7}
    for rev in range(10, 6, -1):
        file.event("live", rev)["rev"] = rev + 1
    _runtime(file, number)
    file.put(number + 1, {"event": {**again, "pos": again["pos"] + 1}})
    file.recount()
    return Place("counter", number + 1, "live", 7)


@rule
def a_signed_beat_is_used_for_another_job(file: File) -> Place:
    beat = file.event("live", 6)
    signed = {name: beat[name] for name in ("key_id", "signature", "statement")}
    return _edited(file, "statement", "rotated", 4, **signed)


@rule
def a_signed_beat_is_used_for_another_attempt(file: File) -> Place:
    first_beat = file.event("sure", 4)
    signed = {name: first_beat[name] for name in ("key_id", "signature", "statement", "at", "payload")}
    number = file.at("event", job_id=file.jobs["sure"], type="heartbeat", attempt=2)
    return _edited(file, "key", "sure", file.of(number)["rev"], **signed)


@rule
def a_worker_signs_for_another(file: File) -> Place:
    return _edited(file, "key", "live", 5, key_id=OTHER.key_id)


@rule
def a_revoked_key_is_used(file: File) -> Place:
    old = file.event("rotated", 4)
    return _edited(
        file, "key", "rotated", 5, **{name: old[name] for name in ("key_id", "signature", "statement", "at", "payload")}
    )


@rule
def an_operator_signs_for_the_system(file: File) -> Place:
    return _edited(file, "key", "live", 7, key_id=OPERATOR.key_id)


# Keys


@rule
def a_revocation_is_taken_away(file: File) -> Place:
    number = file.at("key", change="revoked", key_id=WORKER.key_id)
    file.take(number)
    file.recount()
    return Place("keys", len(file.lines), changed=number)


@rule
def roles_of_keys_are_swapped(file: File) -> Place:
    number = file.at("key", key_id=OTHER.key_id)
    file.of(number)["role"] = "operator"
    return Place("keys", number)


@rule
def a_key_of_another_name(file: File) -> Place:
    number = file.at("key", key_id=WORKER.key_id)
    file.of(number)["name"] = "w-9"
    return Place("keys", number)


@rule
def a_change_of_keys_signed_by_another_key(file: File) -> Place:
    number = file.at("key", key_id=OTHER.key_id)
    file.of(number)["signer"] = WORKER.key_id
    return Place("keys", number)


@rule
def a_key_is_enrolled_a_second_time(file: File) -> Place:
    number = file.at("key", key_id=OTHER.key_id)
    _runtime(file, number)
    file.put(number + 1, {"key": {**file.of(number), "pos": file.of(number)["pos"] + 1}})
    file.recount()
    return Place("keys", number + 1)


# Rows


@rule
def a_row_says_something_else(file: File) -> Place:
    file.row("plain")["result"] = '{"answer":43}'
    return Place("fold", file.at("job", id=file.jobs["plain"]), "plain", 6)


@rule
def a_row_has_another_status(file: File) -> Place:
    file.row("dead")["status"] = "failed"
    return Place("fold", file.at("job", id=file.jobs["dead"]), "dead", 5)


@rule
def a_row_has_a_field_too_many(file: File) -> Place:
    file.row("cancelled")["owner"] = "w-1"
    return Place("fold", file.at("job", id=file.jobs["cancelled"]), "cancelled", 2)


@rule
def a_row_is_taken_away(file: File) -> Place:
    file.take(file.at("job", id=file.jobs["plain"]))
    file.recount()
    return Place("row", file.heads()[0], "plain")


@rule
def a_row_without_events(file: File) -> Place:
    file.put(file.heads()[0], {"job": {**file.row("cancelled"), "id": 999}})
    file.recount()
    return Place("row", file.heads()[0] - 1)


@rule
def a_row_is_there_twice(file: File) -> Place:
    number = file.at("job", id=file.jobs["plain"])
    file.put(number + 1, file.lines[number - 1])
    file.recount()
    return Place("order", number + 1, "plain")


@rule
def a_job_is_taken_away_but_its_row(file: File) -> Place:
    changed = file.event_at("cancelled", 1)
    for number in range(len(file.lines), 0, -1):
        if file.lines[number - 1].get("event", {}).get("job_id") == file.jobs["cancelled"]:
            file.take(number)
    file.recount()
    return Place("row", file.at("job", id=file.jobs["cancelled"]), "cancelled", 2, changed)


# Changes that break no rule, but were sealed


@seal
def another_result(file: File) -> Place:
    file.row("plain")["result"] = '{"answer":43}'
    return _edited(file, "tree", "plain", 6, payload='{"result":{"answer":43}}')


@seal
def other_args(file: File) -> Place:
    payload = json.loads(file.event("plain", 1)["payload"]) | {"args": {"name": "other"}}
    file.row("plain")["args"] = '{"name":"other"}'
    return _edited(file, "tree", "plain", 1, payload=json.dumps(payload, separators=(",", ":")))


@seal
def other_positions_in_the_same_order(file: File) -> Place:
    number = file.event_at("plain", 6)
    _runtime(file, number - 1)
    return Place("tree", number)


@seal
def an_unsigned_cancel_has_another_reason(file: File) -> Place:
    file.row("cancelled")["cancel_reason"] = "wanted"
    return _edited(file, "tree", "cancelled", 2, reason="wanted")


@seal
def a_whole_job_is_taken_away(file: File) -> Place:
    number = file.event_at("cancelled", 1)
    for rev in (1, 2):
        file.take(file.event_at("cancelled", rev))
    file.take(file.at("job", id=file.jobs["cancelled"]))
    file.recount()
    return Place("tree", number)


@seal
def a_whole_job_is_put_in(file: File) -> Place:
    number = file.event_at("cancelled", 1)
    _runtime(file, number - 1)
    made = {**file.of(number), "job_id": 999, "pos": file.of(number)["pos"] - 1}
    row = {**file.row("replay"), "id": 999, "queue": "cancelled", "args": "{}", "correlation_id": made["correlation_id"]}
    del row["replay_of"]
    file.put(number, {"event": made})
    file.put(file.heads()[0], {"job": row})
    file.recount()
    return Place("tree", number)


@seal
def what_is_gone_was_something_else(file: File) -> Place:
    number = file.at("gone")
    file.of(number)["hash"] = "0" * 64
    return Place("tree", number)


@seal
def a_head_of_another_size(file: File) -> Place:
    number = file.heads()[1]
    size = file.of(number).split("\n")[1]
    file.lines[number - 1] = {"head": file.of(number).replace(f"\n{size}\n", f"\n{int(size) - 1}\n")}
    return Place("tree", file.event_at("plain", 1))


@seal
def a_head_with_another_root(file: File) -> Place:
    number = file.heads()[-1]
    origin, size, _, *rest = file.of(number).split("\n")
    other = file.of(file.heads()[0]).split("\n")[2]
    file.lines[number - 1] = {"head": "\n".join([origin, size, other, *rest])}
    return Place("tree", file.event_at("rotated", 5))


@seal
def a_head_with_another_signature(file: File) -> Place:
    numbers = file.heads()
    line = file.of(numbers[0]).split("\n")[-2]
    note = file.of(numbers[2])
    file.lines[numbers[2] - 1] = {"head": note.replace(note.split("\n")[-2], line)}
    return Place("head", numbers[2])


@seal
def the_newest_head_is_taken_away(file: File) -> Place:
    file.take(file.heads()[-1])
    file.recount()
    return Place("unsealed", file.at("key", change="enrolled", key_id=SERVER_2.key_id))


@seal
def all_heads_are_taken_away(file: File) -> Place:
    for number in reversed(file.heads()):
        file.take(number)
    file.recount()
    return Place("unsealed", 2)


@seal
def heads_are_in_another_order(file: File) -> Place:
    one, other = file.heads()[:2]
    file.lines[one - 1], file.lines[other - 1] = file.lines[other - 1], file.lines[one - 1]
    return Place("order", other)


@seal
def a_head_is_of_another_ledger(file: File) -> Place:
    number = file.heads()[1]
    file.lines[number - 1] = {"head": file.of(number).replace(file.ledger_id, "another")}
    return Place("head", number)


@seal
def a_head_is_no_note(file: File) -> Place:
    number = file.heads()[1]
    file.lines[number - 1] = {"head": "trust me"}
    return Place("head", number)


# Incomplete files


@form
def the_end_is_cut_off(file: File) -> Place:
    file.lines.pop()
    return Place("file", len(file.lines))


@form
def the_heads_are_cut_off(file: File) -> Place:
    del file.lines[file.heads()[0] - 1 :]
    return Place("file", len(file.lines))


@form
def everything_after_an_event_is_cut_off(file: File) -> Place:
    del file.lines[file.event_at("plain", 6) :]
    return Place("file", len(file.lines))


@form
def the_header_alone_is_left(file: File) -> Place:
    del file.lines[1:]
    return Place("file", 1)


@form
def the_header_is_missing(file: File) -> Place:
    file.lines.pop(0)
    return Place("file", 1)


@form
def the_header_is_of_another_ledger(file: File) -> Place:
    file.lines[0]["ledger"] = "another"
    return Place("file", 1)


@form
def an_event_is_deleted(file: File) -> Place:
    number = file.event_at("plain", 4)
    file.take(number)
    return Place("rev", number, "plain", 5)


@form
def an_event_is_repeated(file: File) -> Place:
    number = file.event_at("plain", 4)
    file.put(number + 1, file.lines[number - 1])
    return Place("order", number + 1)


@form
def events_are_in_another_order(file: File) -> Place:
    number = file.event_at("plain", 4)
    file.put(number, file.take(number + 1))
    return Place("rev", number, "plain", 5)


@form
def a_row_stands_among_the_events(file: File) -> Place:
    number = file.event_at("plain", 4)
    file.put(number, file.take(file.at("job", id=file.jobs["plain"])))
    return Place("fold", number, "plain", 6)


@form
def something_follows_the_end(file: File) -> Place:
    file.put(len(file.lines) + 1, file.lines[-1])
    return Place("order", len(file.lines))


@form
def a_policy_is_there_twice(file: File) -> Place:
    number = file.at("policy")
    file.put(number + 1, file.lines[number - 1])
    return Place("policy", number + 1)


@form
def a_policy_cannot_be_read(file: File) -> Place:
    number = file.at("policy")
    file.of(number)["body"] = "{"
    return Place("policy", number)


@form
def an_unknown_field(file: File) -> Place:
    number = file.event_at("plain", 4)
    file.of(number)["more"] = 1
    return Place("value", number, "plain", 4)


@form
def a_number_beyond_all_bounds(file: File) -> Place:
    number = file.event_at("plain", 4)
    file.of(number)["received_at"] = 10**30
    return Place("value", number, "plain", 4)


@form
def a_line_of_two_kinds(file: File) -> Place:
    number = file.event_at("plain", 4)
    file.lines[number - 1]["gone"] = {"pos": 1, "hash": "0" * 64}
    return Place("file", number)


@form
def a_line_of_another_kind(file: File) -> Place:
    file.put(5, {"note": "hello"})
    return Place("file", 5)


def _runtime(file: File, number: int) -> None:
    """Make room for one position after a line."""
    for line in file.lines[number:]:
        for kind in ("event", "key", "gone"):
            if kind in line:
                line[kind]["pos"] += 1


ALL = {**BY_RULE, **BY_SEAL, **BY_FORM}


_PYTHON = re.compile(r"Error\b|Exception\b|`|\$\.|'\w*'|\bNone\b|<\w")
"""Texts for programmers: names of exceptions, paths of a decoder, quoted values."""


@pytest.mark.parametrize("name", ALL)
def test_each_change_is_found_at_its_place(name: str, export: Exported):
    file = File(export)
    place = ALL[name](file)
    verdict = verified(file.body(), export)
    found = first(verdict)
    assert not any(_PYTHON.search(other.detail) for other in verdict.findings), verdict.findings
    if place.rule == "tree" or (place.changed is not None and found.rule == "tree"):
        changed = place.changed or place.line
        assert found.rule == "tree" and found.from_line is not None and found.from_line <= changed <= found.line, found
    else:
        _expect(file, place, found)


@pytest.mark.parametrize("name", BY_RULE)
def test_a_broken_rule_is_found_even_if_the_file_was_sealed_again(name: str, export: Exported):
    file = File(export)
    place = BY_RULE[name](file)
    file.reseal()
    _expect(file, place, first(verified(file.body(), export)))


def test_there_are_many_mutations():
    assert len(ALL) > 80


def _expect(file: File, place: Place, found: Finding) -> None:
    assert (found.rule, found.line) == (place.rule, place.line), found
    assert place.job is None or found.job_id == file.jobs[place.job], found
    assert place.rev is None or found.rev == place.rev, found
