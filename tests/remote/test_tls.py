"""A remote ledger over TLS, on a real server process: certificates are checked, and redirects are not followed."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

import holdfast
from holdfast import HoldfastError, Ledger, Unavailable
from tests.remote.scripted import PAGE, Scripted
from tests.remote.test_answers import ANY
from tests.support.served_process import Serving, serving
from tests.support.waiting import wait_until

LARGE = "x" * 900_000


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def ca_file(authority: trustme.CA, tmp_path: Path) -> Path:
    file = tmp_path / "authority.pem"
    authority.cert_pem.write_to_path(file)
    return file


@pytest.fixture
def behind(tmp_path: Path) -> Iterator[Ledger]:
    with holdfast.open(f"sqlite:///{tmp_path}/ledger.db") as ledger:
        yield ledger


@pytest.fixture
def token(behind: Ledger) -> str:
    return behind.new_token("admin", "root", act_as=["*"]).text


def certificate_for(name: str, authority: trustme.CA, folder: Path) -> tuple[str, ...]:
    """Write a certificate for this name, and return the options that name it."""
    made = authority.issue_cert(name)
    cert, key = folder / "cert.pem", folder / "key.pem"
    key.touch(0o600)
    made.private_key_pem.write_to_path(key)
    for number, part in enumerate(made.cert_chain_pems):
        part.write_to_path(cert, append=number > 0)
    return "--tls-cert", str(cert), "--tls-key", str(key)


@pytest.fixture
def server(authority: trustme.CA, token: str, tmp_path: Path) -> Iterator[Serving]:
    with serving(tmp_path, *certificate_for("127.0.0.1", authority, tmp_path)) as server:
        assert server.url.startswith("https://")
        yield server


def test_jobs_are_done_over_tls(server: Serving, token: str, ca_file: Path, behind: Ledger) -> None:
    with holdfast.open(server.url, token=token, ca_file=ca_file) as ledger:
        waiter = ledger.waiter()
        wait_until(lambda: not waiter.wait(0.01), what="a wait that is under way")
        job = ledger.enqueue("index_page", {"text": LARGE})
        assert waiter.wait(20)
        waiter.close()
        [held] = ledger.claim("w-1", start=True)
        assert held.args == {"text": LARGE}
        ledger.complete(held.fence, LARGE)
        assert ledger.result(job, timeout=20) == LARGE
        assert [event.type for event in ledger.follow(timeout=0.1)] == ["enqueued", "claimed", "started", "succeeded"]
        lines: list[bytes] = []
        assert ledger.export(lines.append).events == 4
    assert behind.check(job.id) == []


def test_events_are_followed_over_tls(server: Serving, token: str, ca_file: Path, behind: Ledger) -> None:
    with holdfast.open(server.url, token=token, ca_file=ca_file) as ledger:
        events = ledger.follow()
        for _ in range(3):
            job = behind.enqueue("index_page")
            assert next(events).job_id == job.id
        events.close()


def test_a_certificate_of_an_unknown_authority_is_refused(server: Serving, token: str) -> None:
    with pytest.raises(Unavailable, match="certificate") as caught:
        holdfast.open(server.url, token=token)
    assert not caught.value.retryable


def test_a_certificate_of_another_authority_is_refused(server: Serving, token: str, tmp_path: Path) -> None:
    file = tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(file)
    with pytest.raises(Unavailable, match="certificate") as caught:
        holdfast.open(server.url, token=token, ca_file=file)
    assert not caught.value.retryable


def test_a_certificate_for_another_name_is_refused(authority: trustme.CA, token: str, ca_file: Path, tmp_path: Path) -> None:
    options = certificate_for("other.example", authority, tmp_path)
    with serving(tmp_path, *options) as server, pytest.raises(Unavailable, match="certificate") as caught:
        holdfast.open(server.url, token=token, ca_file=ca_file)
    assert not caught.value.retryable


def test_a_file_without_a_certificate_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "empty.pem"
    file.write_text("")
    with pytest.raises(HoldfastError) as caught:
        holdfast.open("https://127.0.0.1:1", token=ANY, ca_file=file)
    assert (caught.value.code, caught.value.context["field"]) == ("validation_error", "ca_file")


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(status: int) -> None:
    with Scripted() as elsewhere:
        away = (status, PAGE, "", {"Location": f"{elsewhere.url}/v1/now"})
        with Scripted(away) as script, holdfast.open(script.url, token=ANY) as ledger, pytest.raises(Unavailable) as caught:
            ledger.now()
        assert not caught.value.retryable
        assert elsewhere.asked == []
