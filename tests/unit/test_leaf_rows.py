"""Leaves made in bulk equal leaves made one by one."""

from hypothesis import given
from hypothesis import strategies as st

from holdfast.proof.leaves import event_leaf
from holdfast.proof.merkle import leaf_hash
from holdfast.store.rows import EventRow
from holdfast.store.sealing import event_hashes, leaf_row

TEXT = st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
BYTES = st.none() | st.binary(max_size=40) | st.just(b'{"pruned":"' + b"ab" * 32 + b'"}')
COUNT = st.integers(0, 2**53 - 1)
POLICIES = {1: '{"signed":"none"}', 2: '{"signed":"all"}'}
ROWS = st.builds(
    EventRow, COUNT, COUNT, COUNT, st.sampled_from(["enqueued", "heartbeat", "claimed", "succeeded"]), COUNT, st.none() | COUNT,
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8), COUNT, TEXT, TEXT, TEXT, TEXT, TEXT, BYTES,
    st.sampled_from([None, 1, 2]), TEXT, TEXT, TEXT, BYTES, BYTES,
)  # fmt: skip


@given(st.lists(ROWS, max_size=4))
def test_leaves_made_in_bulk_equal_leaves_made_one_by_one(rows: list[EventRow]):
    one_by_one = [leaf_hash(event_leaf(leaf_row(row, POLICIES, "led"))) for row in rows]
    assert event_hashes(rows, POLICIES, "led") == one_by_one


@given(ROWS, st.integers(0, 2**50))
def test_times_may_be_stored_relative_to_another_day(row: EventRow, epoch_us: int):
    at = None if row.at is None else row.at + epoch_us
    later = row._replace(received_at=row.received_at + epoch_us, at=at)
    assert event_hashes([row], POLICIES, "led", epoch_us) == event_hashes([later], POLICIES, "led")
