"""The texts of tokens, patterns of names, and what a token may be given."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core import access, limits
from holdfast.core.access import AccessRole, TokenParts
from holdfast.errors import HoldfastError, LimitExceeded

MADE = access.make_token(bytes(range(32)), bytes(range(100, 132)))


def test_a_token_has_its_documented_form() -> None:
    assert MADE.text == "hft_aaaqeayeauda_ZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXp7fH1-f4CBgoMSNlUXQ"
    assert len(MADE.text) == 4 + 12 + 1 + 43 + 6
    assert access.parse_token(MADE.text) == MADE


@given(st.binary(min_size=32, max_size=32), st.binary(min_size=32, max_size=32))
def test_every_token_can_be_parsed(id_bytes: bytes, secret_bytes: bytes) -> None:
    made = access.make_token(id_bytes, secret_bytes)
    assert access.parse_token(made.text) == made
    assert access.is_secret(made.secret)


@pytest.mark.parametrize("place", range(len(MADE.text)))
def test_a_token_with_one_wrong_character_is_not_parsed(place: int) -> None:
    text = MADE.text
    wrong = "b" if text[place] != "b" else "c"
    assert access.parse_token(text[:place] + wrong + text[place + 1 :]) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hft_",
        MADE.text[:-1],
        MADE.text + "a",
        MADE.text + "\n",
        " " + MADE.text,
        MADE.text.upper(),
        "\ud800",
        "é" * 66,
        None,
        7,
        b"x",
    ],
)
def test_other_texts_are_not_parsed(text: Any) -> None:
    assert access.parse_token(text) is None
    assert not access.is_secret(text)


def test_the_check_sum_does_not_replace_the_secret() -> None:
    other = TokenParts(MADE.id, MADE.secret[:-1] + "A")
    assert access.parse_token(other.text) == other
    assert access.hash_secret(other.secret) != access.hash_secret(MADE.secret)


@pytest.mark.parametrize(
    ("pattern", "name", "is_match"),
    [
        ("*", "", True),
        ("*", "mail", True),
        ("mail", "mail", True),
        ("mail", "mail2", False),
        ("mail", "Mail", False),
        ("crawl*", "crawl", True),
        ("crawl*", "crawl-7", True),
        ("crawl*", "a-crawl", False),
        ("*-eu", "mail-eu", True),
        ("*-eu", "mail-eu-1", False),
        ("a*a", "a", False),
        ("a*a", "aa", True),
        ("a*b*c", "a-b-c", True),
        ("a*b*c", "a-c-b", False),
        ("a*bb*b", "abb", False),
        ("a**b", "ab", True),
        ("a?c", "abc", False),
        ("a?c", "a?c", True),
        ("[ab]", "a", False),
        ("[ab]", "[ab]", True),
        ("a.c", "abc", False),
    ],
)
def test_only_a_star_has_a_meaning_in_a_pattern(pattern: str, name: str, *, is_match: bool) -> None:
    assert access.matches(pattern, name) is is_match
    assert access.matches_any(("none", pattern), name) is is_match


def test_a_pattern_with_many_stars_takes_no_time() -> None:
    assert not access.matches("*a" * 99 + "*b", "a" * 10_000)


def test_any_list_of_patterns_may_be_empty_only_for_actors() -> None:
    assert access.check_queue_patterns(["b*", "a", "b*"]) == ("b*", "a")
    assert access.check_actor_patterns([], AccessRole.READER) == ()
    assert (
        access.check_actor_patterns(("*", "worker:crawl-*", "client:*", "operator:kim"), AccessRole.ADMIN)[1] == "worker:crawl-*"
    )


@pytest.mark.parametrize("queues", ["crawl*", None, 7, [], [""], ["a\nb"], [7], [" a"], {"a": 1}])
def test_wrong_patterns_of_queues_are_refused(queues: Any) -> None:
    with pytest.raises(HoldfastError) as refused:
        access.check_queue_patterns(queues)
    assert (refused.value.code, refused.value.context["field"]) == ("validation_error", "queues")


def test_the_number_and_length_of_patterns_are_limited() -> None:
    for queues in (["a"] * (limits.TOKEN_PATTERNS_MAX + 1), ["a" * (limits.NAME_BYTES_MAX + 1)]):
        with pytest.raises(LimitExceeded):
            access.check_queue_patterns(queues)


@pytest.mark.parametrize("pattern", ["system:ledger", "admin:kim", "worker", "worker:", "wor*", ":x", "system:*"])
def test_wrong_patterns_of_actors_are_refused(pattern: str) -> None:
    with pytest.raises(HoldfastError) as refused:
        access.check_actor_patterns([pattern], AccessRole.ADMIN)
    assert refused.value.context["field"] == "act_as"


def test_a_reader_does_not_act_as_others() -> None:
    with pytest.raises(HoldfastError) as refused:
        access.check_actor_patterns(["*"], AccessRole.READER)
    assert refused.value.context["field"] == "act_as"


def test_validity_ends_at_its_time() -> None:
    assert access.is_valid_at(9, None, None)
    assert access.is_valid_at(9, None, 10)
    assert not access.is_valid_at(10, None, 10)
    assert not access.is_valid_at(9, 1, None)
