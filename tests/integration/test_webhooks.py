"""Webhooks against a real receiver, whose signatures are checked by an independent library."""

import base64
import logging
import os
import socket
import ssl
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
import trustme
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from holdfast import Ledger, SinkState
from holdfast.errors import HoldfastError
from holdfast.services import Relay, WebhookSink
from tests.support.receiver import SECRET, Receiver, status


def secret() -> str:
    return "whsec_" + base64.b64encode(os.urandom(32)).decode()


def webhook(url: str, **options: Any) -> WebhookSink:
    given: dict[str, Any] = {"secret": SECRET, "allow_private": True, "start": "beginning", "name": "hook"}
    return WebhookSink(url, **given | options)


def state(ledger: Ledger) -> SinkState:
    [found] = ledger.sinks()
    return found


def failure(ledger: Ledger, sink: WebhookSink) -> str:
    """The stored error of one failed delivery."""
    ledger.enqueue("work")
    with Relay(ledger, [sink]) as relay:
        assert relay.tick() == {"hook.failed": 1}
    kept = state(ledger).last_error
    assert kept is not None
    return kept


# Messages


def test_a_message_arrives_signed(on_sqlite: Ledger) -> None:
    job = on_sqlite.enqueue("index", {"url": "a secret"}, queue="crawl")
    with Receiver() as receiver:
        sink = webhook(receiver.url, headers={"Authorization": "Bearer abc"})
        assert Relay(on_sqlite, [sink]).tick() == {"hook.delivered": 1}
    [received] = receiver.received
    event = received.event()
    assert (event["id"], event["source"], event["data"]["queue"]) == (f"{job.id}-1", f"/holdfast/{on_sqlite.id}/jobs", "crawl")
    assert received.path == "/hooks?token=hidden"
    assert received.headers["content-type"] == "application/cloudevents+json"
    assert received.headers["authorization"] == "Bearer abc"
    assert received.headers["host"] == f"127.0.0.1:{receiver.port}"
    assert b"secret" not in received.body


def test_both_secrets_are_valid_during_a_rotation(on_sqlite: Ledger) -> None:
    old, new, strange = secret(), secret(), secret()
    on_sqlite.enqueue("work")
    with Receiver() as receiver:
        Relay(on_sqlite, [webhook(receiver.url, secret=f"{new} {old}")]).tick()
    [received] = receiver.received
    assert received.event(old) == received.event(new)
    assert len(received.headers["webhook-signature"].split(" ")) == 2
    with pytest.raises(WebhookVerificationError):
        received.event(strange)
    with pytest.raises(WebhookVerificationError):
        Webhook(new).verify(received.body.replace(b"queued", b"failed"), received.headers)


def test_a_message_that_is_sent_again_has_the_same_id(on_sqlite: Ledger) -> None:
    on_sqlite.enqueue("work")
    failing = [status(500), status(503), status(429), status(204)]
    with Receiver(lambda handler, number: failing[number - 1](handler, number)) as receiver:
        relay = Relay(on_sqlite, [webhook(receiver.url)])
        for expected in ("HTTP 500", "HTTP 503", "HTTP 429"):
            assert relay.tick() == {"hook.failed": 1}
            assert state(on_sqlite).last_error == expected
            on_sqlite.revive_sink("hook")
        assert relay.tick() == {"hook.delivered": 1}
    assert len(set(receiver.keys)) == 1
    assert len({received.body for received in receiver.received}) == 1
    assert all(received.event() for received in receiver.received)


# Answers


@pytest.mark.parametrize("code", [200, 201, 202, 204, 299])
def test_any_2xx_is_a_delivery(on_sqlite: Ledger, code: int) -> None:
    on_sqlite.enqueue("work")
    with Receiver(status(code)) as receiver:
        assert Relay(on_sqlite, [webhook(receiver.url)]).tick() == {"hook.delivered": 1}


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_redirects_are_never_followed(on_sqlite: Ledger, code: int) -> None:
    with Receiver() as inside, Receiver(status(code, Location=inside.url)) as receiver:
        assert failure(on_sqlite, webhook(receiver.url)) == f"HTTP {code}: redirects are not followed"
        assert len(receiver.received) == 1
        assert inside.received == []


def test_status_410_ends_the_sink(on_sqlite: Ledger, caplog: pytest.LogCaptureFixture) -> None:
    with Receiver(status(410)) as receiver, caplog.at_level(logging.ERROR):
        assert failure(on_sqlite, webhook(receiver.url)) == "HTTP 410"
    assert state(on_sqlite).dead_at is not None
    assert [record.getMessage() for record in caplog.records] == ["sink hook is dead, 1 failures in a row: HTTP 410"]


def test_a_receiver_that_does_not_answer_is_a_failure(on_sqlite: Ledger) -> None:
    def hang(handler: BaseHTTPRequestHandler, number: int) -> None:
        receiver.released.wait(60)

    with Receiver(hang) as receiver:
        assert failure(on_sqlite, webhook(receiver.url, timeout="100ms")) == "timed out"


def test_a_receiver_that_answers_too_slowly_is_a_failure(on_sqlite: Ledger) -> None:
    """Each byte arrives in time, but the whole answer does not."""

    def drip(handler: BaseHTTPRequestHandler, number: int) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Drip: ")
        try:
            while not receiver.released.wait(0.02):
                handler.wfile.write(b"x")
        except OSError:
            """The sink has closed the connection."""

    with Receiver(drip) as receiver:
        assert failure(on_sqlite, webhook(receiver.url, timeout="300ms")) == "timed out"


def test_only_the_beginning_of_an_endless_answer_is_read(on_sqlite: Ledger) -> None:
    written = 0

    def pour(handler: BaseHTTPRequestHandler, number: int) -> None:
        nonlocal written
        handler.send_response(200)
        handler.end_headers()
        try:
            while not receiver.released.is_set():
                written += handler.wfile.write(b"x" * 65_536)
        except OSError:
            """The sink has closed the connection."""

    on_sqlite.enqueue("work")
    with Receiver(pour) as receiver:
        assert Relay(on_sqlite, [webhook(receiver.url)]).tick() == {"hook.delivered": 1}
    # The buffers of the system took more than was read.
    assert written < 64 << 20


@pytest.mark.parametrize(
    "answer", [b"", b"nonsense\r\n\r\n", b"HTTP/1.1 abc\r\n\r\n", b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200]
)
def test_an_answer_that_is_not_http_is_a_failure(on_sqlite: Ledger, answer: bytes) -> None:
    def speak(handler: BaseHTTPRequestHandler, number: int) -> None:
        handler.wfile.write(answer)
        handler.close_connection = True

    with Receiver(speak) as receiver:
        assert failure(on_sqlite, webhook(receiver.url)).startswith(("the response is not valid HTTP", "connection failed"))


def test_a_missing_server_is_a_failure(on_sqlite: Ledger) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        kept = failure(on_sqlite, webhook(f"http://127.0.0.1:{taken.getsockname()[1]}/"))
    assert kept == "connection failed: Connection refused"


# Addresses


@pytest.mark.parametrize("host", ["127.0.0.1", "2130706433", "0x7f.1", "0177.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]"])
def test_a_private_receiver_is_not_called(on_sqlite: Ledger, host: str) -> None:
    with Receiver() as receiver:
        kept = failure(on_sqlite, webhook(f"http://{host}:{receiver.port}/", allow_private=False))
        assert kept.endswith("which is not a public address: set allow_private to call it")
        assert receiver.received == []


def test_a_host_name_is_checked_at_every_attempt(on_sqlite: Ledger) -> None:
    answers = iter([["192.0.2.7"], ["127.0.0.1"]])
    asked: list[str] = []

    def rebinding(host: str, port: int) -> list[str]:
        asked.append(host)
        return next(answers)

    with Receiver() as receiver:
        sink = webhook(f"http://rebind.example:{receiver.port}/", allow_private=False, resolver=rebinding)
        first = failure(on_sqlite, sink)
        on_sqlite.revive_sink("hook")
        second = failure(on_sqlite, sink)
        assert receiver.received == []
    assert (first, second) == (
        "rebind.example is at 192.0.2.7, which is not a public address: set allow_private to call it",
        "rebind.example is at 127.0.0.1, which is not a public address: set allow_private to call it",
    )
    assert asked == ["rebind.example"] * 2


def test_the_connection_goes_to_the_address_that_was_checked(on_sqlite: Ledger) -> None:
    """A name that resolves differently after the check is not resolved a second time."""
    on_sqlite.enqueue("work")
    asked: list[str] = []

    def resolver(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"] if len(asked) == 1 else ["192.0.2.7"]

    with Receiver() as receiver:
        sink = webhook(f"http://no-such-name.invalid:{receiver.port}/", resolver=resolver)
        assert Relay(on_sqlite, [sink]).tick() == {"hook.delivered": 1}
        assert receiver.received[0].headers["host"] == f"no-such-name.invalid:{receiver.port}"
    assert len(asked) == 1


def test_the_next_address_is_tried_if_one_does_not_answer(on_sqlite: Ledger) -> None:
    on_sqlite.enqueue("work")
    with Receiver() as receiver:
        sink = webhook(f"http://two.example:{receiver.port}/", resolver=lambda host, port: ["127.0.0.2", "127.0.0.1"])
        assert Relay(on_sqlite, [sink]).tick() == {"hook.delivered": 1}


# TLS


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def served_as(authority: trustme.CA, name: str) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(name).configure_cert(context)
    return context


def trusting(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


def by_tls(port: int, **options: Any) -> WebhookSink:
    return webhook(f"https://hooks.example:{port}/", resolver=lambda host, port: ["127.0.0.1"], **options)


def test_tls_uses_the_host_name_of_the_url(on_sqlite: Ledger, authority: trustme.CA) -> None:
    on_sqlite.enqueue("work")
    names: list[str | None] = []
    context = served_as(authority, "hooks.example")
    context.sni_callback = lambda line, name, ctx: names.append(name)
    with Receiver(tls=context) as receiver:
        assert Relay(on_sqlite, [by_tls(receiver.port, tls=trusting(authority))]).tick() == {"hook.delivered": 1}
        assert receiver.received[0].event()
    assert names == ["hooks.example"]


def test_a_certificate_for_another_name_is_refused(on_sqlite: Ledger, authority: trustme.CA) -> None:
    with Receiver(tls=served_as(authority, "other.example")) as receiver:
        kept = failure(on_sqlite, by_tls(receiver.port, tls=trusting(authority)))
        assert kept.startswith("TLS: Hostname mismatch")
        assert receiver.received == []


def test_a_certificate_of_an_unknown_authority_is_refused(on_sqlite: Ledger, authority: trustme.CA) -> None:
    with Receiver(tls=served_as(authority, "hooks.example")) as receiver:
        assert failure(on_sqlite, by_tls(receiver.port)).startswith("TLS: ")
        assert receiver.received == []


# Secrets


def test_secrets_are_not_shown(on_sqlite: Ledger, caplog: pytest.LogCaptureFixture) -> None:
    ours = [secret(), secret()]
    hidden = [*ours, *(text.removeprefix("whsec_") for text in ours), "Bearer xyz", "token=hidden", "/hooks"]
    said: list[str] = []
    on_sqlite.enqueue("work")
    with caplog.at_level(logging.DEBUG), Receiver(lambda handler, number: None) as receiver:
        for url in (
            receiver.url,
            receiver.url.replace("127.0.0.1", "no-such-name.invalid"),
            receiver.url.replace("http:", "https:"),
        ):
            sink = webhook(url, secret=" ".join(ours), headers={"Authorization": "Bearer xyz"}, timeout=5, attempts_max=1)
            said += [repr(sink), str(sink), repr(sink._signer), repr(sink._target)]
            with Relay(on_sqlite, [sink]) as relay:
                assert relay.tick() == {"hook.failed": 1}
            said += [repr(on_sqlite.sinks()), caplog.text]
            on_sqlite.revive_sink("hook")
    assert [text for text in hidden if text in "\n".join(said)] == []
    assert said[0] == "WebhookSink(name='hook', host='127.0.0.1')"


@pytest.mark.parametrize(
    "options",
    [
        {"secret": ""},
        {"secret": "hush"},
        {"secret": "whsec_hush!"},
        {"secret": "whsec_" + base64.b64encode(b"hush" * 5).decode()},
        {"secret": "whsec_" + base64.b64encode(b"hush" * 17).decode()},
        {"secret": f"{SECRET} hush"},
        {"secret": b"hush"},
        {"secret": " ".join([SECRET] * 6)},
        {"url": "ftp://hush.example/"},
        {"url": "file:///hush"},
        {"url": "https://user:hush@example.org/"},
        {"url": "https://"},
        {"url": "hush"},
        {"url": "https://example.org:99999/hush"},
        {"url": "https://example.org:0/hush"},
        {"url": "https://example.org/hu sh"},
        {"url": "https://example.org/hush\r\nX: y"},
        {"url": "https://exämple.org/hush"},
        {"url": "https://example.org/" + "hush" * 1_000},
        {"url": 7},
        {"headers": {"X-Key": "hush\r\nX: y"}},
        {"headers": {"X-Key": 7}},
        {"headers": {"X Key": "hush"}},
        {"headers": {"Host": "hush"}},
        {"headers": {"content-length": "1"}},
        {"headers": {"Webhook-Signature": "hush"}},
        {"timeout": 0},
        {"timeout": "1h"},
        {"allow_private": 1},
    ],
)
def test_wrong_settings_are_refused_without_repeating_them(options: dict[str, Any]) -> None:
    with pytest.raises(HoldfastError) as caught:
        webhook(**{"url": "https://example.org/"} | options)
    assert caught.value.code in ("validation_error", "limit_exceeded")
    assert "hush" not in repr(caught.value) + repr(caught.value.context)
