"""What a dashboard shows: the overview, kinds, what waits for a person, agents, groups of dead letters, and graphs."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from holdfast import Ledger
from holdfast.agent import Agent
from holdfast.core import limits
from holdfast.services import CallableSink, Relay
from holdfast.testing import ManualClock
from tests.contract.builders import (
    BUILDERS,
    assisted,
    dead_lettered,
    failed,
    held,
    queued,
    refused,
    running,
    running_stalled,
    succeeded,
)
from tests.contract.test_history import counted
from tests.support.near import near

# The overview


def test_an_empty_ledger(ledger: Ledger, clock: ManualClock):
    found = ledger.overview()
    assert (found.now, found.as_of.pos, found.complete_from, found.counts) == (clock.now(), 0, None, {})
    assert found.rates is not None
    assert (found.rates.enqueued, found.rates.started, found.rates.succeeded, found.rates.failed) == (0, 0, 0, 0)
    assert (found.oldest, found.queues, found.attention, found.dead_letters, found.stalled) == ([], [], 0, 0, 0)
    assert found.workers == type(found.workers)(0, 0, 0, [])
    assert "workers" in {finding.code for finding in found.findings}
    assert (ledger.kinds(), ledger.attention(), ledger.agents()) == ([], [], [])


def test_the_overview_has_the_numbers_of_the_ledger(ledger: Ledger, clock: ManualClock):
    clock.jump(-(clock.now().timestamp() % 3_600) + 3_600)
    for name in BUILDERS:
        BUILDERS[name](ledger, queue=name)
    waiting = queued(ledger, queue="queued")
    clock.advance(5)
    ledger.sign_in("w-1")
    clock.advance(20)
    ledger.sign_in("w-2")
    clock.advance(40)
    ledger.sign_in("w-3")
    ledger.pause("mail", reason="reindexing", actor="kim")
    clock.advance(55)
    counted(ledger)
    found = ledger.overview()
    assert found.counts == ledger.job_totals().statuses == {
        "queued": 2, "claimed": 1, "running": 3, "stalled": 3, "succeeded": 1, "failed": 1, "cancelled": 1, "dead_lettered": 1
    }  # fmt: skip
    assert found.as_of.at == found.now == clock.now()
    assert found.stalled == 3
    assert found.dead_letters == 1
    assert found.failed_24h == 2
    assert found.rates is not None
    assert (found.rates.enqueued, found.rates.succeeded, found.rates.failed, found.rates.window_s) == (6.5, 0.5, 1, 120)
    assert [queue.dead_letters for queue in ledger.queues() if queue.name == "dead_lettered"] == [1]
    assert [(one.queue, one.ready_since) for one in found.oldest] == [("queued", ledger.get(waiting.id).created_at)]
    assert len(found.queues) == 8
    assert (found.queues[0].name, found.queues[0].counts) == ("queued", {"queued": 2})
    assert (found.queues[1].name, found.queues[1].paused_by, found.queues[1].pause_reason) == ("mail", "kim", "reindexing")
    assert (found.workers.fresh, found.workers.late, found.workers.silent) == (0, 0, 3)
    assert found.workers.silent_names == ["w-1", "w-2", "w-3"]
    assert found.attention == len(ledger.attention()) == 1
    assert not found.well
    codes = {finding.code for finding in ledger.diagnose().findings}
    assert {finding.code for finding in found.findings} == codes - {"history"}


def test_workers_by_age(ledger: Ledger, clock: ManualClock):
    for name in ("c", "b", "a"):
        ledger.sign_in(name)
        clock.advance(15)
    found = ledger.overview().workers
    assert (found.fresh, found.late, found.silent, found.silent_names) == (0, 2, 1, ["c"])


def test_the_oldest_ready_jobs_of_each_queue(ledger: Ledger, clock: ManualClock):
    start = clock.now()
    for number, queue in enumerate(("a", "b", "a", "c")):
        ledger.enqueue("k", queue=queue, priority=number, delay=3_600 if queue == "c" else 0)
        clock.advance(10)
    found = ledger.overview()
    assert [(one.queue, one.ready_since) for one in found.oldest] == [("a", start), ("b", start + timedelta(seconds=10))]


def test_unserved_jobs_are_a_finding(ledger: Ledger, clock: ManualClock):
    ledger.enqueue_many([{"kind": "k", "queue": "a"}] * 30)
    clock.advance(100)
    [found] = [one for one in ledger.overview().findings if one.code == "kind_unserved"]
    assert found.words.startswith("30 jobs of kind k in queue a can be claimed")
    assert found in ledger.diagnose().findings


def test_a_rate_is_the_same_everywhere_from_the_first_minute_on(ledger: Ledger, clock: ManualClock):
    clock.jump(-(clock.now().timestamp() % 60) + 100)
    for seconds in range(0, 480, 10):
        for queue in ("a", "a", "b"):
            ledger.enqueue("k", queue=queue)
        clock.advance(10)
        rates = [ledger.overview().rates, *(kind.rates for kind in ledger.kinds())]
        by_queue = {queue.name: queue.rates for queue in ledger.queues()}
        assert {queue.name: queue.rates for queue in ledger.overview().queues} == by_queue
        if seconds < 50:
            assert {*rates, *by_queue.values()} == {None}
            continue
        assert all(rate is not None and abs(rate.enqueued - 18) < 0.7 for rate in rates), (seconds, rates)
        a, b = by_queue["a"], by_queue["b"]
        assert a is not None and b is not None
        assert a.window_s == b.window_s
        assert b.enqueued == pytest.approx(a.enqueued / 2)
        assert a.window_s == seconds + 10 if seconds < 300 else 300 <= a.window_s < 360


# Kinds


def test_kinds_have_counts_errors_and_times(ledger: Ledger, clock: ManualClock):
    ledger.sign_in("w-1", body={"kinds": ["index"]})
    ledger.sign_in("w-2")
    for message in (ValueError("no"), ValueError("never"), "just no"):
        made = running(ledger, kind="index")
        clock.advance(10)
        ledger.fail(made.fence, message, retryable=False)
    made = running(ledger, kind="index")
    ledger.fail(made.fence, KeyError("x"), retry_after=0)
    dead_lettered(ledger, kind="send")
    running_stalled(ledger, kind="send")
    counted(ledger)
    index, send = ledger.kinds()
    assert (index.kind, send.kind) == ("index", "send")
    assert index.counts == {"failed": 3, "queued": 1}
    assert index.last_hour["failed"] == 3
    assert [(one.error_class, one.n) for one in index.errors] == [("ValueError", 2), ("KeyError", 1), ("error", 1)]
    assert (index.wait.n, index.run.n, index.workers, send.workers) == (4, 3, 2, 1)
    assert index.run.p50_ms is not None
    assert 4_000 < index.run.p50_ms < 22_000
    assert [(one.error_class, one.n) for one in send.errors] == [("error", 1)]
    clock.advance(3_700)
    index, _ = ledger.kinds()
    assert (index.errors, index.last_hour["failed"], index.run.n) == ([], 0, 0)


# Attention


def test_what_waits_for_a_person(ledger: Ledger, clock: ManualClock):
    start = clock.now()
    asking, helped, covered = running(ledger), assisted(ledger), running(ledger, policy={"requires_operator_coverage": True})
    clock.advance(1)
    ledger.heartbeat(asking.fence, assist_requested=True)
    clock.advance(1)
    ledger.stall(covered.fence)
    running_stalled(ledger)
    clock.advance(1)
    broken, mended = failed(ledger), failed(ledger)
    ledger.annotate(broken.id, "compensation_failed", reason="no undo", actor="kim")
    ledger.annotate(mended.id, "compensation_failed")
    ledger.annotate(mended.id, "compensated")
    found = ledger.attention()
    assert [(item.reason.value, item.job_id, (item.since - start).seconds) for item in found] == [
        ("assisted", helped.id, 0),
        ("assist_requested", asking.id, 1),
        ("escalation", covered.id, 2),
        ("compensation_failed", broken.id, 3),
    ]
    assert found[2].detail == "WORKER_ERROR"
    assert (found[3].by, found[3].detail) == ("kim", "no undo")
    assert found[1].worker == "w-1"
    assert ledger.attention(limit=2) == found[:2]
    ledger.heartbeat(asking.fence, assist_requested=False)
    assert [item.job_id for item in ledger.attention()] == [helped.id, covered.id, broken.id]


def test_a_request_for_assistance_is_not_hidden_by_older_stalls(
    ledger: Ledger, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
):
    crowd = [running(ledger, policy={"requires_operator_coverage": True}) for _ in range(4)]
    for made in crowd:
        ledger.stall(made.fence)
    clock.advance(60)
    asking = running(ledger)
    ledger.heartbeat(asking.fence, assist_requested=True)
    assert [item.job_id for item in ledger.attention(limit=2)] == [crowd[0].id, asking.id]
    monkeypatch.setattr(limits, "SWEEP_MAX", 2)
    assert [item.job_id for item in ledger.attention()] == [crowd[0].id, asking.id]


def test_a_sink_that_was_given_up_waits_for_a_person(ledger: Ledger, clock: ManualClock):
    def refuse(_: Any) -> None:
        raise OSError("no route")

    queued(ledger)
    sink = CallableSink(refuse, name="pager", start="beginning")
    with Relay(near(ledger), [sink]) as relay:
        for _ in range(100):
            relay.tick()
            clock.advance(86_400)
            if ledger.sinks()[0].dead_at is not None:
                break
    [item] = ledger.attention()
    assert (item.reason.value, item.sink, item.job_id) == ("sink_dead", "pager", None)
    assert "no route" in (item.detail or "")


# Agents


def test_sessions_of_agents(ledger: Ledger, clock: ManualClock):
    first, second = queued(ledger).id, queued(ledger).id
    ada, bob = Agent(ledger, "ada"), Agent(ledger, "bob")
    ada.start(first)
    clock.advance(5)
    bob.start(second)
    bob.complete(second)
    found = ledger.agents()
    assert [(one.name, one.focus, one.last, one.holding) for one in found] == [("bob", None, second, 0), ("ada", first, first, 1)]
    assert found[1].since == found[1].seen_at == clock.now() - timedelta(seconds=5)
    assert found[0].since is None
    assert ledger.agents(limit=1) == found[:1]


# Groups of dead letters


def letter(ledger: Ledger, error: Any, **options: Any) -> int:
    made = running(ledger, **options)
    ledger.fail(made.fence, error, retryable=False, reason_code="timeout", failure_stage="fetch")
    return made.id


def test_dead_letters_are_grouped_by_cause(ledger: Ledger, clock: ManualClock):
    for number in (1, 22, 333):
        letter(ledger, TimeoutError(f"read of 'https://a.example/{number}' timed out after {number} s at 0xdeadbeef{number}"))
    newest = letter(ledger, TimeoutError('read of "x" timed out after 7 s at 0x1'))
    clock.advance(1)
    other = letter(ledger, "missing field url", kind="send")
    gone = letter(ledger, "missing field url", kind="send")
    ledger.discard(gone)
    found = ledger.dead_letter_groups()
    assert [(group.n, group.newest_id) for group in found.groups] == [(4, newest), (1, other)]
    assert found.groups[0].key == {"cause": "TimeoutError: read of '…' timed out after # s at #"}
    assert found.groups[0].reasons == {"timeout": 4}
    assert found.groups[1].newest_at == clock.now()
    assert (found.examined, found.cut, found.replayed) == (5, False, 0)
    assert [group.key for group in ledger.dead_letter_groups("kind").groups] == [{"kind": "index_page"}, {"kind": "send"}]
    assert [group.n for group in ledger.dead_letter_groups(by=["kind"], kind="send").groups] == [1]
    assert ledger.dead_letter_groups("queue", queue="nowhere").groups == []


def test_a_group_of_dead_letters_has_its_letters_on_request(ledger: Ledger):
    first, second = (letter(ledger, "timed out") for _ in range(2))
    [plain], [group] = (ledger.dead_letter_groups("kind", letters=wanted).groups for wanted in (False, True))
    assert (plain.letters, group.n) == ((), 2)
    assert [(one.id, one.rev, one.queue, one.kind) for one in group.letters] == [
        (job.id, job.rev, job.queue, job.kind) for job in (ledger.get(second), ledger.get(first))
    ]
    with refused("validation_error"):
        ledger.dead_letter_groups("kind", letters="yes")  # type: ignore[arg-type]


def test_one_cause_is_one_group_with_any_reason_host_and_number(ledger: Ledger):
    for number, reason in enumerate(("timeout", "infrastructure_failure", "dependency_unavailable")):
        made = running(ledger, queue=f"q{number}")
        error = ConnectionError(f"no answer from db-{number}.eu.example.org:5432 (10.0.0.{number}) after {number + 0.5} s")
        ledger.fail(made.fence, error, retryable=False, reason_code=reason, failure_stage="fetch")
    [group] = ledger.dead_letter_groups().groups
    assert (group.n, group.reasons) == (3, {"dependency_unavailable": 1, "infrastructure_failure": 1, "timeout": 1})
    assert group.key == {"cause": "ConnectionError: no answer from … (#) after # s"}


def test_replayed_letters_are_counted_nowhere(ledger: Ledger, clock: ManualClock):
    def counts() -> tuple[object, ...]:
        found, overview = ledger.dead_letter_groups(letters=True), ledger.overview()
        words = next(one.words for one in overview.findings if one.code == "dead_letters")
        [kind], [queue] = (one for one in ledger.kinds() if one.kind == "k"), (one for one in ledger.queues() if one.name == "q")
        numbers = {sum(g.n for g in found.groups), sum(len(g.letters) for g in found.groups)}
        numbers |= {overview.dead_letters, kind.dead_letters, queue.dead_letters}
        numbers |= {one.dead_letters for one in overview.queues if one.name == "q"}
        assert len(numbers) == 1, numbers
        return numbers.pop(), found.replayed, words

    first, second, third = (letter(ledger, f"timed out after {n} s", queue="q", kind="k") for n in range(3))
    assert counts() == (3, 0, "3 dead letters, neither replayed nor discarded")
    again = ledger.replay(first)
    assert counts() == (2, 1, "2 dead letters, neither replayed nor discarded; 1 more is replayed")
    ledger.cancel(again.id)
    assert counts() == (3, 0, "3 dead letters, neither replayed nor discarded")
    ledger.discard(second)
    ledger.replay(first)
    assert counts() == (1, 1, "1 dead letter, neither replayed nor discarded; 1 more is replayed")
    ledger.replay(third)
    assert counts() == (0, 2, "2 dead letters, replayed and not discarded")


def test_a_letter_without_an_error_has_no_text(ledger: Ledger):
    dead_lettered(ledger)
    [group] = ledger.dead_letter_groups("error_text").groups
    assert group.key == {"error_text": None}
    [group] = ledger.dead_letter_groups().groups
    assert group.key == {"cause": "policy_violation · exec"}


def test_groups_are_bounded(ledger: Ledger, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(limits, "GROUPS_MAX", 2)
    for kind in "abc":
        dead_lettered(ledger, kind=kind)
    found = ledger.dead_letter_groups("kind")
    assert ([group.key["kind"] for group in found.groups], found.cut) == (["c", "b"], True)
    monkeypatch.setattr(limits, "GROUPED_LETTERS_MAX", 1)
    found = ledger.dead_letter_groups("kind")
    assert ([group.key["kind"] for group in found.groups], found.examined, found.cut) == (["c"], 1, True)


@pytest.mark.parametrize("by", ["colour", [], ["kind", "x"], 7, None, [["kind"]]], ids=repr)
def test_wrong_fields_are_refused(ledger: Ledger, by: Any):
    with refused("validation_error") as caught:
        ledger.dead_letter_groups(by)
    assert caught.value.context["field"] == "by"


# Graphs


def test_a_graph_has_the_jobs_around_a_job(ledger: Ledger):
    first = ledger.enqueue("a")
    second = ledger.enqueue("b", depends_on=[first])
    third = ledger.enqueue("c", depends_on=[second, first])
    fourth = ledger.enqueue("d", depends_on=[third])
    ledger.enqueue("alone")
    found = ledger.graph(second.id)
    assert {(node.job_id, node.level) for node in found.nodes} == {(second.id, 0), (first.id, -1), (third.id, 1), (fourth.id, 2)}
    assert [(edge.on_id, edge.job_id) for edge in found.edges] == [
        (first.id, second.id),
        (second.id, third.id),
        (third.id, fourth.id),
    ]
    assert found.cut == 0
    assert {node.job_id for node in ledger.graph(second.id, depth=1).nodes} == {first.id, second.id, third.id}
    assert msgspec.json.decode(msgspec.json.encode(found))["edges"][0] == {"from": first.id, "to": second.id}
    assert ledger.graph(first.id).nodes[0].status == "queued"


def test_a_graph_is_bounded(ledger: Ledger, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(limits, "GRAPH_NODES_MAX", 4)
    first = ledger.enqueue("a")
    for _ in range(7):
        ledger.enqueue("b", depends_on=[first])
    found = ledger.graph(first.id)
    assert (len(found.nodes), len(found.edges), found.cut) == (4, 3, 4)


def test_what_a_graph_leaves_out_is_counted_beyond_the_edges_that_are_read(ledger: Ledger, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(limits, "GRAPH_NODES_MAX", 4)
    monkeypatch.setattr(limits, "GRAPH_EDGES_MAX", 5)
    first = ledger.enqueue("a")
    second = [ledger.enqueue("b", depends_on=[first]) for _ in range(3)]
    for _ in range(7):
        ledger.enqueue("c", depends_on=second)
    ledger.enqueue("d", depends_on=[second[0]])
    found = ledger.graph(first.id)
    assert (len(found.nodes), found.cut) == (4, 8)
    assert ledger.graph(first.id, depth=1).cut == 0


def test_a_wrong_graph_is_refused(ledger: Ledger):
    with refused("not_found"):
        ledger.graph(7)
    made = succeeded(ledger)
    for depth in (0, 11):
        with refused("limit_exceeded") as caught:
            ledger.graph(made.id, depth=depth)
        assert caught.value.context["field"] == "depth"


@pytest.mark.parametrize("verb", ["attention", "agents"])
@pytest.mark.parametrize(("limit", "code"), [(0, "limit_exceeded"), (1_001, "limit_exceeded"), ("1", "validation_error")])
def test_wrong_limits_are_refused(ledger: Ledger, verb: str, limit: Any, code: str):
    with refused(code) as caught:
        getattr(ledger, verb)(limit=limit)
    assert caught.value.context["field"] == "limit"


def test_every_answer_is_json(ledger: Ledger):
    for build in BUILDERS.values():
        build(ledger)
    counted(ledger)
    answers = [ledger.overview(), ledger.kinds(), ledger.attention(), ledger.agents(), ledger.dead_letter_groups()]
    answers += [ledger.job_totals(), ledger.history(), ledger.graph(1), ledger.timeline(3)]
    for answer in answers:
        assert msgspec.json.decode(msgspec.json.encode(answer)) is not None


def test_a_job_that_was_claimed_by_itself_is_shown(ledger: Ledger):
    made = queued(ledger)
    fence = held(ledger.claim_job(made.id, "w-1"))
    ledger.start(fence)
    ledger.heartbeat(fence, assist_requested=True)
    assert [item.job_id for item in ledger.attention()] == [made.id]
