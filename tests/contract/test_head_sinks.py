"""Heads of the sealed log as messages of the outbox: each head, by size, at least once."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Ledger, ValidationError
from holdfast.services import CallableSink, HeadMessage, Message, Relay, WebhookSink
from holdfast.services.sealer import Sealer
from holdfast.testing import ManualClock
from tests.support import auditor
from tests.support.receiver import SECRET, Receiver
from tests.support.sealing import drawn, enrol

SERVER = drawn()
HEADS: dict[str, Any] = {"messages": ["TREE_HEAD"], "start": "beginning"}


@pytest.fixture
def sealed(store_url: str, clock: ManualClock) -> Iterator[Ledger]:
    with holdfast.open(store_url, clock=clock, keys=[SERVER]) as ledger:
        enrol(ledger, SERVER)
        yield ledger


def seal(ledger: Ledger) -> None:
    ledger.enqueue("index")
    with Sealer(ledger) as sealer:
        assert sealer.seal_all() is not None


def test_each_head_is_delivered_in_order(sealed: Ledger) -> None:
    seal(sealed)
    seal(sealed)
    told: list[Any] = []
    with Relay(sealed, [CallableSink(told.append, name="heads", **HEADS)]) as relay:
        assert relay.tick() == {"heads.delivered": 2}
        assert relay.tick() == {}
        [state] = sealed.sinks()
        assert (state.pos, state.behind) == (3, 0)
        seal(sealed)
        assert sealed.sinks()[0].behind == 1
        relay.tick()
    assert all(isinstance(message, HeadMessage) for message in told)
    assert [message.data.note for message in told] == [head.note for head in sealed.heads()]
    assert [auditor.read_head(message.data.note, SERVER.public.public)[1] for message in told] == [2, 3, 4]


def test_a_new_sink_starts_with_the_next_head(sealed: Ledger) -> None:
    told: list[Any] = []
    seal(sealed)
    with Relay(sealed, [CallableSink(told.append, name="heads", messages=["TREE_HEAD"])]) as relay:
        assert relay.tick() == {}
        seal(sealed)
        relay.tick()
    assert [message.data.size for message in told] == [3]


def test_a_sink_that_fails_gets_the_same_head_again_and_then_the_next(sealed: Ledger, clock: ManualClock) -> None:
    seal(sealed)
    seal(sealed)
    told: list[tuple[str, bytes]] = []

    def fail_once(message: Message) -> None:
        told.append((message.key, message.body))
        if len(told) == 1:
            raise ConnectionError

    with Relay(sealed, [CallableSink(fail_once, name="heads", **HEADS)]) as relay:
        assert relay.tick() == {"heads.failed": 1}
        clock.advance(60)
        relay.tick()
    assert told[0] == told[1]
    assert [key for key, _ in told[1:]] == [f"msg_{sealed.id}_head_{size}" for size in (2, 3)]


def test_a_head_is_skipped(sealed: Ledger) -> None:
    seal(sealed)
    seal(sealed)

    def fail(message: Message) -> None:
        raise ConnectionError

    with Relay(sealed, [CallableSink(fail, name="heads", **HEADS)]) as relay:
        relay.tick()
    assert sealed.skip_sink_event("heads").pos == 2


def test_sinks_of_events_get_no_head(sealed: Ledger) -> None:
    seal(sealed)
    told: list[Message] = []
    with Relay(sealed, [CallableSink(told.append, name="all", start="beginning")]) as relay:
        while relay.tick():
            pass
    assert [message.data.message for message in told] == ["JOB_STATUS_CHANGED"]


def test_a_sink_that_changes_between_events_and_heads_is_dead_and_delays_no_other(sealed: Ledger) -> None:
    with Relay(sealed, [CallableSink(print, name="one")]) as relay:
        relay.tick()
    seal(sealed)
    told: list[Message] = []
    with Relay(
        sealed, [CallableSink(print, name="one", **HEADS), CallableSink(told.append, name="all", start="beginning")]
    ) as other:
        assert other.tick() == {"one.failed": 1, "all.delivered": 1}
        assert other.tick() == {}
    [one] = [sink for sink in sealed.sinks() if sink.name == "one"]
    assert one.dead_at is not None
    assert one.last_error == "one was a sink of events: give it another name, or drop it"
    assert len(told) == 1


@pytest.mark.parametrize(
    "given", [{"queues": ["q"]}, {"kinds": ["k"]}, {"types": ["stalled"]}, {"messages": ["ESCALATION_NEEDED"]}]
)
def test_a_sink_of_heads_gets_nothing_else(given: dict[str, list[str]]) -> None:
    options: dict[str, Any] = {**given, "messages": ["TREE_HEAD", *given.get("messages", [])]}
    with pytest.raises(ValidationError, match="nothing else"):
        CallableSink(print, **options)


def test_heads_are_sent_to_a_webhook(tmp_path: Path) -> None:
    """On the real clock, because a receiver refuses old messages."""
    with Receiver() as receiver, holdfast.open(f"sqlite:///{tmp_path}/real.db", keys=[SERVER]) as ledger:
        enrol(ledger, SERVER)
        with Sealer(ledger) as sealer:
            sealer.tick()
        [head] = ledger.heads()
        with Relay(ledger, [WebhookSink(receiver.url, secret=SECRET, allow_private=True, name="heads", **HEADS)]) as relay:
            relay.tick()
        source = f"/holdfast/{ledger.id}/heads"
    [request] = receiver.received
    received = request.event()
    assert (received["type"], received["source"], received["subject"]) == ("dev.holdfast.tree_head.v1", source, "1")
    assert received["data"] == {
        "message": "TREE_HEAD", "size": 1, "position": head.pos, "root": head.root.hex(), "note": head.note
    }  # fmt: skip
    assert request.key == f"msg_{ledger.id}_head_1"
