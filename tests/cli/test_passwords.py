"""No output of Holdfast shows a password of a url, also if the url is malformed."""

import logging
import traceback
from pathlib import Path

import pytest

import holdfast
from holdfast.errors import HoldfastError
from tests.cli.conftest import Done, Run

PIECES = ("Zq7", "Xw9")
"""Every password below is made of these texts, and no other output contains them."""
PASSWORDS = [
    "Zq7Xw9",
    "Zq7%Xw9",
    "Zq7%zzXw9",
    "Zq7%00Xw9",
    "Zq7%20Xw9",
    "Zq7 Xw9",
    " Zq7Xw9",
    "Zq7\tXw9",
    "Zq7\nXw9",
    "Zq7@Xw9",
    "Zq7/Xw9",
    "12/Zq7Xw9",
    "Zq7:Xw9",
    "Zq7?Xw9",
    "Zq7?Xw9=1",
    "Zq7#Xw9",
    "Zq7&Xw9",
    "Zq7=Xw9",
    "Zq7,Xw9:1",
    "[Zq7]Xw9",
    "Zq7'Xw9",
    'Zq7"Xw9',
    "Zq7\\Xw9",
    "Zq7@Xw9/a?b=c&d",
    "Zq7@Xw9?user=a",
    "éZq7Xw9",
    "Zq7\udcffXw9",
]
URLS = [
    "postgresql://ann:{}@127.0.0.1:1/jobs",
    "PostgreSQL://ann:{}@127.0.0.1:1/jobs",
    "postgres://:{}@127.0.0.1:1/jobs?schema=a",
    "postgresql://ann:{}@127.0.0.1:1,127.0.0.1:2/jobs?connect_timeout=2",
    "postgresql://ann:{}@[::1]:1/jobs",
    "postgresql://ann:{}@[::1/jobs",
    "postgresql://ann:{}@127.0.0.1:1/jobs?shema=a",
    "postgresql://ann:{}@127.0.0.1:1/jobs?sslmode=none",
    "postgresql:///jobs?host=127.0.0.1&port=1&password={}",
    "postgresql:///jobs?host=127.0.0.1&port=1&password={}&lanes=3",
    "postgresql://127.0.0.1:1/jobs?sslpassword={}&PASSWORD=x",
    "postgresql+psycopg://ann:{}@127.0.0.1:1/jobs",
    "postgresql:ann:{}@127.0.0.1:1/jobs",
    " postgresql://ann:{}@127.0.0.1:1/jobs",
    "//ann:{}@127.0.0.1:1/jobs",
    "ann:{}@127.0.0.1:1/jobs",
    "host=127.0.0.1 port=1 user=ann password={}",
    "host=127.0.0.1 port=1 user=ann password='{}'",
    "mysql://ann:{}@127.0.0.1:1/jobs",
    "sqlite://ann:{}@127.0.0.1/jobs",
    "sqlite:///none/jobs.db?key={}",
]
COMMANDS = [
    ("doctor",),
    ("doctor", "--json"),
    ("job", "list"),
    ("job", "list", "--json"),
    ("job", "enqueue", "index", "--queue", "default", "--json"),
    ("migrate",),
    ("sweep",),
    ("top", "--once"),
    ("explain", "1"),
    ("verify", "--job", "1"),
    ("events", "tail"),
    ("events", "export"),
    ("supervise", "--name", "a", "--", "true"),
    ("key", "new", "--role", "server", "--name", "a", "--out", "a.key"),
    ("task", "heartbeat", "--id", "1", "--agent", "a", "--request-id", "r"),
    ("mcp",),
    ("demo", "--jobs", "1"),
    ("worker", "run", "shop:app"),
    ("worker", "run", "shop:app", "--json"),
]
"""Each ends at once if the ledger is out of reach. The ledger is appended as --db, or given in another way."""
AT_IMPORT = """
import os
import holdfast

app = holdfast.App()
ledger = holdfast.open(os.environ["SHOP_URL"])
"""


def check_hidden(*texts: str) -> None:
    assert not [piece for piece in PIECES for text in texts if piece in text], texts


def check_failed(done: Done) -> None:
    assert done.code != 0
    assert "Traceback" not in done.err
    check_hidden(done.out, done.err)


@pytest.mark.parametrize("password", PASSWORDS, ids=ascii)
def test_an_error_and_its_traceback_do_not_show_a_password(
    password: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for url in URLS:
        with pytest.raises(HoldfastError) as refused:
            holdfast.open(url.format(password))
        error = refused.value
        check_hidden(str(error), repr(error), repr(error.context), "".join(traceback.format_exception(error)))
        assert error.__cause__ is None or "psycopg" not in type(error.__cause__).__module__
        assert error.__context__ is None


@pytest.mark.parametrize("password", PASSWORDS, ids=ascii)
def test_no_command_shows_a_password_from_any_source(password: str, run: Run, folder: Path) -> None:
    url = URLS[0].format(password)
    if "\n" not in password and "\udcff" not in password:
        (folder / "holdfast.toml").write_text(f"url = '''{url}'''\nkeys = []\n")
        check_failed(run("doctor"))
        (folder / "holdfast.toml").write_text(f'url = "{url}"\n')  # TOML's own escapes, which may be wrong
        check_failed(run("job", "list", "--json"))
        (folder / "holdfast.toml").unlink()
    check_failed(run("doctor", "--json", HOLDFAST_URL=url))
    check_failed(run("doctor", "--db", URLS[1].format(password)))


@pytest.mark.parametrize("url", URLS)
def test_no_form_of_a_url_shows_its_password(url: str, run: Run) -> None:
    check_failed(run("doctor", "--db", url.format("Zq7%Xw9"), "--json"))
    check_failed(run("job", "list", "--db", url.format("Zq7@Xw9")))


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_no_command_shows_a_password_of_any_url_form(words: tuple[str, ...], run: Run) -> None:
    where = len(words) - 2 if "--" in words else len(words)
    for url in (URLS[1].format("Zq7@Xw9"), URLS[0].format("Zq7Xw9")):
        check_failed(run(*words[:where], "--db", url, *words[where:]))
    if words[0] not in ("demo", "worker"):  # these do not read the environment, or use the ledger of the app
        check_failed(run(*words, HOLDFAST_URL=URLS[0].format("Zq7%Xw9")))


def test_the_traceback_of_a_module_does_not_show_a_password(run: Run, folder: Path) -> None:
    (folder / "eager.py").write_text(AT_IMPORT)
    for password in PASSWORDS[:4]:
        done = run("worker", "run", "eager:app", SHOP_URL=URLS[0].format(password))
        assert "Traceback" in done.err
        check_hidden(done.out, done.err)


@pytest.mark.parametrize(
    "words",
    [
        ["doctor", "--db", "postgresql://ann:Zq7", "Xw9@127.0.0.1/jobs"],
        ["doctor", "--db=postgresql://ann:Zq7", "Xw9", "Xw9@127.0.0.1/jobs", "--json"],
        ["job", "show", "--db", "postgresql://ann:Zq7", "Xw9@127.0.0.1/jobs"],
        ["doctor", "--dbpostgresql://ann:Zq7Xw9@127.0.0.1/jobs"],
        ["doctor", "postgresql://ann:Zq7'\\Xw9@127.0.0.1/jobs"],
        ["PostgreSQL://ann:Zq7Xw9@127.0.0.1/jobs"],
        ["job", "list", "--limit", "postgresql://ann:Zq7Xw9@127.0.0.1/" + 200 * "a"],
        ["job", "list", "--since", f"postgresql:///jobs?password={100 * 'Zq7'}"],
        ["mcp", "--idle-limit", "postgresql://ann:Zq7Xw9@127.0.0.1/jobs", "--json"],
    ],
)
def test_a_url_that_is_cut_or_misplaced_is_not_repeated(words: list[str], run: Run) -> None:
    check_failed(run(*words))


def test_a_log_does_not_show_a_password(caplog: pytest.LogCaptureFixture, postgres_url: str) -> None:
    """On a server that accepts every password."""
    before, _, place = postgres_url.partition("@")
    app = holdfast.App(f"{before}:Zq7%20Xw9@{place}?schema=logged&sslpassword=Zq7")
    app.handler("note")(lambda: None)
    with caplog.at_level(logging.DEBUG):
        worker = app.worker()
        worker.stop()
        worker.run()
    assert any("schema=logged" in str(vars(record)) for record in caplog.records)
    check_hidden(*(str(vars(record)) for record in caplog.records))
