"""Tokens, browser sessions and login codes, on every store."""

import threading
from datetime import timedelta
from typing import Any

import apsw
import psycopg
import pytest

import holdfast
from holdfast import Actor, HoldfastError, Ledger, Role
from holdfast.core import access, limits
from holdfast.ledger import TokenRecord
from holdfast.services.pruner import PruneService
from holdfast.testing import ManualClock
from tests.support.near import near

HOUR, DAY = 3_600, 86_400


def code_of(refused: pytest.ExceptionInfo[HoldfastError]) -> tuple[str, Any]:
    return refused.value.code, refused.value.context.get("field")


def tokens_of(ledger: Ledger) -> list[TokenRecord]:
    """Return all tokens but the one that a remote ledger was opened with."""
    return [token for token in ledger.tokens() if token.name != "root"]


def test_a_new_token_is_found_by_its_text(ledger: Ledger, clock: ManualClock) -> None:
    made = ledger.new_token("worker", "arm-1", queues=["crawl*"], act_as=["worker:arm-*"], expires="90d", actor="kim")
    assert near(ledger).find_token(made.text) == made.token
    assert (made.token.role, made.token.name, made.token.queues, made.token.act_as) == (
        "worker",
        "arm-1",
        ("crawl*",),
        ("worker:arm-*",),
    )
    assert (made.token.created_at, made.token.created_by) == (clock.now(), "operator:kim")
    assert made.token.expires_at == clock.now() + timedelta(days=90)
    assert made.token.is_valid
    assert tokens_of(ledger) == [made.token]


def test_a_token_may_use_all_queues_and_act_only_as_itself_by_default(ledger: Ledger) -> None:
    made = ledger.new_token("client", "shop").token
    assert (made.queues, made.act_as, made.expires_at, made.last_used_at) == (("*",), (), None, None)


def test_neither_the_text_nor_the_secret_is_stored_or_shown(ledger: Ledger, store_url: str) -> None:
    made = ledger.new_token("admin", "kim")
    session, code = near(ledger).new_session(made.token.id), near(ledger).new_login_code(made.token.id)
    parts = access.parse_token(made.text)
    assert parts is not None
    stored = "".join(str(row) for table in ("tokens", "sessions", "login_codes") for row in rows(store_url, table))
    assert made.token.id in stored
    for secret in (parts.secret, session, code):
        assert secret not in stored
    assert made.text not in repr(made) and parts.secret not in repr(made)


def rows(url: str, table: str) -> list[Any]:
    if url.startswith("sqlite"):
        connection = apsw.Connection(url.removeprefix("sqlite:///"))
        try:
            return list(connection.execute(f"SELECT * FROM holdfast_{table}"))
        finally:
            connection.close()
    with psycopg.connect(url.partition("?")[0]) as server:
        return server.execute(f"SELECT * FROM {url.partition('schema=')[2] or 'holdfast'}.{table}").fetchall()


def test_wrong_texts_are_not_found(ledger: Ledger) -> None:
    made, other = ledger.new_token("admin", "kim"), ledger.new_token("admin", "ann")
    right, rival = access.parse_token(made.text), access.parse_token(other.text)
    assert right is not None and rival is not None
    mixed = access.TokenParts(right.id, rival.secret)
    unknown = access.TokenParts("a" * 12, right.secret)
    for text in (mixed.text, unknown.text, right.secret, made.text + " ", "", "hft_", "\0", "\ud800", None, 7, b"x"):
        assert near(ledger).find_token(text) is None, text  # type: ignore[arg-type]


def test_a_token_expires_by_the_ledgers_clock(ledger: Ledger, clock: ManualClock) -> None:
    made = ledger.new_token("reader", "kim", expires="1h")
    clock.advance(HOUR - 1)
    assert near(ledger).find_token(made.text) is not None
    clock.advance(1)
    assert near(ledger).find_token(made.text) is None
    assert [token.is_valid for token in tokens_of(ledger)] == [False]


def test_a_revoked_token_is_refused(ledger: Ledger, clock: ManualClock) -> None:
    made = ledger.new_token("reader", "kim")
    revoked = ledger.revoke_token(made.token.id, actor="ann")
    assert (revoked.revoked_at, revoked.revoked_by, revoked.is_valid) == (clock.now(), "operator:ann", False)
    assert near(ledger).find_token(made.text) is None
    clock.advance(5)
    assert ledger.revoke_token(made.token.id, actor="bob") == revoked
    with pytest.raises(HoldfastError) as refused:
        ledger.revoke_token("a" * 12)
    assert refused.value.code == "not_found"


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"role": "owner"}, "role"),
        ({"role": None}, "role"),
        ({"name": ""}, "name"),
        ({"name": 7}, "name"),
        ({"name": "a\nb"}, "name"),
        ({"queues": "crawl*"}, "queues"),
        ({"queues": []}, "queues"),
        ({"act_as": ["system:*"]}, "act_as"),
        ({"act_as": "*"}, "act_as"),
        ({"expires": "soon"}, "expires"),
        ({"expires": True}, "expires"),
        ({"actor": ""}, "actor"),
    ],
)
def test_wrong_arguments_make_no_token(ledger: Ledger, arguments: dict[str, Any], field: str) -> None:
    with pytest.raises(HoldfastError) as refused:
        ledger.new_token(**({"role": "client", "name": "kim"} | arguments))
    assert code_of(refused) == ("validation_error", field)
    assert tokens_of(ledger) == []


@pytest.mark.parametrize("expires", ["59s", 0, -1, "3661d"])
def test_the_time_of_a_token_is_limited(ledger: Ledger, expires: Any) -> None:
    with pytest.raises(HoldfastError) as refused:
        ledger.new_token("client", "kim", expires=expires)
    assert refused.value.code in ("limit_exceeded", "validation_error")
    assert tokens_of(ledger) == []


def test_tokens_come_in_pages(ledger: Ledger) -> None:
    there = [token.id for token in ledger.tokens()]
    ids = sorted([*there, *(ledger.new_token("client", "kim").token.id for _ in range(5))])
    first = ledger.tokens(limit=3)
    assert [token.id for token in [*first, *ledger.tokens(after=first[-1].id)]] == ids
    for wrong in ({"limit": 0}, {"limit": limits.PAGE_MAX + 1}, {"after": 7}):
        with pytest.raises(HoldfastError):
            ledger.tokens(**wrong)  # type: ignore[arg-type]


def test_the_use_of_a_token_is_recorded_once_an_hour(ledger: Ledger, clock: ManualClock) -> None:
    made = ledger.new_token("client", "kim")

    def last_used() -> Any:
        found = near(ledger).find_token(made.text)
        assert found is not None
        return found.last_used_at

    first = clock.now()
    near(ledger).touch_token(made.token.id)
    assert last_used() == first
    clock.advance(HOUR - 1)
    near(ledger).touch_token(made.token.id)
    assert last_used() == first
    clock.advance(1)
    near(ledger).touch_token(made.token.id)
    assert last_used() == clock.now()
    near(ledger).touch_token("unknown")


def test_tokens_that_a_server_made_for_itself_do_not_count(ledger: Ledger) -> None:
    assert not near(ledger).has_tokens()
    near(ledger).local_login_code()
    assert [token.created_by for token in ledger.tokens()] == ["system:ledger"]
    assert not near(ledger).has_tokens()
    made = ledger.new_token("client", "kim")
    assert near(ledger).has_tokens()
    ledger.revoke_token(made.token.id)
    assert not near(ledger).has_tokens()


def test_an_expired_token_does_not_count(ledger: Ledger, clock: ManualClock) -> None:
    ledger.new_token("client", "kim", expires="1h")
    clock.advance(HOUR)
    assert not near(ledger).has_tokens()


# Sessions


def test_a_session_has_the_rights_of_its_token(ledger: Ledger, clock: ManualClock) -> None:
    token = ledger.new_token("operator", "kim", queues=["mail"], act_as=["worker:*"]).token
    found = near(ledger).find_session(near(ledger).new_session(token.id))
    assert found is not None
    assert (found.role, found.name, found.queues, found.act_as, found.token_id) == (
        "operator",
        "kim",
        ("mail",),
        ("worker:*",),
        token.id,
    )
    assert (found.created_at, found.expires_at) == (clock.now(), clock.now() + timedelta(hours=12))


def test_a_session_without_requests_ends_after_12_hours(ledger: Ledger, clock: ManualClock) -> None:
    secret = near(ledger).new_session(ledger.new_token("reader", "kim").token.id)
    clock.advance(12 * HOUR - 1)
    assert near(ledger).find_session(secret) is not None
    clock.advance(1)
    assert near(ledger).find_session(secret) is None
    near(ledger).touch_session(secret)
    assert near(ledger).find_session(secret) is None, "a session that is over stays so"


def test_requests_move_the_end_of_a_session_up_to_7_days(ledger: Ledger, clock: ManualClock) -> None:
    began = clock.now()
    secret = near(ledger).new_session(ledger.new_token("reader", "kim").token.id)
    for _ in range(7 * 24 // 6 - 1):
        clock.advance(6 * HOUR)
        near(ledger).touch_session(secret)
    found = near(ledger).find_session(secret)
    assert found is not None and found.expires_at == began + timedelta(days=7)
    clock.advance(6 * HOUR)
    assert near(ledger).find_session(secret) is None


def test_the_use_of_a_session_is_recorded_once_a_minute(ledger: Ledger, clock: ManualClock) -> None:
    secret = near(ledger).new_session(ledger.new_token("reader", "kim").token.id)
    seen = []
    for _ in range(5):
        clock.advance(20)
        near(ledger).touch_session(secret)
        found = near(ledger).find_session(secret)
        assert found is not None
        seen.append((clock.now() - found.seen_at).total_seconds())
    assert seen == [20, 40, 0, 20, 40]


def test_a_session_ends_with_its_token(ledger: Ledger, clock: ManualClock) -> None:
    revoked, expiring = ledger.new_token("reader", "kim").token, ledger.new_token("reader", "kim", expires="1h").token
    secrets = [near(ledger).new_session(revoked.id), near(ledger).new_session(expiring.id)]
    ledger.revoke_token(revoked.id)
    assert [near(ledger).find_session(secret) is None for secret in secrets] == [True, False]
    clock.advance(HOUR)
    assert near(ledger).find_session(secrets[1]) is None
    for token in (revoked, expiring):
        with pytest.raises(HoldfastError) as refused:
            near(ledger).new_session(token.id)
        assert refused.value.code == "not_found"


def test_a_session_can_be_ended(ledger: Ledger) -> None:
    token = ledger.new_token("reader", "kim").token
    first, second = near(ledger).new_session(token.id), near(ledger).new_session(token.id)
    near(ledger).end_session(first)
    near(ledger).end_session(first)
    near(ledger).end_session("no secret")
    assert near(ledger).find_session(first) is None
    assert near(ledger).find_session(second) is not None


def test_a_person_has_a_session_without_a_token(ledger: Ledger) -> None:
    found = near(ledger).find_session(near(ledger).new_person_session("kim@example.org", "operator", queues=["mail*"]))
    assert found is not None
    wrongs: list[dict[str, Any]] = [{"name": ""}, {"role": "owner"}, {"queues": []}]
    assert (found.name, found.role, found.queues, found.token_id) == ("kim@example.org", "operator", ("mail*",), None)
    for wrong in wrongs:
        with pytest.raises(HoldfastError) as refused:
            near(ledger).new_person_session(**({"name": "kim", "role": "reader"} | wrong))
        assert refused.value.code == "validation_error"


def test_one_owner_has_a_limited_number_of_sessions(ledger: Ledger, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SESSIONS_PER_OWNER_MAX", 3)
    token = ledger.new_token("reader", "kim").token
    other = [
        near(ledger).new_session(ledger.new_token("reader", "kim").token.id),
        near(ledger).new_person_session("kim", "reader"),
    ]
    secrets = []
    for _ in range(5):
        clock.advance(1)
        secrets.append(near(ledger).new_session(token.id))
    assert [near(ledger).find_session(secret) is not None for secret in secrets] == [False, False, True, True, True]
    assert all(near(ledger).find_session(secret) for secret in other)


@pytest.mark.parametrize("secret", ["", "x", "a" * 43, "a" * 44, "\0" * 43, "\ud800" * 43, None, 7, b"a" * 43])
def test_wrong_secrets_find_no_session(ledger: Ledger, secret: Any) -> None:
    assert near(ledger).find_session(secret) is None
    assert near(ledger).log_in(secret) is None
    near(ledger).touch_session(secret)
    near(ledger).end_session(secret)


# Login codes


def test_a_login_code_begins_one_session(ledger: Ledger) -> None:
    token = ledger.new_token("admin", "kim").token
    code = near(ledger).new_login_code(token.id)
    secret = near(ledger).log_in(code)
    assert secret is not None
    found = near(ledger).find_session(secret)
    assert found is not None and (found.token_id, found.role) == (token.id, "admin")
    assert near(ledger).log_in(code) is None
    assert near(ledger).find_session(code) is None and near(ledger).log_in(secret) is None


def test_a_login_code_is_valid_for_10_minutes(ledger: Ledger, clock: ManualClock) -> None:
    token = ledger.new_token("admin", "kim").token
    early, late = near(ledger).new_login_code(token.id), near(ledger).new_login_code(token.id)
    clock.advance(599)
    assert near(ledger).log_in(early) is not None
    clock.advance(1)
    assert near(ledger).log_in(late) is None


def test_a_login_code_ends_with_its_token(ledger: Ledger) -> None:
    token = ledger.new_token("admin", "kim").token
    code = near(ledger).new_login_code(token.id)
    ledger.revoke_token(token.id)
    assert near(ledger).log_in(code) is None
    with pytest.raises(HoldfastError) as refused:
        near(ledger).new_login_code(token.id)
    assert refused.value.code == "not_found"


def test_of_many_who_use_one_code_at_once_one_succeeds(ledger: Ledger, store_url: str, clock: ManualClock) -> None:
    code = near(ledger).new_login_code(ledger.new_token("admin", "kim").token.id)
    answers: list[str | None] = []
    gate = threading.Barrier(6)

    def use() -> None:
        with holdfast.open(store_url, clock=clock) as own:
            gate.wait()
            answers.append(own.log_in(code))

    threads = [threading.Thread(target=use) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 6
    assert sum(answer is not None for answer in answers) == 1


def test_the_local_login_uses_one_admin_token(ledger: Ledger) -> None:
    codes = [near(ledger).local_login_code() for _ in range(2)]
    [token] = tokens_of(ledger)
    assert (token.role, token.name) == ("admin", "local")
    assert all(near(ledger).log_in(code) for code in codes)
    ledger.revoke_token(token.id)
    secret = near(ledger).log_in(near(ledger).local_login_code())
    assert secret is not None
    found = near(ledger).find_session(secret)
    assert found is not None and found.token_id != token.id


# Retention


def test_sessions_and_codes_that_are_over_are_pruned(ledger: Ledger, store_url: str, clock: ManualClock) -> None:
    token = ledger.new_token("admin", "kim").token
    near(ledger).new_login_code(token.id)
    near(ledger).new_session(token.id)
    clock.advance(12 * HOUR + 1)
    fresh = near(ledger).new_session(token.id)
    assert ledger.prune(sessions_before=clock.now(), batch=10) == {"sessions": 2}
    assert ledger.prune(sessions_before=clock.now(), batch=10) == {"sessions": 0}
    assert near(ledger).find_session(fresh) is not None
    assert (len(rows(store_url, "sessions")), len(rows(store_url, "login_codes"))) == (1, 0)
    assert tokens_of(ledger) == [token]


def test_workers_prune_sessions_a_day_after_their_end(ledger: Ledger, clock: ManualClock) -> None:
    near(ledger).new_session(ledger.new_token("admin", "kim").token.id)
    prune = PruneService(ledger, "a")
    clock.advance(12 * HOUR + DAY)
    assert prune.tick()["sessions"] == 0
    clock.advance(1)
    assert prune.tick()["sessions"] == 1


def test_access_makes_no_events(ledger: Ledger) -> None:
    ledger.revoke_token(ledger.new_token("admin", "kim", actor=Actor(Role.OPERATOR, "ann")).token.id)
    assert ledger.events() == []
