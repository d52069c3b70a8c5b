"""The number of frames from a public call to the database driver is limited."""

from tools.frames import measure

FRAMES_MAX = 13


def test_a_call_reaches_the_driver_in_few_frames(store_url: str) -> None:
    counted = {verb: len(stack) for verb, stack in measure(store_url).items()}
    hot = {verb: count for verb, count in counted.items() if verb not in ("fail", "cancel", "get")}
    assert {verb: count for verb, count in hot.items() if count > FRAMES_MAX} == {}
    assert len(hot) == 11
    assert min(hot.values()) > 3  # the tool has seen statements
