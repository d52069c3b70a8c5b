"""The rules of flow control: limits, turns, weights and keys."""

from collections import Counter
from typing import Any

import pytest

from holdfast.core import limits
from holdfast.core.flow import (
    FIRST_IN_LINE,
    FIRST_PLACE,
    LAST_ID,
    PLAIN,
    TURNS_MAX,
    BlockedSubqueue,
    FlowRefusal,
    LimitBody,
    LimitKey,
    LinePlace,
    OpenSubqueue,
    Turn,
    allocate,
    in_line,
    key_of,
    line_up,
    read_ratio,
)
from holdfast.core.model import Flow, required_labels
from holdfast.errors import LimitExceeded, NotClaimable, ValidationError
from tests.unit.histories import SECOND, T0, History

MINUTE = 60 * SECOND


def key(body: LimitBody | None, *, used: int = 0, tokens: float = 1e300, filled_at: int = 0, id_: int = 1) -> LimitKey:
    return LimitKey(id_, "api", "", body, used, tokens, filled_at)


def subqueues(*partitions: str, draws: tuple[tuple[int, int], ...] = ()) -> list[OpenSubqueue]:
    return [OpenSubqueue(number, partition, draws) for number, partition in enumerate(partitions, 1)]


# The numbers of a limit


@pytest.mark.parametrize(
    ("body", "tokens"),
    [
        (LimitBody(rate=600, per_us=MINUTE), 10),
        (LimitBody(rate=601, per_us=MINUTE), 11),
        (LimitBody(rate=1, per_us=MINUTE), 1),
        (LimitBody(rate=1, per_us=MINUTE, burst=7), 7),
    ],
)
def test_a_bucket_has_the_burst_or_what_the_rate_gives_in_a_second(body: LimitBody, tokens: int):
    assert body.tokens_max == tokens


def test_a_limit_refuses_jobs_that_could_never_start():
    assert not LimitBody().refuses(1_000_000)
    assert [LimitBody(concurrent=3).refuses(units) for units in (3, 4)] == [False, True]
    assert [LimitBody(rate=1, per_us=SECOND, burst=2).refuses(units) for units in (2, 3)] == [False, True]


def test_the_name_of_a_key_is_for_messages():
    assert key(None).name == "api"
    assert LimitKey(1, "api", "acme", None, 0, 0, 0).name == "api for acme"


# What is in use


def test_concurrent_units_are_used_and_counted_anew():
    state = key(LimitBody(concurrent=5), used=3)
    assert (state.fits(1), state.fits(2), state.fits(3)) == (2, 1, 0)
    assert not state.is_full(2)
    state.take(2)
    assert (state.used, state.drawn, state.is_changed, state.is_full(1)) == (5, 2, True, True)
    state.recount(1)
    assert (state.used, state.fits(1)) == (3, 2)
    state.give_back(2)
    assert (state.used, state.drawn) == (1, 0)


def test_units_of_another_attempt_are_used_once():
    state = key(LimitBody(concurrent=5), used=5)
    state.free(2)
    assert (state.fits(2), state.fits(3)) == (1, 0)
    state.recount(4)
    assert state.used == 2
    state.take(2)
    assert (state.used, state.drawn) == (4, 0)


def test_what_does_not_change_is_not_saved():
    state = key(LimitBody(concurrent=5), used=3)
    state.take(0)
    state.recount(3)
    assert not state.is_changed
    state.recount(2)
    assert state.is_changed


def test_a_removed_limit_limits_nothing():
    state = key(None, used=100)
    state.refill(T0)
    state.take(3)
    assert state.fits(1) == limits.CLAIM_BATCH_MAX
    assert not state.is_full(1)
    assert state.next_at(1) is None


def test_more_may_be_in_use_than_a_lowered_limit_has():
    assert key(LimitBody(concurrent=2), used=5).fits(1) == 0


def test_tokens_come_in_with_time():
    state = key(LimitBody(rate=60, per_us=MINUTE, burst=3))
    state.refill(T0)
    assert (state.tokens, state.filled_at, state.fits(1), state.next_at(1)) == (3.0, T0, 3, None)
    state.take(3)
    assert (state.fits(1), state.next_at(1), state.next_at(2), state.next_at(4)) == (0, T0 + SECOND, T0 + 2 * SECOND, None)
    assert state.allows_at(10) == T0 + 10 * SECOND
    state.refill(T0 + SECOND)
    assert (state.fits(1), state.fits(2)) == (1, 0)
    state.refill(T0)
    assert (state.fits(1), state.filled_at) == (1, T0 + SECOND)
    state.refill(T0 + MINUTE)
    assert state.tokens == 3.0


def test_tokens_come_in_from_now_on_after_the_clock_was_set_back():
    state = key(LimitBody(rate=60, per_us=MINUTE, burst=3))
    state.refill(T0 + MINUTE)
    state.take(3)
    state.is_changed = False
    state.refill(T0)
    assert (state.tokens, state.filled_at, state.is_changed) == (0.0, T0, True)
    state.refill(T0 + SECOND)
    assert state.fits(1) == 1


def test_a_limit_without_a_rate_has_no_next_time():
    state = key(LimitBody(concurrent=1), used=1)
    state.refill(T0)
    assert state.next_at(1) is None
    assert not key(LimitBody(rate=1, per_us=SECOND)).is_full(1)


def test_both_numbers_of_a_limit_hold():
    state = key(LimitBody(concurrent=10, rate=1, per_us=SECOND, burst=2))
    state.refill(T0)
    assert state.fits(1) == 2
    assert key(LimitBody(concurrent=1, rate=1, per_us=SECOND, burst=2), tokens=2).fits(1) == 1


# Turns


def test_partitions_share_a_claim():
    shares = allocate(6, subqueues("a", "b", "c"), {}, {})
    assert shares.counts == {1: 2, 2: 2, 3: 2}
    assert (shares.blocked, shares.left) == ({}, 0)


def test_weights_are_jobs_of_a_turn():
    shares = allocate(8, subqueues("a", "b"), {}, {"a": 3})
    assert shares.counts == {1: 6, 2: 2}
    shares = allocate(2, subqueues("a", "b"), {}, {"a": 3})
    assert (shares.counts, shares.left) == ({1: 2}, 1)
    assert allocate(3, subqueues("a", "b"), {}, {"a": 3}, left=1).counts == {1: 2, 2: 1}


def test_a_large_claim_takes_several_jobs_of_a_turn():
    shares = allocate(1_000, subqueues("a", "b"), {}, {})
    assert shares.counts == {1: 504, 2: 496}


def test_subqueues_of_a_partition_share_its_turns():
    found = [OpenSubqueue(1, "a"), OpenSubqueue(2, "a"), OpenSubqueue(3, "b")]
    counts = allocate(4, found, {}, {}).counts
    assert counts[1] + counts.get(2, 0) == 2
    assert counts[3] == 2


def test_used_up_limits_block_only_their_subqueues():
    keys = {1: key(LimitBody(concurrent=3), used=1), 2: key(LimitBody(concurrent=1), used=1, id_=2)}
    found = [OpenSubqueue(1, "a", ((1, 1),)), OpenSubqueue(2, "b", ((1, 1), (2, 1))), OpenSubqueue(3, "c")]
    shares = allocate(10, found, keys, {})
    assert shares.counts == {1: 2, 3: 8}
    assert shares.blocked == {2: 2}
    assert (keys[1].used, keys[2].used) == (3, 1)


def test_a_subqueue_whose_key_is_locked_gets_nothing():
    assert allocate(5, [OpenSubqueue(1, "a", ((9, 1),)), OpenSubqueue(2, "b")], {}, {}).counts == {2: 5}
    assert allocate(5, [], {}, {}).counts == {}


def test_a_claim_ends_when_every_subqueue_is_blocked():
    keys = {1: key(LimitBody(concurrent=2))}
    shares = allocate(10, [OpenSubqueue(1, "a", ((1, 2),))], keys, {"a": 5})
    assert (shares.counts, shares.blocked, shares.left) == ({1: 1}, {}, 4)


def test_a_turn_that_a_limit_cuts_short_leaves_the_rest_for_the_next_claim():
    keys = {1: key(LimitBody(concurrent=2))}
    shares = allocate(2, [OpenSubqueue(1, "a", ((1, 1),)), OpenSubqueue(2, "b")], keys, {"a": 5})
    assert (shares.counts, shares.left) == ({1: 2}, 3)


def served(claims: int, found: list[OpenSubqueue], weights: dict[str, int] | None = None, limit: int = 1) -> Counter[int]:
    """Return how many jobs each subqueue gets in some claims of one process, as the store makes them."""
    turn, total = Turn(FIRST_PLACE), Counter[int]()
    for _ in range(claims):
        after = [one for one in found if one.place > turn.after]
        window = after + [one for one in found if one not in after]
        shares = allocate(limit, turn.order(window), {}, weights or {}, turn.left_for(window))
        turn.move(window, shares, is_alone=False)
        total.update(shares.counts)
    return total


def test_small_claims_go_round():
    assert served(9, subqueues("a", "b", "c")) == {1: 3, 2: 3, 3: 3}
    assert served(8, subqueues("a", "b"), {"a": 3}) == {1: 6, 2: 2}
    assert served(6, subqueues("", "", "")) == {1: 2, 2: 2, 3: 2}


def test_small_claims_go_round_within_a_partition():
    found = [OpenSubqueue(1, "a"), OpenSubqueue(2, "a"), OpenSubqueue(3, "b")]
    assert served(8, found) == {1: 2, 2: 2, 3: 4}


def test_a_claim_that_got_nothing_takes_no_turn():
    window = subqueues("a", "b")
    turn = Turn(("a", LAST_ID), left=2)
    turn.move(window, allocate(0, window, {}, {}), is_alone=False)
    assert (turn.after, turn.left, turn.is_new) == (("a", LAST_ID), 2, False)


def test_a_partition_that_is_alone_goes_on_among_its_subqueues():
    window = [OpenSubqueue(1, "a"), OpenSubqueue(2, "a")]
    turn = Turn(FIRST_PLACE)
    turn.move(window, allocate(1, window, {}, {}), is_alone=True)
    assert (turn.after, turn.served) == (("a", 1), {})
    turn.move(window, allocate(1, window, {}, {"a": 2}), is_alone=True)
    assert (turn.after, turn.left) == (("a", 0), 1)


def test_what_is_left_of_a_turn_is_for_its_partition_only():
    window = subqueues("a", "b")
    turn = Turn(("a", FIRST_PLACE[1]), left=2)
    assert (turn.left_for(window), turn.left_for(window[1:]), turn.left_for([])) == (2, 0, 0)


@pytest.mark.parametrize(
    ("after", "found", "is_full", "place"),
    [
        (FIRST_PLACE, ["a", "b"], False, 0),
        (FIRST_PLACE, ["a", "b"], True, 0),
        (("", LAST_ID), ["a", "b"], False, 2),
        (("", LAST_ID), ["a", "b"], True, None),
        (("a", LAST_ID), ["b", "c"], True, None),
        (("b", LAST_ID), ["c", "a"], True, 1),
        (("b", LAST_ID), ["c", "a"], False, 1),
        (("", 5), ["a"], False, 1),
        (FIRST_PLACE, [], False, 0),
    ],
)
def test_jobs_without_a_subqueue_have_their_place_among_the_partitions(
    after: tuple[str, int], found: list[str], is_full: bool, place: int | None
):
    window = subqueues(*found)
    ordered = Turn(after).with_plain(window, is_full=is_full)
    assert [one for one in ordered if one is not PLAIN] == window
    assert (ordered.index(PLAIN) if PLAIN in ordered else None) == place


def test_jobs_without_a_subqueue_take_turns_with_the_subqueues_beside_them():
    beside = [OpenSubqueue(-1, ""), OpenSubqueue(1, "")]
    assert Turn(("", -1)).with_plain([beside[1], beside[0]], is_full=False) == [PLAIN, beside[1], beside[0]]
    assert Turn(("", 0)).with_plain([beside[1], beside[0]], is_full=False) == [beside[1], beside[0], PLAIN]


def test_subqueues_that_wait_for_a_limit_are_served_in_the_order_of_their_line():
    late, free, early = OpenSubqueue(1, "a", waits_since=9), OpenSubqueue(2, "b"), OpenSubqueue(3, "c", waits_since=4)
    assert in_line([late, free, early]) == [early, free, late]


def test_what_is_left_of_a_turn_is_served_first():
    window = subqueues("a", "b")
    turn = Turn(FIRST_PLACE)
    turn.move(window, allocate(1, window, {}, {"a": 2}), is_alone=False)
    assert (turn.after, turn.left) == (("a", FIRST_PLACE[1]), 1)
    turn.move(window, allocate(1, window, {}, {"a": 2}, turn.left), is_alone=False)
    assert (turn.after, turn.left) == (("a", LAST_ID), 0)


def test_turns_are_forgotten_if_there_are_too_many():
    window = [OpenSubqueue(1, "a"), OpenSubqueue(2, "a")]
    turn = Turn(FIRST_PLACE, served={str(number): 1 for number in range(TURNS_MAX)})
    turn.move(window, allocate(1, window, {}, {}), is_alone=False)
    assert turn.served == {"a": 1}


# Texts and keys


def test_ratios_are_read():
    assert read_ratio("rate", "600/1m", "600/1m", 1, 86_400_000) == (600, MINUTE)
    assert read_ratio("rate", "600/m", "600/1m", 1, 86_400_000) == (600, MINUTE)
    assert read_ratio("rate", "10/s", "600/1m", 1, 86_400_000) == (10, SECOND)


@pytest.mark.parametrize("given", [None, 600, "", "600", "/1m", "x/1m", "-1/1m", "²/1m", "600/", "600/minute"])
def test_other_texts_are_no_ratios(given: Any):
    with pytest.raises(ValidationError):
        read_ratio("rate", given, "600/1m", 1, 86_400_000)


def test_numbers_of_ratios_have_a_range():
    for given in ("0/1m", "99999999999999999999999/1m", "1/1d"):
        with pytest.raises(LimitExceeded):
            read_ratio("rate", given, "600/1m", 1, 1_000)
    with pytest.raises(LimitExceeded, match="the duration of rate must be from 1 ms to 1 s") as refusal:
        read_ratio("rate", "600/0s", "600/1m", 1, 1_000)
    assert refusal.value.context["field"] == "rate"


@pytest.mark.parametrize(
    ("by", "args", "value"),
    [
        ("args.tenant", b'{"tenant":"acme"}', "acme"),
        ("args.tenant", b'{"tenant":7}', "7"),
        ("args.tenant", b'{"tenant":true}', "true"),
        ("args.user.id", b'{"user":{"id":"u-1"}}', "u-1"),
    ],
)
def test_the_key_is_a_value_of_the_arguments(by: str, args: bytes, value: str):
    assert key_of(by, args, "api") == value


@pytest.mark.parametrize("args", [b"{}", b'{"tenant":null}', b'{"tenant":1.5}', b'{"tenant":[]}', b"[1]", b'{"tenant":{"id":1}}'])
def test_arguments_without_a_text_or_number_have_no_key(args: bytes):
    with pytest.raises(ValidationError) as refusal:
        key_of("args.tenant", args, "api")
    assert refusal.value.context["limit_name"] == "api"


def test_a_claim_by_id_is_refused_for_a_reason():
    refusal = FlowRefusal("limit", "the limit api is used up")
    with pytest.raises(NotClaimable) as caught:
        History().claim(refusal=refusal)
    assert (caught.value.context["why"], str(caught.value)) == ("limit", "job 7 cannot be claimed: the limit api is used up")


def test_a_job_for_one_worker_requires_its_own_label():
    flow = Flow(requires=required_labels("w", ("a", "b")))
    assert (flow.requires, flow.for_worker, flow.labels) == (("worker:w", "a", "b"), "w", ("a", "b"))
    assert (Flow(requires=("a",)).for_worker, Flow(requires=("a",)).labels, Flow().for_worker) == ("", ("a",), "")
    assert required_labels("", ["a"]) == ("a",)


def test_a_removed_limit_has_no_rate() -> None:
    assert not LimitKey(1, "api", "", None, 0, 0.0, 0).has_rate
    assert not LimitKey(1, "api", "", LimitBody(concurrent=1), 0, 0.0, 0).has_rate
    assert LimitKey(1, "api", "", LimitBody(rate=1, per_us=1), 0, 0.0, 0).has_rate


def test_a_key_is_as_new_when_its_rate_allows_all() -> None:
    rate = LimitBody(rate=1, per_us=SECOND, burst=3)
    assert key(None, tokens=0).is_as_new
    assert key(LimitBody(concurrent=1), tokens=0).is_as_new
    assert not key(rate, tokens=2.5).is_as_new
    assert key(rate, tokens=3 - 1e-9).is_as_new


# The line of a key


def test_a_blocked_subqueue_keeps_its_place_in_line() -> None:
    keys = {1: key(LimitBody(concurrent=1), used=1)}
    blocked = [
        BlockedSubqueue(10, 1, 1, None, has_started=True),
        BlockedSubqueue(11, 1, 1, T0 - 5),
        BlockedSubqueue(12, 1, 1, None),
        BlockedSubqueue(13, 1, 1, FIRST_IN_LINE, has_started=True),
        BlockedSubqueue(14, 1, 1, T0 - 9),
    ]
    latest = T0 + SECOND
    assert line_up(blocked, keys, T0, latest) == [
        LinePlace(13, 1, latest, FIRST_IN_LINE),
        LinePlace(14, 1, latest, T0 - 9),
        LinePlace(11, 1, latest, T0 - 5),
        LinePlace(12, 1, latest, T0 + 3),
        LinePlace(10, 1, latest, T0 + 4),
    ]


def test_a_rate_makes_room_for_one_subqueue_after_the_other() -> None:
    rate = LimitBody(rate=1, per_us=SECOND)
    keys = {1: key(rate, tokens=0, filled_at=T0), 2: key(rate, tokens=0, filled_at=T0, id_=2)}
    blocked = [BlockedSubqueue(number, 1, 1, None) for number in range(10, 14)] + [BlockedSubqueue(20, 2, 1, None)]
    latest = T0 + 5 * SECOND // 2
    assert [(place.id, place.until) for place in line_up(blocked, keys, T0, latest)] == [
        (10, T0 + SECOND),
        (11, T0 + 2 * SECOND),
        (12, latest),
        (13, latest),
        (20, T0 + SECOND),
    ]


def test_the_line_of_a_key_is_by_priority_first() -> None:
    keys = {1: key(LimitBody(rate=1, per_us=SECOND), tokens=0, filled_at=T0)}
    blocked = [BlockedSubqueue(10, 1, 1, T0 - 5, rank=0), BlockedSubqueue(11, 1, 1, None, has_started=True, rank=-100)]
    found = line_up(blocked, keys, T0, T0 + MINUTE)
    assert [(place.id, place.until) for place in found] == [(11, T0 + SECOND), (10, T0 + 2 * SECOND)]


def test_nothing_waits_for_the_tokens_of_larger_jobs_or_of_other_routes() -> None:
    keys = {1: key(LimitBody(rate=1, per_us=SECOND, burst=4), tokens=0, filled_at=T0)}
    blocked = [
        BlockedSubqueue(10, 1, 4, T0 - 5),
        BlockedSubqueue(11, 1, 1, T0 - 4),
        BlockedSubqueue(12, 1, 2, T0 - 3),
        BlockedSubqueue(13, 1, 4, T0 - 2),
        BlockedSubqueue(14, 1, 1, T0 - 1, route=2),
    ]
    found = {place.id: (place.until - T0) / SECOND for place in line_up(blocked, keys, T0, T0 + MINUTE)}
    assert found == {10: 4, 11: 1, 12: 3, 13: 11, 14: 1}


def test_a_rate_that_has_tokens_says_no_time_for_a_limit_that_is_used_up() -> None:
    keys = {1: key(LimitBody(concurrent=1, rate=1, per_us=SECOND), used=1, tokens=1, filled_at=T0)}
    assert line_up([BlockedSubqueue(10, 1, 1, None)], keys, T0, T0 + MINUTE) == [LinePlace(10, 1, T0 + MINUTE, T0)]
