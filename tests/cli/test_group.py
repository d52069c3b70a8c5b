"""`holdfast group`."""

import pytest

import holdfast
from tests.cli.conftest import Commands, Done, Run
from tests.contract.builders import held


class GroupCommands(Commands):
    def enqueue(self, group: str) -> Done:
        return self.run("job", "enqueue", "load", "--queue", "imports", "--group", group, "--db", self.url)


@pytest.fixture
def group(run: Run, store_url: str) -> GroupCommands:
    return GroupCommands(run, store_url, "group")


def test_a_group_is_added_joined_closed_cancelled_and_replayed(group: GroupCommands) -> None:
    added = group("add", "import-42", "--then", '{"kind": "publish", "queue": "web", "args": {"n": 1}}')
    assert (added.code, added.out) == (0, "Group import-42 is there: open, 0 of 0 left.\n")
    for _ in range(2):
        assert group.enqueue("import-42").code == 0
    assert group("close", "import-42").out == "Group import-42 is closed: 2 of 2 jobs left.\n"
    refused = group.enqueue("import-42")
    assert refused.code != 0
    assert "the group 'import-42' is closed" in refused.err
    with holdfast.open(group.url) as ledger:
        [job] = ledger.claim("w", ["imports"], start=True)
        ledger.fail(held(job), "no", retryable=False)
    shown = group("show", "import-42").out
    assert "publish in web" in shown
    assert f"{job.id}" in shown
    found = group.ask("get", "import-42")
    assert (found["group"]["failed"], found["group"]["live_by_status"]["queued"], found["dead_jobs"]) == (1, 1, [job.id])
    assert [one["id"] for one in group.ask("jobs", "import-42", "--status", "failed")["jobs"]] == [job.id]
    assert group("cancel", "import-42", "--reason", "wrong file").out == (
        "Group import-42 is cancelled: 1 job was told to end.\n"
    )
    waited = group("wait", "import-42")
    assert waited.code == 1
    assert "2 of 2 jobs of group import-42 did not succeed" in waited.err
    assert group.ask("replay", "import-42")["changed"] == 2
    late = group("wait", "import-42", "--timeout", "1ms")
    assert late.code == 1
    assert "is not done" in late.err
    with holdfast.open(group.url) as ledger:
        for job in ledger.claim("w", ["imports"], limit=2, start=True):
            ledger.complete(held(job), None)
    assert group("wait", "import-42").out == "Group import-42 is done, 2 of 2 succeeded.\n"
    assert "job 5" in group("show", "import-42").out
    listed = group("list")
    assert listed.out == "There are no groups that are not done.\n"
    assert "--all shows them" in listed.err
    assert "done, 2 of 2 succeeded" in group("list", "--all").out


def test_counts_of_one_and_a_group_that_waits_for_others(group: GroupCommands) -> None:
    group("add", "year", "--then", '{"kind": "publish"}')
    group("add", "month", "--then", '{"kind": "sum", "group": "year"}')
    refused = group("close", "year")
    assert refused.code == 1
    assert "the group 'year' waits for follow-up jobs of 1 group: 'month'" in refused.err
    assert refused.err.rstrip().endswith(" month.")
    group.enqueue("month")
    assert group("close", "month").out == "Group month is closed: 1 of 1 job left.\n"
    group("cancel", "month")
    assert group("replay", "month").out == "1 job of group month is replayed.\n"
    shown = group("list")
    assert "year" in shown.out
    assert "--all shows them" in shown.err
    assert "--all" not in group("list", "--all").err


def test_wrong_input_is_refused(group: GroupCommands) -> None:
    assert group("add", "a", "--then", '{"kind": "x", "group": "a"}').code == 1
    assert group("add", "a", "--then", "[]").code == 2
    assert group("list", "--all").out == "There are no groups.\n"
    assert group("get", "a").code == 1
