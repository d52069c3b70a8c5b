"""Persons sign in to a real server by a real provider, and every wrong way back from the provider is refused."""

import re
import socket
import threading
from collections.abc import Iterator
from http.cookies import SimpleCookie
from typing import Any

import pytest

from holdfast import Ledger
from holdfast.core import limits
from holdfast.core.access import AccessRole
from holdfast.server.oidc import OidcClient
from holdfast.server.pages import CSP
from holdfast.server.sign_in import SignIn
from holdfast.server.start import OidcOptions
from tests.support.provider import query_of, running_provider, sign_in_at
from tests.support.server import Answer, Client, RunningServer, running

ROLES = {"ops": AccessRole.OPERATOR, "shop": AccessRole.CLIENT}
SESSION = "holdfast"


@pytest.fixture(scope="module")
def provider() -> Iterator[str]:
    with running_provider() as address:
        yield address


def way_to(issuer: str, **options: Any) -> Any:
    """Return what makes the sign-in of a server."""
    chosen = OidcOptions(issuer=issuer, client_id="holdfast", roles=ROLES)
    return lambda url: SignIn(OidcClient(chosen, url, "a-secret-of-the-client", **options), "Example", url, secure=False)


@pytest.fixture
def served(ledger: Ledger, provider: str) -> Iterator[RunningServer]:
    with running(ledger, make_sign_in=way_to(provider)) as server:
        yield server


class Browser:
    """Keeps cookies, as a browser does for one server."""

    def __init__(self, served: RunningServer) -> None:
        self._client = served.anonymous()
        self._url = served.url
        self.cookies: dict[str, str] = {}

    def send(self, method: str, path: str, **headers: str) -> Answer:
        if self.cookies:
            headers["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        answer = self._client.send(method, path, None, raw=None, **headers)
        for text in answer.cookies:
            for name, morsel in SimpleCookie(text).items():
                self.cookies[name] = morsel.value
                if morsel["max-age"] == "0":
                    del self.cookies[name]
        return answer

    def get(self, path: str, **headers: str) -> Answer:
        return self.send("GET", path, **headers)

    def begin(self) -> str:
        """Return the address of the provider."""
        answer = self.get("/auth/login")
        assert answer.status == 302, answer.body
        return answer.headers["location"]

    def sign_in(self, who: str) -> Answer:
        return self.get(self.come_back(who))

    def come_back(self, who: str) -> str:
        """Return the path of the callback after a sign-in at the provider."""
        location = sign_in_at(self.begin(), who)
        assert location.startswith(f"{self._url}/auth/callback?"), location
        return location.removeprefix(self._url)


@pytest.mark.parametrize(("who", "role", "actor"), [("kim", "operator", "operator"), ("ann", "client", "client")])
def test_a_person_signs_in_and_is_the_actor(served: RunningServer, ledger: Ledger, who: str, role: str, actor: str) -> None:
    browser = Browser(served)
    page = browser.sign_in(who)
    assert page.status == 200 and page.headers["content-security-policy"] == CSP
    assert b"/js/signed-in.js" in page.body and page.headers["content-type"].startswith("text/html")
    assert set(browser.cookies) == {SESSION}, "the login cookie is deleted"
    me = browser.get("/v1/me").data
    assert (me["name"], me["role"], me["act_as"]) == (f"{who}@example.org", role, [])
    own = {"Sec_Fetch_Site": "same-origin", "Holdfast_Request": "1", "Content_Type": "application/json"}
    cookie = f"{SESSION}={browser.cookies[SESSION]}"
    made = served.anonymous().post("/v1/jobs", {"kind": "k"}, Cookie=cookie, **own)
    assert made.status == 201
    assert [event.actor for event in ledger.events()] == [f"{actor}:{who}@example.org"]


def test_the_cookies_are_strict_for_the_session_and_short_for_the_sign_in(served: RunningServer) -> None:
    browser = Browser(served)
    [login] = browser.get("/auth/login").cookies
    assert re.fullmatch(r"holdfast-login=[\w-]+; Path=/; HttpOnly; SameSite=Lax; Max-Age=600", login)
    session, deleted = browser.sign_in("kim").cookies
    assert re.fullmatch(r"holdfast=[\w-]{43}; Path=/; HttpOnly; SameSite=Strict", session)
    assert deleted == "holdfast-login=; Path=/; HttpOnly; SameSite=Lax; Max-Age=0"
    secure = served.server.sign_in._replace(secure=True) if served.server.sign_in else None
    assert secure is not None
    assert secure.set_cookie("x") == "__Host-holdfast-login=x; Path=/; HttpOnly; SameSite=Lax; Max-Age=600; Secure"


def refused(answer: Answer, status: int, *words: str) -> None:
    """Check that an answer is a page that says why and what to do, and begins no session."""
    assert answer.status == status, answer.body
    assert answer.headers["content-type"].startswith("text/html") and answer.headers["content-security-policy"] == CSP
    assert answer.cookies == ("holdfast-login=; Path=/; HttpOnly; SameSite=Lax; Max-Age=0",)
    assert b'href="/auth/login"' in answer.body
    assert all(word in answer.body.decode() for word in words), answer.body


def test_a_person_without_a_role_gets_a_page_that_says_what_to_do(served: RunningServer) -> None:
    browser = Browser(served)
    refused(browser.sign_in("eve"), 403, "No role is configured for this person.", "Ask an admin")
    assert browser.get("/v1/me").status == 401


def test_a_callback_that_does_not_belong_to_the_browser_is_refused(served: RunningServer) -> None:
    attacker, victim = Browser(served), Browser(served)
    path = attacker.come_back("kim")
    refused(Browser(served).get(path), 401, "not begun by this browser")
    victim.begin()
    refused(victim.get(path), 401, "not begun by this browser")
    refused(attacker.get(path.replace("state=", "state=x")), 401, "not begun by this browser")


def test_a_refusal_of_the_provider_is_shown_as_text(served: RunningServer) -> None:
    browser = Browser(served)
    state = query_of(browser.begin())["state"]
    page = browser.get(f"/auth/callback?error=%3Cscript%3E&state={state}")
    refused(page, 401, "refused the sign-in", "&lt;script&gt;")
    assert b"<script>" not in page.body


@pytest.mark.parametrize(
    "query",
    ["?next=https://evil.example", "?redirect_uri=https://evil.example/", "?return_to=//evil.example"],
)
def test_a_sign_in_goes_nowhere_else(served: RunningServer, query: str) -> None:
    assert served.anonymous().get(f"/auth/login{query}").status == 400
    browser = Browser(served)
    page = browser.get(f"{browser.come_back('kim')}&{query[1:]}")
    assert page.status == 200 and "location" not in page.headers
    assert set(re.findall(rb'(?:href|src)="([^"]+)"', page.body)) == {
        b"/",
        f"/assets/{served.server.pages.version}/css/base.css".encode(),
        f"/assets/{served.server.pages.version}/js/signed-in.js".encode(),
    }


def test_the_sign_in_begins_at_the_address_to_which_the_provider_sends_back(served: RunningServer) -> None:
    answer = served.anonymous().get("/auth/login", Host=f"localhost:{served.port}")
    assert (answer.status, answer.headers["location"], answer.cookies) == (302, f"{served.url}/auth/login", ())
    assert served.anonymous().get("/auth/login", Host="evil.example").status == 421


def test_parameters_that_a_provider_adds_are_ignored(served: RunningServer) -> None:
    browser = Browser(served)
    assert browser.get(browser.come_back("kim") + "&session_state=a&scope=openid&authuser=0").status == 200


def test_a_person_signs_out(served: RunningServer, provider: str) -> None:
    browser = Browser(served)
    browser.sign_in("kim")
    own = {"Sec_Fetch_Site": "same-origin", "Holdfast_Request": "1"}
    assert browser.send("POST", "/auth/logout").status == 403, "another site cannot sign out a person"
    assert browser.send("POST", "/auth/logout", **{**own, "Sec_Fetch_Site": "cross-site"}).status == 403
    old = dict(browser.cookies)
    done = browser.send("POST", "/auth/logout", **own)
    assert (done.status, done.data) == (200, {"provider": f"{provider}/oauth2/end_session?client_id=holdfast"})
    assert not browser.cookies
    browser.cookies = old
    assert browser.get("/v1/me").status == 401


def test_wrong_callbacks_from_one_address_are_limited(served: RunningServer) -> None:
    answers = [served.anonymous().get("/auth/callback?code=a&state=b") for _ in range(limits.HTTP_WRONG_TOKENS_MAX + 1)]
    assert {answer.status for answer in answers[:-1]} == {401}
    refused(answers[-1], 429)
    assert int(answers[-1].headers["retry-after"]) > 0


def test_a_server_without_a_provider_says_so(ledger: Ledger) -> None:
    with running(ledger) as served:
        assert served.anonymous().get("/auth/options").data == {"provider": None}
        for path in ("/auth/login", "/auth/callback?code=a&state=b"):
            answer = served.anonymous().get(path)
            assert (answer.status, answer.data["action"]) == (404, "Sign in with a token.")


def test_the_page_learns_the_name_of_the_provider(served: RunningServer) -> None:
    assert served.anonymous().get("/auth/options").data == {"provider": "Example"}


# A provider whose answers the test decides


def test_a_provider_that_does_not_answer_delays_no_other_request(ledger: Ledger) -> None:
    """More sign-ins than there are threads for them: the next one is refused at once, and all else is answered."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as silent:
        issuer = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with running(ledger, make_sign_in=way_to(issuer, answer_s=600)) as served:
            admin = served.client()
            answers: list[Answer] = []
            waiting = [
                threading.Thread(target=lambda: answers.append(served.anonymous().get("/auth/login")))
                for _ in range(limits.HTTP_SIGN_INS_MAX)
            ]
            for thread in waiting:
                thread.start()
            accepted = [silent.accept()[0] for _ in waiting]
            refused(served.anonymous().get("/auth/login"), 503)
            assert admin.get("/v1/me").status == admin.get("/v1/jobs").status == 200
            for connection in accepted:
                connection.close()
            for thread in waiting:
                thread.join(30)
            assert [answer.status for answer in answers] == [503] * limits.HTTP_SIGN_INS_MAX


def test_two_sign_ins_of_one_person_are_two_sessions(served: RunningServer, ledger: Ledger) -> None:
    first, second = Browser(served), Browser(served)
    first.sign_in("kim")
    second.sign_in("kim")
    ledger.end_session(first.cookies[SESSION])
    assert second.get("/v1/me").status == 200
    assert Client(served.port).get("/v1/me", Cookie=f"{SESSION}={first.cookies[SESSION]}").status == 401
