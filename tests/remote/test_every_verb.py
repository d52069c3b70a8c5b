"""Every public verb of a ledger, on a server: it works, or it is refused with an error that has a code."""

import itertools
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Fence, HeldJob, HoldfastError, Job, Ledger
from holdfast.composition import draw_key
from tests.support.server import running
from tests.support.signers import SERVER, enrol

SECRET = "s" * 43
"""Has the form of the secret of a session."""
LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)
_numbers = itertools.count()


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ledger]:
    folder: Path = tmp_path_factory.mktemp("verbs")
    with (
        holdfast.open(f"sqlite:///{folder}/ledger.db", keys=[SERVER]) as behind,
        running(behind) as server,
        holdfast.open(server.url, token=server.client().token) as ledger,
    ):
        enrol(behind, [SERVER])
        yield ledger


def queued(ledger: Ledger) -> Job:
    return ledger.enqueue("index_page", queue=f"q-{next(_numbers)}")


def held(ledger: Ledger, *, start: bool = True) -> HeldJob:
    [job] = ledger.claim("w-1", [queued(ledger).queue], start=start)
    return job


def fence(ledger: Ledger, *, start: bool = True) -> Fence:
    found = held(ledger, start=start).fence
    assert found is not None
    return found


def cancelled(ledger: Ledger) -> int:
    return ledger.cancel(queued(ledger).id).id


def done(ledger: Ledger) -> int:
    return ledger.complete(fence(ledger)).job_id


def stalled(ledger: Ledger) -> int:
    return ledger.stall(fence(ledger)).id


def revived(ledger: Ledger) -> int:
    found = fence(ledger)
    ledger.stall(found)
    return ledger.heartbeat(found).job_id


def aborting(ledger: Ledger) -> Fence:
    found = fence(ledger)
    ledger.cancel(found.job_id)
    return found


def schedule(ledger: Ledger) -> str:
    return ledger.set_schedule(f"s-{next(_numbers)}", "index_page", every="1h").name


def group(ledger: Ledger) -> str:
    name = f"g-{next(_numbers)}"
    ledger.group(name, then={"kind": "publish"})
    ledger.enqueue("index_page", group=name)
    return name


def token(ledger: Ledger) -> str:
    return ledger.new_token("reader", "kim").token.id


Call = Callable[[Ledger], Any]
WORKS: dict[str, Call] = {
    "acknowledge_cancel": lambda x: x.acknowledge_cancel(aborting(x)),
    "agents": lambda x: x.agents(),
    "annotate": lambda x: x.annotate(done(x), "discarded"),
    "assist": lambda x: x.assist(held(x).id),
    "attention": lambda x: x.attention(),
    "cancel": lambda x: x.cancel(queued(x).id),
    "cancel_group": lambda x: x.cancel_group(group(x)),
    "check": lambda x: x.check(queued(x).id),
    "claim": lambda x: x.claim("w-1", ["empty"]),
    "claim_job": lambda x: x.claim_job(queued(x).id, "w-1"),
    "close_group": lambda x: x.close_group(group(x)),
    "complete": lambda x: x.complete(fence(x)),
    "complete_many": lambda x: x.complete_many([(fence(x), None)]),
    "counts": lambda x: x.counts(),
    "dead_letter": lambda x: x.dead_letter(queued(x).id, reason_code="timeout"),
    "dead_letter_groups": lambda x: x.dead_letter_groups(),
    "dead_letters": lambda x: x.dead_letters(),
    "declarations": lambda x: x.declarations(),
    "declare_policy": lambda x: x.declare_policy("index_page", lease_ttl="30s"),
    "declare_schedules": lambda x: x.declare_schedules("index_page", {"nightly": {"cron": "0 2 * * *"}}),
    "dependents": lambda x: x.dependents(queued(x).id),
    "diagnose": lambda x: x.diagnose(),
    "discard": lambda x: x.discard(cancelled(x)),
    "drop_duty": lambda x: x.drop_duty("night-watch", "w-1"),
    "enqueue": lambda x: x.enqueue("index_page"),
    "enqueue_many": lambda x: x.enqueue_many([{"kind": "index_page"}]),
    "enrol_key": lambda x: x.enrol_key(draw_key("worker", "w-9").public, role="worker", name="w-9"),
    "events": lambda x: x.events(),
    "explain": lambda x: x.explain(queued(x).id),
    "export": lambda x: x.export(lambda _: None),
    "fail": lambda x: x.fail(fence(x), "no"),
    "flow_status": lambda x: x.flow_status(),
    "follow": lambda x: list(x.follow(timeout=0)),
    "gate": lambda x: x.gate(fence(x)),
    "get": lambda x: x.get(queued(x).id),
    "get_group": lambda x: x.get_group(group(x)),
    "graph": lambda x: x.graph(queued(x).id),
    "group": lambda x: x.group("import", then={"kind": "publish"}),
    "group_jobs": lambda x: x.group_jobs(group(x), status="queued"),
    "groups": lambda x: x.groups(unfinished=True),
    "has_unanswered": lambda x: x.has_unanswered,
    "head": lambda x: x.head(),
    "heads": lambda x: x.heads(),
    "heartbeat": lambda x: x.heartbeat(fence(x), stage="fetch"),
    "heartbeat_many": lambda x: x.heartbeat_many([fence(x)]),
    "history": lambda x: x.history(),
    "id": lambda x: x.id,
    "in_dialect": lambda x: x.in_dialect(x.events(queued(x).id), "jobs"),
    "job_totals": lambda x: x.job_totals(),
    "keys": lambda x: x.keys(),
    "kinds": lambda x: x.kinds(),
    "limit": lambda x: x.limit(x.set_limit("api", concurrent=1).name),
    "limit_keys": lambda x: x.limit_keys(x.set_limit("api", concurrent=1).name, key="acme"),
    "limits": lambda x: x.limits(),
    "list": lambda x: x.list(),
    "move": lambda x: x.move(queued(x).id, "other", for_worker="w"),
    "new_token": lambda x: x.new_token("reader", "ann"),
    "on_jobs": lambda x: x.on_jobs("cancel", [queued(x).id]),
    "newest_replays": lambda x: x.newest_replays([1]),
    "next_firings": lambda x: x.next_firings(schedule(x)),
    "now": lambda x: x.now(),
    "overview": lambda x: x.overview(),
    "patience": lambda x: x.patience,
    "pause": lambda x: x.pause("quiet"),
    "pause_schedule": lambda x: x.pause_schedule(schedule(x)),
    "paused": lambda x: x.paused(),
    "policies": lambda x: x.policies(),
    "policy_of": lambda x: x.policy_of(queued(x).id),
    "policy_sources": lambda x: x.policy_sources(),
    "position": lambda x: x.position(),
    "prune": lambda x: x.prune(jobs_before=LONG_AGO),
    "queue_settings": lambda x: x.queue_settings(),
    "queues": lambda x: x.queues(),
    "release": lambda x: x.release(fence(x)),
    "remove_limit": lambda x: x.remove_limit(x.set_limit("api", concurrent=1).name),
    "remove_schedule": lambda x: x.remove_schedule(schedule(x)),
    "replay": lambda x: x.replay(cancelled(x)),
    "replay_group": lambda x: x.replay_group(group(x)),
    "reprioritise": lambda x: x.reprioritise(queued(x).id, 5),
    "requeue": lambda x: x.requeue(stalled(x)),
    "reschedule": lambda x: x.reschedule(queued(x).id, delay="1h"),
    "result": lambda x: x.result(done(x)),
    "resume": lambda x: x.resume(revived(x)),
    "resume_schedule": lambda x: x.resume_schedule(schedule(x)),
    "revoke_token": lambda x: x.revoke_token(token(x)),
    "run_schedule": lambda x: x.run_schedule(schedule(x)),
    "runs": lambda x: x.runs(),
    "schedule": lambda x: x.schedule(schedule(x)),
    "schedules": lambda x: x.schedules(),
    "schema": lambda x: x.schema,
    "seconds_to_firing": lambda x: x.seconds_to_firing,
    "set_limit": lambda x: x.set_limit("api", rate="600/1m", by="args.tenant"),
    "set_policy": lambda x: x.set_policy("index_page", lease_ttl="30s"),
    "set_queue": lambda x: x.set_queue("default", weights={"a": 2}),
    "set_schedule": lambda x: x.set_schedule("hourly", "index_page", every="1h"),
    "settle_alike": lambda x: x.settle_alike([held(x)], None, request_id="alike"),
    "settle_many": lambda x: x.settle_many([(fence(x), None)], request_id="many"),
    "sign_in": lambda x: x.sign_in("w-1"),
    "sign_out": lambda x: x.sign_out("w-1"),
    "sinks": lambda x: x.sinks(),
    "stable_events": lambda x: x.stable_events(0),
    "stable_position": lambda x: x.stable_position(),
    "stall": lambda x: x.stall(fence(x)),
    "start": lambda x: x.start(fence(x, start=False)),
    "sweep": lambda x: x.sweep(),
    "take_duty": lambda x: x.take_duty("night-watch", "w-1", ttl="10s"),
    "timeline": lambda x: x.timeline(queued(x).id),
    "tokens": lambda x: x.tokens(),
    "unanswered": lambda x: x.unanswered("w-1"),
    "unassist": lambda x: x.unassist(x.assist(held(x).id).id),
    "undo_steps": lambda x: x.undo_steps(queued(x).id),
    "unpause": lambda x: x.unpause("quiet"),
    "unset_policy": lambda x: x.unset_policy("index_page"),
    "until_ready": lambda x: x.until_ready(),
    "wait": lambda x: x.wait(done(x)),
    "wait_group": lambda x: x.wait_group(group(x), timeout=0),
    "waiter": lambda x: x.waiter().close(),
    "wants_sweeping": lambda x: x.wants_sweeping("w-1"),
    "workers": lambda x: x.workers(),
}
REFUSED: dict[str, tuple[str, Call]] = {
    "append": ("signature_invalid", lambda x: x.append({})),
    "check_key": ("signature_invalid", lambda x: x.check_key("w-1")),
    "drop_sink": ("not_found", lambda x: x.drop_sink("audit")),
    "inclusion": ("not_found", lambda x: x.inclusion(7_777)),
    "prove": ("not_found", lambda x: x.prove(7_777, lambda _: None)),
    "reset_run": ("not_found", lambda x: x.reset_run("crawl")),
    "revive_sink": ("not_found", lambda x: x.revive_sink("audit")),
    "revoke_key": ("not_found", lambda x: x.revoke_key("k-1")),
    "rotate_key": ("not_found", lambda x: x.rotate_key("k-1", draw_key("worker", "w-9").public)),
    "skip_sink_event": ("not_found", lambda x: x.skip_sink_event("audit")),
}
"""A refusal of the server: there is nothing to use the verb on."""
NEEDS_STORE: dict[str, Call] = {
    "end_session": lambda x: x.end_session(SECRET),
    "find_session": lambda x: x.find_session(SECRET),
    "find_token": lambda x: x.find_token(x.new_token("reader", "kim").text),
    "has_tokens": lambda x: x.has_tokens(),
    "history_writer": lambda x: x.history_writer,
    "local_login_code": lambda x: x.local_login_code(),
    "log_in": lambda x: x.log_in(SECRET),
    "new_login_code": lambda x: x.new_login_code(token(x)),
    "new_person_session": lambda x: x.new_person_session("kim", "reader"),
    "new_session": lambda x: x.new_session(token(x)),
    "outbox": lambda x: x.outbox,
    "sealed_log": lambda x: x.sealed_log,
    "supervision": lambda x: x.supervision,
    "touch_session": lambda x: x.touch_session(SECRET),
    "touch_token": lambda x: x.touch_token(token(x)),
}


def test_no_verb_is_left_out() -> None:
    named = [*WORKS, *REFUSED, *NEEDS_STORE, "close"]
    assert sorted(named) == [name for name in dir(Ledger) if not name.startswith("_")]


@pytest.mark.parametrize("verb", WORKS)
def test_it_works(remote: Ledger, verb: str) -> None:
    WORKS[verb](remote)


@pytest.mark.parametrize("verb", REFUSED)
def test_a_refusal_of_the_server_has_its_code(remote: Ledger, verb: str) -> None:
    code, call = REFUSED[verb]
    with pytest.raises(HoldfastError) as caught:
        call(remote)
    assert caught.value.code == code


@pytest.mark.parametrize("verb", NEEDS_STORE)
def test_what_needs_the_database_says_so(remote: Ledger, verb: str) -> None:
    with pytest.raises(HoldfastError, match="needs the ledger's database") as caught:
        NEEDS_STORE[verb](remote)
    assert (caught.value.code, caught.value.context["field"]) == ("validation_error", "url")
