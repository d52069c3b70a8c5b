"""Callers are found by token or cookie on a real ledger, remembered for 5 s, and kept within their limits."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import HoldfastError, Ledger
from holdfast.core.access import AccessRole
from holdfast.core.hosts import AllowedHosts
from holdfast.server.access import AccessRules, CallerLimits, Principal
from holdfast.server.credentials import Credential, Principals, read_cookie, read_credential, set_cookie
from holdfast.server.origins import SiteOrigins
from holdfast.server.redact import Redaction
from holdfast.testing import ManualClock
from tests.support.server import running

LOCAL = SiteOrigins(AllowedHosts("127.0.0.1", []), "http")
HOST = {"host": "127.0.0.1:8470"}
OWN_PAGE = {"sec_fetch_site": "same-origin", "holdfast_request": "1"}


class Caller:
    """The access rules of a ledger, called as the server does it."""

    def __init__(self, ledger: Ledger, clock: ManualClock, **options: Any) -> None:
        self.rules = AccessRules(ledger, LOCAL, secure=False, monotonic=clock.monotonic, **options)
        self.lookups = 0

    def __call__(self, method: str = "GET", peer: str = "192.0.2.1", **headers: str) -> Principal:
        given = HOST | {name.replace("_", "-"): value for name, value in headers.items()}
        return asyncio.run(self.rules.identify(given, peer, method, self._call))

    async def _call(self, work: Callable[[], Principal | None]) -> Principal | None:
        self.lookups += 1
        return work()


@pytest.fixture
def call(ledger: Ledger, clock: ManualClock) -> Caller:
    return Caller(ledger, clock)


def code_of(work: Callable[[], Any]) -> str:
    with pytest.raises(HoldfastError) as refused:
        work()
    return refused.value.code


def test_a_token_is_a_caller(ledger: Ledger, call: Caller) -> None:
    made = ledger.new_token("worker", "arm-1", queues=["crawl*"], act_as=["worker:arm-*"])
    found = call(authorization=f"Bearer {made.text}")
    assert (found.name, found.role, found.queues, found.act_as) == ("arm-1", "worker", ("crawl*",), ("worker:arm-*",))
    assert (found.token_id, found.session, found.is_anonymous) == (made.token.id, None, False)
    assert call(authorization=f"bearer  {made.text} ") == found


WRONG = ["", "Bearer", "Bearer hft_x", "Basic a2lt", "hft_x", "Bearer \ud800", "Token {text}", "Bearer {text}x"]


@pytest.mark.parametrize("given", WRONG, ids=ascii)
def test_anything_else_is_anonymous(ledger: Ledger, call: Caller, given: str) -> None:
    text = ledger.new_token("admin", "kim").text
    assert call(authorization=given.replace("{text}", text)).is_anonymous


def test_a_token_is_not_taken_from_a_cookie_nor_a_session_from_a_header(ledger: Ledger, call: Caller) -> None:
    made = ledger.new_token("admin", "kim")
    secret = ledger.new_session(made.token.id)
    assert call(cookie=f"holdfast={made.text}").is_anonymous
    assert call(authorization=f"Bearer {secret}").is_anonymous
    assert call(authorization="Bearer wrong", cookie=f"holdfast={secret}").is_anonymous, "a wrong token does not fall back"


def test_a_cookie_is_a_caller(ledger: Ledger, call: Caller) -> None:
    made = ledger.new_token("operator", "kim")
    secret = ledger.new_session(made.token.id)
    found = call(cookie=f"a=b; holdfast={secret}")
    assert (found.name, found.role, found.token_id, found.session) == ("kim", "operator", made.token.id, secret)
    assert call("POST", cookie=f"holdfast={secret}", **OWN_PAGE) == found
    assert code_of(lambda: call("POST", cookie=f"holdfast={secret}")) == "forbidden"
    foreign = OWN_PAGE | {"sec_fetch_site": "cross-site"}
    assert code_of(lambda: call("POST", cookie=f"holdfast={secret}", **foreign)) == "forbidden"


def test_a_foreign_page_with_a_token_is_refused(ledger: Ledger, call: Caller) -> None:
    text = ledger.new_token("admin", "kim").text
    assert code_of(lambda: call(authorization=f"Bearer {text}", origin="https://evil.example")) == "forbidden"
    assert code_of(lambda: call("POST", origin="https://evil.example")) == "forbidden"


def test_a_caller_is_remembered_for_5_seconds(ledger: Ledger, call: Caller, clock: ManualClock) -> None:
    made = ledger.new_token("admin", "kim")
    bearer = f"Bearer {made.text}"
    assert [call(authorization=bearer).name for _ in range(3)] == ["kim"] * 3
    assert call.lookups == 1
    ledger.revoke_token(made.token.id)
    clock.advance(4)
    assert call(authorization=bearer).name == "kim"
    clock.advance(1)
    assert call(authorization=bearer).is_anonymous


def test_a_revocation_by_this_server_takes_effect_at_once(ledger: Ledger, call: Caller) -> None:
    made = ledger.new_token("admin", "kim")
    assert call(authorization=f"Bearer {made.text}").name == "kim"
    ledger.revoke_token(made.token.id)
    call.rules.forget_tokens()
    assert call(authorization=f"Bearer {made.text}").is_anonymous


def test_an_ended_session_is_not_remembered(ledger: Ledger, call: Caller) -> None:
    secret = ledger.new_session(ledger.new_token("admin", "kim").token.id)
    assert call(cookie=f"holdfast={secret}").name == "kim"
    ledger.end_session(secret)
    assert "Max-Age=0" in call.rules.session_cookie("")
    assert call(cookie=f"holdfast={secret}").is_anonymous


def test_wrong_tokens_of_one_address_are_limited(ledger: Ledger, call: Caller, clock: ManualClock) -> None:
    made = ledger.new_token("admin", "kim")
    known = f"Bearer {ledger.new_token('reader', 'ann').text}"
    call(authorization=known)
    for _ in range(20):
        assert call(authorization="Bearer wrong").is_anonymous
    assert code_of(lambda: call(authorization="Bearer wrong")) == "too_many_requests"
    assert code_of(lambda: call(authorization=f"Bearer {made.text}")) == "too_many_requests"
    assert call(authorization="Bearer wrong", peer="192.0.2.2").is_anonymous
    clock.advance(10)
    assert call(authorization=known).name == "ann", "a token that was valid before is looked up"
    assert call().is_anonymous
    assert call(cookie="holdfast=old").is_anonymous, "a person with an old cookie can still begin a session"
    clock.advance(60)
    assert call(authorization=f"Bearer {made.text}").name == "kim"


def test_wrong_codes_count_too(call: Caller) -> None:
    for _ in range(20):
        call.rules.note_wrong("192.0.2.1")
    assert code_of(lambda: call.rules.check_wrong("192.0.2.1")) == "too_many_requests"


def test_wrong_codes_and_tokens_of_a_sign_in_are_limited(ledger: Ledger) -> None:
    code = ledger.new_login_code(ledger.new_token("admin", "kim").token.id)
    with running(ledger) as served:
        given = [{"code": "a" * 43}, {"token": "hft_wrong"}] * 10
        assert {served.anonymous().post("/v1/session", body).status for body in given} == {401}
        blocked = served.anonymous().post("/v1/session", {"code": code})
        assert (blocked.status, blocked.data["code"], blocked.headers["retry-after"]) == (429, "too_many_requests", "60")
    assert ledger.log_in(code) is not None, "the code was not used"


def test_the_last_use_is_recorded_by_a_tick(ledger: Ledger, call: Caller, clock: ManualClock) -> None:
    made = ledger.new_token("admin", "kim")
    secret = ledger.new_session(made.token.id)
    clock.advance(120)
    call(authorization=f"Bearer {made.text}")
    call(cookie=f"holdfast={secret}")
    assert ledger.tokens()[0].last_used_at is None
    assert call.rules.tick() == 2
    assert ledger.tokens()[0].last_used_at == clock.now()
    found = ledger.find_session(secret)
    assert found is not None and found.seen_at == clock.now()
    assert call.rules.tick() == 0


def test_requests_of_a_caller_are_limited(ledger: Ledger, clock: ManualClock) -> None:
    call = Caller(ledger, clock, caller_limits=CallerLimits(requests_max=2, rate=1, burst=4))
    caller, other = Principal("kim", AccessRole.READER), Principal("ann", AccessRole.READER)
    with call.rules.under_way(caller), call.rules.under_way(caller):
        with pytest.raises(HoldfastError) as refused, call.rules.under_way(caller):
            pass
        assert refused.value.http_status == 429
        with call.rules.under_way(other):
            pass
    with call.rules.under_way(caller):
        pass
    with pytest.raises(HoldfastError) as refused, call.rules.under_way(caller):
        pass
    assert refused.value.context["retry_after_s"] == 1


def test_contents_are_hidden_from_some_roles(ledger: Ledger, clock: ManualClock) -> None:
    hidden = Redaction(["*.password"])
    keeper = Caller(ledger, clock, redaction=hidden).rules
    assert [keeper.redaction(Principal("kim", role)) is hidden for role in AccessRole] == [True, True, False, False, False]


# Cookies


def test_a_cookie_needs_tls_where_there_is_tls() -> None:
    assert set_cookie("abc", secure=True) == "__Host-holdfast=abc; Path=/; HttpOnly; SameSite=Strict; Secure"
    assert set_cookie("abc", secure=False) == "holdfast=abc; Path=/; HttpOnly; SameSite=Strict"
    assert read_credential({"cookie": "__Host-holdfast=abc"}, secure=True) == Credential("session", "abc")
    assert read_credential({"cookie": "holdfast=abc"}, secure=True) is None


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("", None),
        ("holdfast=a", "a"),
        ("x=1;holdfast=a;y=2", "a"),
        ("holdfast=a; holdfast=a", "a"),
        ("holdfast=a; holdfast=b", None),
        ("xholdfast=a", None),
        ("holdfast", ""),
        ("; ;=; holdfast=a=b", "a=b"),
    ],
)
def test_a_cookie_is_read(header: str, value: str | None) -> None:
    assert read_cookie(header, "holdfast") == value


def test_the_number_of_remembered_callers_is_limited(ledger: Ledger, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.core.limits.HTTP_PRINCIPALS_MAX", 2)
    principals = Principals(ledger, clock.monotonic)
    given = [Credential("token", ledger.new_token("reader", "kim").text) for _ in range(3)]
    for credential in given:
        assert principals.find(credential) is not None
    assert [principals.remembered(credential) is not None for credential in given] == [False, True, True]
    assert principals.tick() == 2


def test_the_text_of_a_credential_has_no_secret() -> None:
    assert "abc" not in repr(Credential("token", "abc"))
