"""The relay and the positions of its sinks, on both stores and a manual clock."""

import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from holdfast import Ledger, SinkState
from holdfast.services import CallableSink, DeliveryFailed, Message, Relay
from holdfast.services.relay import retry_us
from holdfast.testing import ManualClock
from tests.contract.builders import queued, refused, running, succeeded
from tests.support.duties import GrantEveryDuty
from tests.support.near import near


class Inbox:
    """A receiver that refuses a given number of times."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.tried: list[str] = []
        self.refuse: Callable[[Message], Exception | None] = lambda message: None

    def __call__(self, message: Message) -> None:
        self.tried.append(message.key)
        error = self.refuse(message)
        if error is not None:
            raise error
        self.messages.append(message)

    @property
    def delivered(self) -> list[str]:
        return [f"{message.event.id} {message.data.to_status}" for message in self.messages]

    def refuse_all(self, error: Exception | None = None) -> None:
        self.refuse = lambda message: error or OSError("out of order")

    def accept(self) -> None:
        self.refuse = lambda message: None


@pytest.fixture
def inbox() -> Inbox:
    return Inbox()


def sink(inbox: Inbox, **options: Any) -> CallableSink:
    return CallableSink(inbox, **{"name": "inbox", "start": "beginning"} | options)


def state(ledger: Ledger, name: str = "inbox") -> SinkState:
    [found] = [state for state in ledger.sinks() if state.name == name]
    return found


def drain(relay: Relay) -> int:
    """Tick until no message is left, and return how many were delivered."""
    arrived = 0
    while counts := relay.tick():
        arrived += sum(count for name, count in counts.items() if name.endswith(".delivered"))
    return arrived


# Which events are sent


def test_the_events_of_a_job_are_sent_in_order(ledger: Ledger, inbox: Inbox):
    made = succeeded(ledger)
    relay = Relay(near(ledger), [sink(inbox)])
    assert relay.tick() == {"inbox.delivered": 4}
    assert inbox.delivered == [f"{made.id}-{rev} {to}" for rev, to in enumerate(["queued", "claimed", "running", "succeeded"], 1)]
    assert relay.tick() == {}


def test_heartbeats_are_not_sent(ledger: Ledger, inbox: Inbox):
    made = running(ledger)
    ledger.heartbeat(made.fence, progress=1)
    Relay(near(ledger), [sink(inbox)]).tick()
    assert len(inbox.messages) == 3
    assert state(ledger).behind == 0


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({"types": ["succeeded"]}, ["succeeded"]),
        ({"types": ["job_succeeded", "enqueued"]}, ["queued", "queued", "succeeded"]),
        ({"queues": ["b"]}, ["queued"]),
        ({"kinds": ["one"], "types": ["enqueued"]}, ["queued"]),
        ({"kinds": ["one"], "queues": ["b"]}, []),
        ({"messages": ["ESCALATION_NEEDED"]}, []),
    ],
)
def test_a_sink_gets_the_types_it_selected(ledger: Ledger, inbox: Inbox, choice: dict[str, Any], expected: list[str]):
    queued(ledger, queue="b", kind="two")
    succeeded(ledger, queue="a", kind="one")
    Relay(near(ledger), [sink(inbox, **choice)]).tick()
    assert [message.data.to_status.value for message in inbox.messages] == expected
    assert state(ledger).behind == 0


def test_args_are_sent_only_on_request(ledger: Ledger):
    plain, whole = Inbox(), Inbox()
    ledger.enqueue("send", {"to": "a private address"})
    Relay(near(ledger), [sink(plain, name="plain"), sink(whole, name="whole", include_payload=True)]).tick()
    assert b"private" not in plain.messages[0].body
    assert whole.messages[0].as_dict()["data"]["payload"]["args"] == {"to": "a private address"}


# Positions


def test_a_new_sink_starts_at_the_current_position(ledger: Ledger, inbox: Inbox):
    queued(ledger)
    relay = Relay(near(ledger), [CallableSink(inbox, name="inbox")])
    assert relay.tick() == {}
    made = queued(ledger)
    assert relay.tick() == {"inbox.delivered": 1}
    assert inbox.delivered == [f"{made.id}-1 queued"]


def test_the_position_of_a_sink_outlives_its_relay(ledger: Ledger, inbox: Inbox):
    for _ in range(2):
        queued(ledger)
        with Relay(near(ledger), [sink(inbox)]) as relay:
            assert drain(relay) == 1
    assert len(set(inbox.tried)) == 2


def test_a_tick_sends_one_batch_to_each_sink(ledger: Ledger):
    one, other = Inbox(), Inbox()
    ledger.enqueue_many([{"kind": "work"}] * 250)
    relay = Relay(near(ledger), [sink(one, name="one"), sink(other, name="other")])
    assert relay.tick() == {"one.delivered": 100, "other.delivered": 100}
    assert drain(relay) == 300
    assert one.tried == other.tried == [f"msg_{ledger.id}_{id_}-1_jobs" for id_ in range(1, 251)]


def test_a_slow_batch_ends_early_and_keeps_its_position(ledger: Ledger, clock: ManualClock, inbox: Inbox):
    ledger.enqueue_many([{"kind": "work"}] * 10)
    inbox.refuse = lambda message: clock.advance(2)
    relay = Relay(near(ledger), [sink(inbox)])
    assert relay.tick() == {"inbox.delivered": 3}
    assert drain(relay) == 7
    assert len(inbox.tried) == len(set(inbox.tried)) == 10


def test_a_very_slow_sink_gets_both_messages_of_an_event(ledger: Ledger, clock: ManualClock, inbox: Inbox):
    made = running(ledger, policy={"requires_operator_coverage": True, "resume_window": "60s"})
    ledger.stall(made.fence)
    inbox.refuse = lambda message: clock.advance(9)
    relay = Relay(near(ledger), [sink(inbox, types=["stalled"])])
    assert relay.tick() == {"inbox.delivered": 2}
    assert state(ledger).behind == 0


def test_sinks_are_listed_by_name(ledger: Ledger, clock: ManualClock, inbox: Inbox):
    assert ledger.sinks() == []
    ledger.enqueue_many([{"kind": "work"}] * 3)
    Relay(near(ledger), [sink(inbox, name="b"), CallableSink(inbox, name="a")]).tick()
    clock.advance(1)
    queued(ledger)
    a, b = ledger.sinks()
    third = ledger.events()[2].pos
    assert (a.name, b.name, a.behind) == ("a", "b", 1)
    assert ledger.events()[3].pos > a.pos >= third and ledger.events()[3].pos > b.pos >= third
    assert (a.failures, a.retry_at, a.dead_at, a.last_error) == (0, None, None, None)
    assert b.updated_at == clock.now() - timedelta(seconds=1)


def test_a_dropped_sink_is_forgotten(ledger: Ledger, inbox: Inbox):
    queued(ledger)
    with Relay(near(ledger), [sink(inbox)]) as relay:
        drain(relay)
    ledger.drop_sink("inbox")
    assert ledger.sinks() == []
    with refused("not_found"):
        ledger.drop_sink("inbox")
    assert drain(Relay(near(ledger), [sink(inbox)])) == 1
    assert len(inbox.tried) == 2


# Failures


def test_no_later_event_is_sent_before_the_failed_one(ledger: Ledger, clock: ManualClock, inbox: Inbox):
    first, second, third = (queued(ledger) for _ in range(3))
    inbox.refuse = lambda message: OSError("not you") if message.data.job_id == second.id else None
    relay = Relay(near(ledger), [sink(inbox)])
    assert relay.tick() == {"inbox.delivered": 1, "inbox.failed": 1}
    failing = state(ledger)
    assert (failing.failures, failing.last_error, failing.behind) == (1, "OSError: not you", 2)
    assert failing.retry_at is not None
    assert timedelta(seconds=0.5) <= failing.retry_at - clock.now() <= timedelta(seconds=1.5)
    assert relay.tick() == {}

    inbox.accept()
    clock.advance(1.5)
    assert relay.tick() == {"inbox.delivered": 2}
    assert inbox.delivered == [f"{made.id}-1 queued" for made in (first, second, third)]
    assert len(set(inbox.tried)) == 3
    mended = state(ledger)
    assert (mended.failures, mended.retry_at, mended.last_error) == (0, None, None)


def test_skipped_events_before_a_failure_are_not_read_again(ledger: Ledger, inbox: Inbox):
    for queue in ("a", "a", "b", "a"):
        queued(ledger, queue=queue)
    inbox.refuse_all()
    Relay(near(ledger), [sink(inbox, queues=["b"])]).tick()
    assert (state(ledger).pos, state(ledger).failures) == (ledger.events()[1].pos, 1)


def test_the_wait_after_a_failure_doubles_up_to_ten_minutes() -> None:
    assert [retry_us(failures, 1.0) / 1_000_000 for failures in (1, 2, 3, 10, 11, 12, 1_000)] == [1, 2, 4, 512, 600, 600, 600]
    assert retry_us(2, 0.5) == 1_000_000


def test_a_failing_sink_delays_no_other_sink(ledger: Ledger):
    good, bad = Inbox(), Inbox()
    bad.refuse_all()
    queued(ledger)
    relay = Relay(near(ledger), [sink(bad, name="bad"), sink(good, name="good")])
    assert relay.tick() == {"bad.failed": 1, "good.delivered": 1}


def fail_until_dead(relay: Relay, clock: ManualClock, ledger: Ledger) -> int:
    """Tick after the longest wait until the sink is dead, and return the number of attempts."""
    for tries in range(100):
        if state(ledger).dead_at is not None:
            return tries
        clock.advance(900)
        assert relay.tick() == {"inbox.failed": 1}
    raise AssertionError("it does not die")


def test_a_sink_that_keeps_failing_is_marked_dead_and_logged_once(
    ledger: Ledger, clock: ManualClock, inbox: Inbox, caplog: pytest.LogCaptureFixture
):
    relay = Relay(near(ledger), [sink(inbox)])
    relay.tick()
    queued(ledger)
    inbox.refuse_all()
    with caplog.at_level(logging.ERROR):
        assert fail_until_dead(relay, clock, ledger) == 12
        for _ in range(3):
            clock.advance(900)
            assert relay.tick() == {}
    [record] = caplog.records
    assert record.getMessage() == "sink inbox is dead, 12 failures in a row: OSError: out of order"
    dead = state(ledger)
    assert (dead.failures, dead.retry_at, dead.behind, dead.last_error) == (12, None, 1, "OSError: out of order")
    assert dead.dead_at is not None
    assert len(inbox.tried) == 12


def test_a_final_failure_marks_the_sink_dead_at_once(ledger: Ledger, inbox: Inbox):
    queued(ledger)
    inbox.refuse_all(DeliveryFailed("HTTP 410", final=True))
    Relay(near(ledger), [sink(inbox)]).tick()
    assert (state(ledger).failures, state(ledger).last_error) == (1, "HTTP 410")
    assert state(ledger).dead_at is not None


def test_a_revived_sink_continues_at_its_position(ledger: Ledger, clock: ManualClock, inbox: Inbox):
    relay = Relay(near(ledger), [sink(inbox, attempts_max=2)])
    relay.tick()
    made = [queued(ledger) for _ in range(3)]
    inbox.refuse_all()
    assert fail_until_dead(relay, clock, ledger) == 2
    inbox.accept()
    revived = ledger.revive_sink("inbox")
    assert (revived.failures, revived.dead_at, revived.behind) == (0, None, 3)
    assert relay.tick() == {"inbox.delivered": 3}
    assert inbox.delivered == [f"{job.id}-1 queued" for job in made]


def test_reviving_ends_the_wait_after_a_failure(ledger: Ledger, inbox: Inbox):
    queued(ledger)
    inbox.refuse_all()
    relay = Relay(near(ledger), [sink(inbox)])
    relay.tick()
    inbox.accept()
    ledger.revive_sink("inbox")
    assert relay.tick() == {"inbox.delivered": 1}


def test_an_event_that_cannot_be_delivered_can_be_skipped(ledger: Ledger, clock: ManualClock, inbox: Inbox):
    first, poison, last = (queued(ledger) for _ in range(3))
    inbox.refuse = lambda message: OSError("poison") if message.data.job_id == poison.id else None
    relay = Relay(near(ledger), [sink(inbox, attempts_max=1)])
    relay.tick()
    skipped = ledger.skip_sink_event("inbox")
    assert (skipped.failures, skipped.dead_at, skipped.behind) == (0, None, 1)
    assert relay.tick() == {"inbox.delivered": 1}
    assert inbox.delivered == [f"{first.id}-1 queued", f"{last.id}-1 queued"]
    with refused("conflict"):
        ledger.skip_sink_event("inbox")


def test_an_unknown_sink_is_not_found(ledger: Ledger):
    for verb in (ledger.revive_sink, ledger.skip_sink_event, ledger.drop_sink):
        with refused("not_found"):
            verb("unknown")
        with refused("validation_error"):
            verb("")


def test_all_messages_of_an_event_are_sent_again_until_the_sink_is_dead(ledger: Ledger, clock: ManualClock, inbox: Inbox):
    made = running(ledger, policy={"requires_operator_coverage": True, "resume_window": "60s"})
    ledger.stall(made.fence)
    inbox.refuse = lambda message: OSError("no") if message.data.message == "ESCALATION_NEEDED" else None
    relay = Relay(near(ledger), [sink(inbox, attempts_max=3, types=["stalled"])])
    for _ in range(5):
        relay.tick()
        clock.advance(900)
    assert state(ledger).dead_at is not None
    assert len(inbox.tried) == 6
    assert len(set(inbox.tried)) == 2


def test_the_error_of_a_sink_is_kept_in_one_short_line(ledger: Ledger, inbox: Inbox):
    queued(ledger)
    inbox.refuse_all(ValueError("ä\n\0" * 2_000 + "\udc80"))
    Relay(near(ledger), [sink(inbox)]).tick()
    kept = state(ledger).last_error
    assert kept is not None
    assert 990 <= len(kept.encode()) <= 1_000
    assert kept.isprintable()


# Several relays


def test_one_relay_at_a_time_serves_a_sink(ledger: Ledger, clock: ManualClock, inbox: Inbox):
    first, second = (Relay(near(ledger), [sink(inbox)]) for _ in range(2))
    queued(ledger)
    assert [first.tick(), second.tick()] == [{"inbox.delivered": 1}, {}]
    queued(ledger)
    assert [second.tick(), first.tick()] == [{}, {"inbox.delivered": 1}]
    # The first relay stops, and its duty expires.
    clock.advance(31)
    queued(ledger)
    assert [second.tick(), first.tick()] == [{"inbox.delivered": 1}, {}]
    assert len(inbox.tried) == 3


def test_a_closed_relay_is_replaced_at_once(ledger: Ledger, inbox: Inbox):
    first, second = (Relay(near(ledger), [sink(inbox)]) for _ in range(2))
    queued(ledger)
    assert first.tick() == {"inbox.delivered": 1}
    first.close()
    queued(ledger)
    assert [second.tick(), first.tick()] == [{"inbox.delivered": 1}, {}]


def test_closing_drops_no_duty_of_another_holder(ledger: Ledger, inbox: Inbox):
    first, second = (Relay(near(ledger), [sink(inbox)]) for _ in range(2))
    first.tick()
    second.close()
    queued(ledger)
    assert [second.tick(), first.tick()] == [{}, {"inbox.delivered": 1}]


def test_each_sink_has_its_own_duty(ledger: Ledger):
    one, other = Inbox(), Inbox()
    first = Relay(near(ledger), [sink(one, name="one")])
    second = Relay(near(ledger), [sink(one, name="one"), sink(other, name="other")])
    queued(ledger)
    assert [first.tick(), second.tick()] == [{"one.delivered": 1}, {"other.delivered": 1}]


@pytest.mark.parametrize(("duty_ttl", "seconds"), [("1s", 1), ("1h", 3_600)])
def test_the_relay_sets_the_length_of_its_duties(ledger: Ledger, clock: ManualClock, inbox: Inbox, duty_ttl: str, seconds: int):
    Relay(near(ledger), [sink(inbox)], duty_ttl=duty_ttl).tick()
    queued(ledger)
    clock.advance(seconds)
    assert Relay(near(ledger), [sink(inbox)]).tick() == {}
    clock.advance(0.001)
    assert Relay(near(ledger), [sink(inbox)]).tick() == {"inbox.delivered": 1}


def test_duties_are_renewed_seldom(ledger: Ledger, clock: ManualClock, inbox: Inbox):
    duties = GrantEveryDuty()
    relay = Relay(near(ledger), [sink(inbox)], duties=duties)
    for _ in range(60):
        relay.tick()
        clock.advance(1)
    assert duties.asked == 6


def test_a_slow_sink_stays_with_its_relay(ledger: Ledger, clock: ManualClock, inbox: Inbox):
    """Each delivery takes as long as the time limit of a webhook."""
    ledger.enqueue_many([{"kind": "work"}] * 6)
    inbox.refuse = lambda message: clock.advance(20)
    relay, other = Relay(near(ledger), [sink(inbox)]), Relay(near(ledger), [sink(Inbox())])
    for _ in range(6):
        assert [relay.tick(), other.tick()] == [{"inbox.delivered": 1}, {}]


def test_a_slow_sink_does_not_delay_other_sinks_of_its_relay(ledger: Ledger, clock: ManualClock, inbox: Inbox):
    """An event of two messages takes longer than a duty lasts."""
    made = running(ledger, policy={"requires_operator_coverage": True, "resume_window": "60s"})
    ledger.stall(made.fence)
    rivals: list[dict[str, int]] = []
    rival = Relay(near(ledger), [sink(Inbox(), name="quick")])

    def dawdle(message: Message) -> None:
        clock.advance(19)
        rivals.append(rival.tick())

    inbox.refuse = dawdle
    relay = Relay(near(ledger), [sink(inbox, name="slow", types=["stalled"]), sink(Inbox(), name="quick", types=["stalled"])])
    assert relay.tick() == {"slow.delivered": 2, "quick.delivered": 2}
    assert rivals == [{}, {}]


def test_a_relay_that_lost_its_duty_does_not_move_the_position(ledger: Ledger, inbox: Inbox):
    """While it sends, another relay reaches a later position."""
    made = queued(ledger)
    rival = Relay(near(ledger), [sink(Inbox())], duties=GrantEveryDuty())

    def overtake(message: Message) -> None:
        if message.data.job_id == made.id:
            queued(ledger)
            assert drain(rival) == 2

    inbox.refuse = overtake
    relay = Relay(near(ledger), [sink(inbox)], duties=GrantEveryDuty())
    assert relay.tick() == {"inbox.delivered": 1}
    assert (state(ledger).pos, state(ledger).behind) == (ledger.events()[1].pos, 0)
    queued(ledger)
    assert relay.tick() == {"inbox.delivered": 1}


# Refused


@pytest.mark.parametrize(
    "options",
    [
        {"name": ""},
        {"name": "n" * 101},
        {"types": ["nonsense"]},
        {"types": "succeeded"},
        {"messages": ["nonsense"]},
        {"queues": [""]},
        {"kinds": [7]},
        {"start": "yesterday"},
        {"include_payload": 1},
        {"attempts_max": 0},
    ],
)
def test_a_sink_with_wrong_settings_is_refused(options: dict[str, Any], inbox: Inbox):
    with pytest.raises(Exception) as caught:  # noqa: PT011 - the code tells
        sink(inbox, **options)
    assert getattr(caught.value, "code", None) in ("validation_error", "limit_exceeded")


def test_two_sinks_of_one_name_are_refused(ledger: Ledger, inbox: Inbox):
    with refused("validation_error"):
        Relay(near(ledger), [sink(inbox), sink(inbox)])
    with refused("validation_error"):
        Relay(near(ledger), [inbox])  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("duty_ttl", "code"),
    [("999ms", "limit_exceeded"), ("61m", "limit_exceeded"), (True, "validation_error"), (None, "validation_error")],
)
def test_a_duty_outside_its_limits_is_refused(ledger: Ledger, inbox: Inbox, duty_ttl: object, code: str):
    with refused(code):
        Relay(near(ledger), [sink(inbox)], duty_ttl=duty_ttl)
