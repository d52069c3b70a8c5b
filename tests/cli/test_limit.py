"""`holdfast limit`, `holdfast queue set`, and the options of flow control."""

import pytest

import holdfast
from holdfast.cli.limit import format_waiting
from tests.cli.conftest import Commands, Run


@pytest.fixture
def cli(run: Run, store_url: str) -> Commands:
    return Commands(run, store_url)


def test_a_limit_is_set_listed_shown_and_unset(cli: Commands) -> None:
    assert cli("limit", "set", "openai", "--concurrent", "20", "--rate", "600/1m", "--by", "args.tenant").out == (
        "Limit openai: 20 at once; 600/1m, up to 10 at once after a pause, for each args.tenant.\n"
    )
    assert "numbers of its own for acme" in cli("limit", "set", "openai", "--for", "acme", "--concurrent", "50").out
    listed = cli("limit", "list").out.splitlines()
    assert [line.split()[:5] for line in listed] == [
        ["limit", "concurrent", "rate", "burst", "by"],
        ["openai", "20", "600/1m", "10", "args.tenant"],
    ]
    cli("job", "enqueue", "ask", "--queue", "chat", "--args", '{"tenant": "b"}', "--limit", "openai=3")
    with holdfast.open(cli.url) as ledger:
        assert len(ledger.claim("w", ["chat"])) == 1
    shown = cli("limit", "show", "openai").out
    assert "its own: 50 at once" in shown and "3 of 20" in shown
    one = cli("limit", "get", "openai", "--for", "b").out
    assert "3 of 20" in one and "its own" not in one
    assert "No job has drawn on it for none yet." in cli("limit", "get", "openai", "--for", "none").out
    page = cli.ask("limit", "get", "openai", "--limit", "1")
    assert ([key["key"] for key in page["keys"]], page["next_after"]) == (["acme"], "acme")
    assert [key["used"] for key in cli.ask("limit", "get", "openai", "--after", "acme")["keys"]] == [3]
    assert cli("limit", "unset", "openai", "--for", "acme").out.startswith(
        "For acme, the numbers of limit openai apply again: 20"
    )
    assert cli.ask("limit", "unset", "openai") == {"unset": "openai", "key": None}
    assert cli("limit", "list").out == "There are no limits.\n"


def test_a_limit_that_is_replaced_says_what_is_gone(cli: Commands) -> None:
    first = ("--concurrent", "20", "--rate", "600/m", "--by", "args.tenant")
    cli("migrate")
    assert cli("limit", "set", "openai", *first).err == ""
    assert cli("limit", "set", "openai", *first).err == ""
    done = cli("limit", "set", "openai", "--rate", "1200/1m")
    assert done.out == "Limit openai: 1200/1m, up to 20 at once after a pause.\n"
    assert done.err == (
        "It was there before, and is replaced: concurrent 20 and by args.tenant are gone; rate was 600/1m. "
        "Jobs that wait keep the keys that they have.\n"
    )
    done = cli("limit", "set", "openai", "--rate", "1200/1m", "--burst", "5")
    assert done.err == "It was there before, and is replaced: burst was 20.\n"
    assert cli("limit", "set", "openai", "--concurrent", "5").err.endswith("replaced: rate 1200/1m is gone.\n")
    done = cli("limit", "set", "openai", "--for", "acme", "--concurrent", "1")
    assert "limit openai has no keys: it was set without by" in done.err
    assert "openai --by args.NAME" in done.err


def test_jobs_that_wait_for_a_limit_are_counted(cli: Commands) -> None:
    cli("limit", "set", "api", "--concurrent", "1")
    for _ in range(3):
        cli("job", "enqueue", "k", "--queue", "q", "--limit", "api")
    with holdfast.open(cli.url) as ledger:
        assert len(ledger.claim("w", ["q"], limit=3)) == 1
    head, row = cli("limit", "get", "api").out.splitlines()[2:]
    assert head.split() == ["key", "in", "use", "may", "start", "now", "waiting", "oldest", "numbers"]
    assert row.split()[:7] == ["all", "jobs", "1", "of", "1", "–", "2"]
    [key] = cli.ask("limit", "get", "api")["keys"]
    assert (key["waiting"], key["waiting_since"] is None) == (2, False)
    assert format_waiting(1_000) == "1,000 or more"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("limit", "set", "api"), 2),
        (("limit", "set", "api", "--for", "a"), 2),
        (("limit", "set", "api", "--concurrent", "-1"), 2),
        (("limit", "set", "api", "--rate", "600"), 1),
        (("limit", "set", "api", "--concurrent", "1", "--for", "a"), 1),
        (("limit", "get", "api"), 1),
        (("limit", "unset", "api"), 1),
        (("queue", "set", "q", "--weight", "a"), 2),
        (("queue", "set", "q", "--weight", "a=1", "--weight", "a=2"), 2),
        (("job", "enqueue", "k", "--queue", "q", "--limit", "api=x"), 2),
        (("job", "enqueue", "k", "--queue", "q", "--limit", "api"), 1),
        (("job", "enqueue", "k", "--queue", "q", "--requires", "worker:w"), 1),
    ],
)
def test_bad_values_are_refused(cli: Commands, arguments: tuple[str, ...], code: int) -> None:
    cli("migrate")
    done = cli("--json", *arguments)
    assert (done.code, done.answer["success"]) == (code, False)
    with holdfast.open(cli.url) as ledger:
        assert (ledger.limits(), ledger.queue_settings(), ledger.list()) == ([], [], [])


def test_a_queue_is_set_and_listed_with_its_settings(cli: Commands) -> None:
    made = cli("queue", "set", "crawl", "--weight", "acme=3", "--weight", "a=b=2")
    assert made.out == "Queue crawl has the weights acme=3, a=b=2.\n"
    [queue] = cli.ask("queue", "list")["queues"]
    assert (queue["name"], queue["weights"]) == ("crawl", {"acme": 3, "a=b": 2})
    assert made.out in cli("queue", "list").out
    changed = cli("queue", "set", "crawl", "--weight", "acme=5")
    assert changed.err == "It had settings before, which are replaced: weight a=b 2 is gone; weight acme was 3.\n"
    assert cli("queue", "set", "crawl").out == "Queue crawl has no settings.\n"
    assert cli.ask("queue", "list")["queues"] == []


def test_a_queue_is_shown(cli: Commands) -> None:
    cli("queue", "set", "crawl", "--weight", "acme=3")
    shown = cli("queue", "get", "crawl").out
    assert shown == "Queue crawl is open, and has the weights acme=3.\nIt has no jobs.\n"
    cli("job", "enqueue", "k", "--queue", "crawl")
    cli("queue", "pause", "crawl")
    first, oldest, queued = cli("queue", "get", "crawl").out.splitlines()
    assert first.startswith("Queue crawl is paused ")
    assert (oldest.split()[0], queued.split()) == ("oldest", ["queued", "1"])
    found = cli.ask("queue", "get", "crawl")["queue"]
    assert (found["counts"]["queued"], found["weights"]) == (1, {"acme": 3})
    assert cli("queue", "get", "other").out == "Queue other is open, and has no settings.\nIt has no jobs.\n"


def test_a_job_has_the_options_and_shows_them(cli: Commands) -> None:
    cli("limit", "set", "api", "--concurrent", "5")
    options = ("--limit", "api=3", "--partition", "t", "--requires", "gpu", "--requires", "zone:berlin")
    worker = ("--for-worker", "robot-7")
    job = cli.ask("job", "enqueue", "k", "--queue", "q", *options, *worker)["job"]
    assert (job["limits"], job["partition"], job["requires"], job["for_worker"]) == (
        {"api": 3},
        "t",
        ["gpu", "zone:berlin"],
        "robot-7",
    )
    shown = {" ".join(line.split()) for line in cli("job", "get", job["id"]).out.splitlines()}
    assert {"limits api=3", "partition t", "requires gpu, zone:berlin", "for worker robot-7"} <= shown
    cli("schedule", "add", "often", "k", "--queue", "q", "--every", "1h", *options, *worker)
    again = cli.ask("schedule", "run", "often")["job"]
    assert [again[name] for name in ("limits", "partition", "requires", "for_worker")] == [
        job[name] for name in ("limits", "partition", "requires", "for_worker")
    ]


def test_an_agent_takes_tasks_with_its_labels(cli: Commands) -> None:
    for _ in range(3):
        cli("job", "enqueue", "k", "--queue", "q", "--requires", "gpu")
    ada = ("--agent", "ada")
    assert "behind a limit or for other agents" in cli("resume", *ada).out
    assert cli.ask("resume", *ada, "--label", "gpu", "--label", "x")["task"]["id"] == 1
    assert cli("task", "start", "2", *ada).code == 1
    assert cli.ask("task", "start", "2", *ada, "--label", "gpu")["task"]["id"] == 2
    assert cli.ask("task", "run", "--agent", "bob", "--label", "gpu", "--once", "--", "true")["tasks"]["succeeded"] == 1


def test_the_labels_of_workers_are_listed(cli: Commands) -> None:
    with holdfast.open(cli.url) as ledger:
        ledger.sign_in("plain", body={"queues": ["q"]})
        assert "labels" not in cli("worker", "list").out
        ledger.sign_in("arm", body={"queues": ["q"], "labels": ["gripper", "zone:berlin"]})
    head, arm, plain = cli("worker", "list").out.splitlines()
    assert (head.split()[-1], arm.endswith("gripper, zone:berlin"), plain.split()[-1]) == ("labels", True, "–")
