"""Urls of ledgers: shown without their password, and passed to the driver unchanged."""

import re

import pytest

from holdfast.core.urls import hide_password, is_remote, is_server, parse_remote_url, parse_server_url, redact_urls, sqlite_file
from holdfast.errors import ValidationError
from holdfast.store.postgres.connections import read_url


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("sqlite:///holdfast.db", "sqlite:///holdfast.db"),
        ("sqlite:////a:b@c/d.db", "sqlite:////a:b@c/d.db"),
        ("postgresql://ann@db.example:5432/jobs?schema=a", "postgresql://ann@db.example:5432/jobs?schema=a"),
        ("postgresql:///jobs?host=/run/pg", "postgresql:///jobs?host=/run/pg"),
        ("postgresql://ann:x1@db.example/jobs", "postgresql://ann:…@db.example/jobs"),
        ("postgresql://ann:x1@y1@db.example/jobs", "postgresql://…"),
        ("postgresql://ann:x1/y1@db.example/jobs", "postgresql://…"),
        ("postgresql://ann:x1?y1@db.example/jobs", "postgresql://ann:…@db.example/jobs"),
        ("postgresql://ann:x1@[::1/jobs", "postgresql://…"),
        ("postgresql://h:5/jobs?user=a@b", "postgresql://h:5/jobs?user=a@b"),
        ("postgresql://:x1@h/jobs", "postgresql://:…@h/jobs"),
        ("postgresql:///jobs?user=ann&password=x1&schema=a", "postgresql:///jobs?user=ann&schema=a"),
        ("postgresql:///jobs?password=x1", "postgresql:///jobs"),
        ("postgresql:///jobs?passw%6frd=x1", "postgresql:///jobs"),
        ("postgresql:///jobs?PASSWORD=x1&sslpassword=y1", "postgresql:///jobs"),
        ("PostgreSQL://ann:x1@h/jobs?oauth_client_secret=x1&port=5&", "PostgreSQL://ann:…@h/jobs?port=5"),
        ("postgresql://ann:@h1,h2:5,[::1%25eth0]:6/jobs", "postgresql://ann:…@h1,h2:5,[::1%25eth0]:6/jobs"),
        ("postgresql://ann:x1@h/jobs?application_name=a@b", "postgresql://…"),
        ("mysql://ann:x1@h/jobs", "…"),
        ("sqlite:///a.db?key=x1", "sqlite:///a.db?…"),
    ],
)
def test_a_url_is_shown_without_its_password(url: str, shown: str) -> None:
    assert hide_password(url) == shown


@pytest.mark.parametrize(
    ("url", "left", "schema"),
    [
        ("postgresql://ann@h/jobs", "postgresql://ann@h/jobs", "holdfast"),
        ("postgresql:///jobs?host=/run/pg&schema=a&port=5", "postgresql:///jobs?host=/run/pg&port=5", "a"),
        ("postgresql:///jobs?schema=a", "postgresql:///jobs", "a"),
        ("postgresql:///?sch%65ma=a&options=-c%20x%3D1", "postgresql:///?options=-c%20x%3D1", "a"),
        ("PostgreSQL://ann:x?y@h/jobs?schema=a&ssl=true", "postgresql://ann:x?y@h/jobs?ssl=true", "a"),
        ("postgresql://:@h", "postgresql://:@h", "holdfast"),
    ],
)
def test_the_driver_gets_its_parameters_unchanged(url: str, left: str, schema: str) -> None:
    assert read_url(url)[:2] == (left, schema)


def test_the_listener_url_differs_only_in_its_host() -> None:
    read = read_url("postgresql://ann:x1@pool:6432/jobs?pooled=1&listen=db:5432&sslmode=require")
    assert read.conninfo == "postgresql://ann:x1@pool:6432/jobs?sslmode=require"
    assert (read.pooled, read.listen) == (True, "postgresql://ann:x1@db:5432/jobs?sslmode=require")
    assert read_url("postgresql://h/jobs")[3:] == (None, None)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("host=h password=x1", "starts with postgresql://"),
        ("postgresql://ann:x1 y1@h/jobs", "a blank or a character that cannot be printed"),
        ("postgresql://ann:x1\0@h/jobs", "a blank or a character that cannot be printed"),
        ("postgresql://ann:x1\udcff@h/jobs", "a blank or a character that cannot be printed"),
        ("postgresql://ann:x1%y1@h/jobs", "not followed by two hexadecimal digits"),
        ("postgresql://ann:x1%00@h/jobs", "not followed by two hexadecimal digits"),
        ("postgresql://ann:x1@y1@h/jobs", "an @ or a ? where none can be"),
        ("postgresql://ann:1/y1@h/jobs", "an @ or a ? where none can be"),
        ("postgresql://a?b@h/jobs", "an @ or a ? where none can be"),
        ("postgresql://ann:x1@y1?user=z1@h/jobs", "an @ or a ? where none can be"),
        ("postgresql://ann:x1/y1", "a host or a port that cannot be one"),
        ("postgresql://h:123456/jobs", "a host or a port that cannot be one"),
        ("postgresql://h/jobs?password=x1&y1", "name=value, joined by &"),
        ("postgresql://h/jobs?password=x1=y1", "name=value, joined by &"),
        ("postgresql://h/jobs?password=x1&y1=z1", "neither Holdfast (schema, lanes, pooled, listen) nor libpq knows"),
        ("postgresql://h/jobs?schema=A", "schema must be"),
        ("postgresql://h/jobs?lanes=x1", "lanes must be"),
        ("postgresql://h/jobs?pooled=x1", "pooled must be"),
        ("postgresql://h/jobs?listen=x1/y1", "listen must be"),
    ],
)
def test_an_ambiguous_url_is_refused_without_repeating_it(url: str, said: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(said)) as refused:
        read_url(url)
    assert not [piece for piece in ("x1", "y1", "z1") if piece in refused.value.message]


@pytest.mark.parametrize(
    ("url", "message", "shown"),
    [
        ("postgresql://ann:x%20y1@h/jobs", "tried x%20y1, then x y1", "tried …, then …"),
        ("postgresql://ann@h/jobs?sslpassword=xyz1", "tried xyz1", "tried …"),
        ("postgresql://ann:ann@h/jobs", "no such user: ann", "no such user: ann"),
        ("postgresql://ann:1@h/jobs", "port 1 failed", "port 1 failed"),
    ],
)
def test_a_drivers_message_is_shown_without_the_secrets_of_the_url(url: str, message: str, shown: str) -> None:
    assert parse_server_url(url).redacted(message) == shown


@pytest.mark.parametrize(
    ("words", "message", "shown"),
    [
        (["--db", "postgresql://ann:x1@h/a"], "no option postgresql://ann:x1@h/a", "no option postgresql://…"),
        (["--dbpostgresql://ann:x1@h/a"], "no option '--dbpostgresql://ann:x1@", "no option '--dbpostgresql://…"),
        (["postgresql://ann@h/a"], "postgresql://ann@h/a is there", "postgresql://ann@h/a is there"),
        (["postgresql://ann:x1", "a", "y1@h", "b"], "extra: a y1@h b at a", "extra: … … b at …"),
        (["postgresql://h", "a", "b"], "extra: a b", "extra: a b"),
        (["a"], "extra: a", "extra: a"),
    ],
)
def test_a_message_about_a_command_line_does_not_repeat_its_urls(words: list[str], message: str, shown: str) -> None:
    assert redact_urls(message, words) == shown


def test_a_scheme_may_be_typed_in_any_case() -> None:
    assert is_server("PostgreSQL://h/jobs")
    assert not is_server(" postgresql://h/jobs")
    assert [sqlite_file(url) for url in ("SQLite:////a/B.db", "sqlite:///b.db", "sqlite://b.db")] == ["/a/B.db", "b.db", ""]


# Servers of Holdfast


@pytest.mark.parametrize(
    ("url", "parts", "loopback"),
    [
        ("https://jobs.example.org", ("https", "jobs.example.org", 443, ""), False),
        ("HTTPS://jobs.example.org:8470/", ("https", "jobs.example.org", 8470, ""), False),
        ("https://example.org/team/jobs/", ("https", "example.org", 443, "/team/jobs"), False),
        ("http://127.0.0.1:8470", ("http", "127.0.0.1", 8470, ""), True),
        ("http://localhost", ("http", "localhost", 80, ""), True),
        ("http://[::1]:8470", ("http", "::1", 8470, ""), True),
        ("http://LocalHost", ("http", "localhost", 80, ""), True),
        ("http://127.9.9.9", ("http", "127.9.9.9", 80, ""), True),
        ("http://127.999.1.1", ("http", "127.999.1.1", 80, ""), False),
        ("http://127.1", ("http", "127.1", 80, ""), False),
        ("http://127.example.org", ("http", "127.example.org", 80, ""), False),
    ],
)
def test_the_url_of_a_server_has_a_host_and_a_path(url: str, parts: tuple[str, str, int, str], loopback: bool) -> None:
    found = parse_remote_url(url)
    assert (tuple(found), found.is_loopback, is_remote(url), hide_password(url)) == (parts, loopback, True, url)


@pytest.mark.parametrize(
    "url",
    [
        "https://ann:x1@jobs.example.org",
        "https://jobs.example.org/?token=x1",
        "https://jobs.example.org/#x1",
        "https://jobs.example.org:0",
        "https://jobs.example.org:70000",
        "https://jobs example.org",
        "https://",
    ],
)
def test_a_url_of_a_server_that_may_have_a_secret_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(ValidationError) as caught:
        parse_remote_url(url)
    assert "x1" not in str(caught.value)
    assert "x1" not in hide_password(url)


def test_a_message_does_not_repeat_the_password_in_the_url_of_a_server() -> None:
    assert redact_urls("no option https://ann:x1@h", ["https://ann:x1@h"]) == "no option https://…"
