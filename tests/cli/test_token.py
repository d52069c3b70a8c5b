"""`holdfast token`: a token is shown once, and only its owner can use it."""

import pytest

import holdfast
from tests.cli.conftest import Commands, Run


@pytest.fixture
def token(run: Run, store_url: str) -> Commands:
    return Commands(run, store_url, "token")


def test_a_token_is_created_and_works(token: Commands) -> None:
    made = token.ask(
        "new", "--role", "worker", "--name", "arm-1", "--queues", "crawl*, mail", "--act-as", "worker:arm-*", "--expires", "90d"
    )
    with holdfast.open(token.url) as ledger:
        found = ledger.find_token(made["text"])
    assert found is not None
    assert (found.id, found.role, found.name) == (made["token"]["id"], "worker", "arm-1")
    assert (found.queues, found.act_as) == (("crawl*", "mail"), ("worker:arm-*",))
    assert found.expires_at is not None and (found.expires_at - found.created_at).days == 90


def test_a_token_is_shown_once(token: Commands) -> None:
    shown = token("new", "--role", "admin", "--name", "kim").out
    [text] = [word for word in shown.split() if word.startswith("hft_")]
    with holdfast.open(token.url) as ledger:
        assert ledger.find_token(text) is not None
    listed = token("list")
    assert "kim" in listed.out and "valid" in listed.out
    for done in (listed, token("list", "--json"), token("revoke", "kim"), token("list")):
        assert done.code == 0
        assert text not in done.out + done.err and text[-49:-6] not in done.out + done.err
    assert "revoked" in done.out


def test_a_token_is_revoked_by_its_id_or_its_name(token: Commands) -> None:
    made = [token.ask("new", "--role", "reader", "--name", name)["token"]["id"] for name in ("a", "b", "b")]
    assert token.ask("revoke", "a")["token"]["id"] == made[0]
    twice = token("revoke", "b")
    assert (twice.code, "2 tokens are named 'b'" in twice.err) == (2, True)
    assert token.ask("revoke", made[1])["token"]["id"] == made[1]
    assert token.ask("revoke", "b")["token"]["id"] == made[2]
    assert "no valid token is named 'b'" in token("revoke", "b").err
    assert [record["revoked_at"] is not None for record in token.ask("list")["tokens"]] == [True] * 3


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["new", "--role", "owner", "--name", "kim"], 2, "--role"),
        (["new", "--role", "reader"], 2, "--name"),
        (["new", "--role", "reader", "--name", ""], 1, "name must be a printable text"),
        (["new", "--role", "reader", "--name", "kim", "--queues", "a,,b"], 1, "queues must be a printable text"),
        (["new", "--role", "reader", "--name", "kim", "--act-as", "*"], 1, "a reader changes nothing"),
        (["new", "--role", "admin", "--name", "kim", "--act-as", "root"], 1, "act_as"),
        (["new", "--role", "reader", "--name", "kim", "--expires", "soon"], 1, "expires"),
        (["revoke", "none"], 2, "no valid token is named 'none'"),
    ],
)
def test_wrong_arguments_are_reported(run: Run, arguments: list[str], code: int, message: str) -> None:
    here = Commands(run, "sqlite:///holdfast.db", "token")
    here("new", "--role", "reader", "--name", "first")
    done = here(*arguments)
    assert (done.code, message in done.err) == (code, True), done
    assert [record["name"] for record in here.ask("list")["tokens"]] == ["first"]


def test_an_empty_ledger_has_no_tokens(token: Commands) -> None:
    with holdfast.open(token.url):
        assert token("list").out == "There are no tokens.\n"
