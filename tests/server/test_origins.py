"""Host names, forged requests and pages of other origins."""

import pytest

from holdfast.core.hosts import AllowedHosts
from holdfast.errors import HoldfastError
from holdfast.server.origins import SiteOrigins, check_origins, is_json

LOCAL = SiteOrigins(AllowedHosts("127.0.0.1", []), "http")
PUBLIC = SiteOrigins(
    AllowedHosts("10.0.0.7", ["jobs.example.org"]), "https", "https://jobs.example.org", frozenset({"https://app.example.org"})
)
OWN = {
    "host": "jobs.example.org",
    "origin": "https://jobs.example.org",
    "sec-fetch-site": "same-origin",
    "content-type": "application/json",
    "content-length": "2",
    "holdfast-request": "1",
}


def refusal(site: SiteOrigins, headers: dict[str, str], method: str = "POST") -> int | None:
    try:
        site.check_host(headers)
        site.check_forgery(method, headers)
    except HoldfastError as error:
        return error.http_status
    return None


def without(*names: str) -> dict[str, str]:
    return {name: value for name, value in OWN.items() if name not in names}


@pytest.mark.parametrize("host", ["127.0.0.1:8470", "localhost:8470", "[::1]:8470"])
def test_a_loopback_name_is_the_servers(host: str) -> None:
    LOCAL.check_host({"host": host})


@pytest.mark.parametrize("host", [None, "", "evil.example", "jobs.example.org.evil.example"])
def test_another_name_is_misdirected(host: str | None) -> None:
    for site in (LOCAL, PUBLIC):
        with pytest.raises(HoldfastError) as refused:
            site.check_host({} if host is None else {"host": host})
        assert (refused.value.code, refused.value.http_status) == ("misdirected", 421)


def test_a_page_of_the_server_may_change_something() -> None:
    assert refusal(PUBLIC, OWN) is None
    assert refusal(PUBLIC, without("sec-fetch-site")) is None
    assert refusal(PUBLIC, without("origin")) is None
    assert refusal(LOCAL, OWN | {"host": "localhost:8470", "origin": "http://localhost:8470"}) is None
    assert refusal(PUBLIC, without("content-type", "content-length"), "DELETE") is None


FORGED = [
    {"sec-fetch-site": "cross-site", "origin": "https://evil.example"},
    {"sec-fetch-site": "same-site", "origin": "https://other.example.org"},
    {"origin": "null"},
    {"origin": "https://evil.example"},
    {"origin": "http://jobs.example.org"},
    {"origin": "https://jobs.example.org:8443"},
    {"origin": "https://app.example.org"},
    {"content-type": "text/plain"},
    {"content-type": "application/x-www-form-urlencoded"},
    {"content-type": "application/json; charset=utf-7"},
    {"content-type": ""},
    {"holdfast-request": "0"},
    {"holdfast-request": ""},
    {"content-length": "0", "transfer-encoding": "chunked", "content-type": "text/plain"},
]


@pytest.mark.parametrize("change", FORGED, ids=str)
def test_a_forged_request_is_refused(change: dict[str, str]) -> None:
    assert refusal(PUBLIC, OWN | change) == 403
    assert refusal(PUBLIC, {name: value for name, value in (OWN | change).items() if name != "sec-fetch-site"}) == 403


@pytest.mark.parametrize("site", ["none", "", "same-site", "cross-site", "Same-Origin "])
def test_only_the_same_origin_may_change_something(site: str) -> None:
    assert refusal(PUBLIC, OWN | {"sec-fetch-site": site}) == 403


def test_a_request_without_origin_and_site_is_refused() -> None:
    assert refusal(PUBLIC, without("origin", "sec-fetch-site")) == 403


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
def test_requests_that_change_nothing_pass(method: str) -> None:
    assert refusal(PUBLIC, {"host": "jobs.example.org", "sec-fetch-site": "cross-site"}, method) is None


def test_a_request_with_a_token_may_come_from_allowed_pages() -> None:
    PUBLIC.check_origin({"host": "jobs.example.org"})
    for origin in ("https://jobs.example.org", "https://app.example.org"):
        PUBLIC.check_origin({"host": "jobs.example.org", "origin": origin})
    for origin in ("https://evil.example", "null", "https://app.example.org.evil.example", "HTTPS://APP.example.org/"):
        with pytest.raises(HoldfastError) as refused:
            PUBLIC.check_origin({"host": "jobs.example.org", "origin": origin})
        assert refused.value.http_status == 403


def test_pages_of_other_origins_may_read_nothing_by_default() -> None:
    assert LOCAL.cors_headers("GET", {"origin": "https://app.example.org"}) == {}


def test_an_allowed_page_may_read_answers_without_cookies() -> None:
    asked = {"origin": "https://app.example.org"}
    plain = PUBLIC.cors_headers("GET", asked)
    assert plain["Access-Control-Allow-Origin"] == "https://app.example.org"
    assert "Access-Control-Allow-Methods" not in plain
    preflight = PUBLIC.cors_headers("OPTIONS", asked | {"access-control-request-method": "POST"})
    assert "Authorization" in preflight["Access-Control-Allow-Headers"]
    for headers in (plain, preflight):
        assert headers["Vary"] == "Origin"
        assert "Access-Control-Allow-Credentials" not in headers
    assert PUBLIC.cors_headers("GET", {"origin": "https://evil.example"}) == {"Vary": "Origin"}
    assert PUBLIC.cors_headers("GET", {}) == {"Vary": "Origin"}


def test_origins_are_checked_when_the_server_starts() -> None:
    assert check_origins(["https://a.example", "http://localhost:3000"]) == {"https://a.example", "http://localhost:3000"}
    for wrong in (
        "*",
        "a.example",
        "https://",
        "https://a.example/",
        "HTTPS://a.example",
        "null",
        "ftp://a.example",
        "https://a@b",
    ):
        with pytest.raises(HoldfastError) as refused:
            check_origins([wrong])
        assert refused.value.context["field"] == "allow_origin"


@pytest.mark.parametrize("kind", ["application/json", "Application/JSON; charset=UTF-8", 'application/json;charset="utf-8"'])
def test_json_is_known_by_its_type(kind: str) -> None:
    assert is_json({"content-type": kind})
