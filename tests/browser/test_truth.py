"""Each number, list and sentence of each page is what the ledger says, on a ledger with jobs in every state."""

import re
from collections import Counter
from typing import Any

import pytest
from playwright.sync_api import expect

from holdfast import Job
from holdfast.core.formatting import format_error
from tests.browser.conftest import Whole

ROWS = """(label) => [...document.querySelectorAll(`table[aria-label="${label}"] tbody tr`)].map((row) => Object.fromEntries(
    [...row.cells].map((cell) => [cell.dataset.label ?? "", cell.innerText.trim()])))"""
ENDED = ["succeeded", "failed", "cancelled", "dead_lettered"]
STATUSES = ["queued", "claimed", "running", "stalled", *ENDED]


def tenths(value: float) -> str:
    return f"{round(value, 1):g}"


class Shown(Whole):
    """What a page shows, and what the ledger says."""

    def rows(self, label: str) -> list[dict[str, str]]:
        found: list[dict[str, str]] = self.page.evaluate(ROWS, label)
        return found

    def column(self, label: str, name: str) -> list[str]:
        return [row[name] for row in self.rows(label)]

    def answer(self) -> str:
        return self.page.locator("main .answer").inner_text()

    def chips(self) -> dict[str, int]:
        texts = [re.sub(r"\s+", " ", text).strip() for text in self.page.locator("main a.chip:has(.n)").all_inner_texts()]
        return {name: int(n) for name, _, n in (text.rpartition(" ") for text in texts)}

    def jobs(self) -> list[Job]:
        return list(self.ledger.list(limit=1_000))

    def letters_left(self) -> list[Job]:
        """Dead letters that are neither discarded nor replayed, told from their own rows and those of their replays."""
        replayed = {job.replay_of for job in self.jobs() if job.replay_of and job.status not in ("failed", "cancelled")}
        return [job for job in self.ledger.dead_letters() if job.id not in replayed]

    def check_jobs(self, label: str, expected: list[Job]) -> None:
        """Compare a list of jobs, column by column."""
        found = self.rows(label)
        assert [row["Id"] for row in found] == [str(job.id) for job in expected]
        for row, job in zip(found, expected, strict=True):
            phase = f" · {job.phase}" if job.phase and job.phase not in ("executing", job.status) else ""
            limit = f"/{job.policy.attempts_max}" if job.policy else ""
            assert row["Kind"] == job.kind
            assert row["Queue"] == job.queue
            assert row["Status"] == job.status.replace("_", " ") + phase
            assert row["Attempt"] == f"{job.attempt}{limit}"
            assert row["Worker"] == (job.owner or job.last_owner or "")
            assert row["Why"] == self.why(job), job.id

    def why(self, job: Job) -> str:
        if job.status == "queued":
            explained = self.ledger.explain(job.id).why_not_running
            assert explained is not None
            return explained.words
        if job.last_error is not None and job.status != "succeeded":
            return format_error(job.last_error, 200)
        progress = [f"stage {job.stage}" if job.stage else "", "" if job.progress is None else f"progress {job.progress}"]
        reason = {"stalled": job.stall_reason, "cancelled": job.cancel_reason}.get(job.status, ", ".join(filter(None, progress)))
        return str(reason or "")


@pytest.fixture(scope="module")
def shown(whole: Whole) -> Shown:
    return Shown(whole.ledger, whole.server, whole.page)


def test_the_sample_has_every_state(shown: Shown) -> None:
    assert {job.status for job in shown.jobs()} == set(STATUSES)
    assert {job.phase for job in shown.jobs() if job.phase} == {"executing", "assisted", "aborting"}
    assert {item.reason for item in shown.ledger.attention()} == {
        "assist_requested", "assisted", "escalation", "compensation_failed", "sink_dead"
    }  # fmt: skip


def test_the_overview_and_the_navigation(shown: Shown) -> None:
    shown.open("/")
    counts, overview = Counter(job.status.value for job in shown.jobs()), shown.ledger.overview()
    names = ("waiting", "running", "stalled", "failed", "dead letters")
    tiles = {name: shown.page.locator(f"[data-tile='{name}']") for name in names}
    values = {name: int(tile.locator(".value").inner_text()) for name, tile in tiles.items()}
    assert values == {
        "waiting": counts["queued"],
        "running": counts["running"],
        "stalled": counts["stalled"],
        "failed": counts["failed"],
        "dead letters": len(shown.letters_left()),
    }
    assert overview.rates is not None
    expect(tiles["waiting"]).to_contain_text(f"{tenths(overview.rates.enqueued)} a minute come in, last 5 min")
    expect(tiles["running"]).to_contain_text(f"{tenths(overview.rates.succeeded)} a minute done, last 5 min")
    expect(tiles["stalled"]).to_contain_text(f"{counts['claimed']} job claimed")
    expect(tiles["failed"]).to_contain_text(f"{counts['failed'] + counts['dead_lettered']} in 24 h")
    waiting = {(item.job_id, item.sink) for item in shown.ledger.attention()}
    expect(shown.page.locator("#attention-count")).to_have_text(str(len(waiting)))
    expect(shown.page.locator("#letters-count")).to_have_text(str(len(shown.letters_left())))
    warnings = [one for one in overview.findings if one.severity == "warning"]
    assert shown.answer().startswith(f"The doctor warns of {len(warnings)} things: {warnings[0].words} · ")
    said = shown.page.locator(".findings li").all_inner_texts()
    for finding in overview.findings:
        is_said = any(finding.words in text for text in said)
        assert is_said == (finding.severity != "well"), finding
    assert said[-1] == f"{sum(one.severity == 'well' for one in overview.findings)} checks well."
    found = shown.column("Queues with the most waiting jobs", "Queue")
    assert found == [queue.name for queue in overview.queues]
    silent = shown.page.locator(".bars a").all_inner_texts()
    assert silent == [str(len(shown.ledger.workers()))]


@pytest.mark.parametrize("status", ["", *STATUSES])
def test_the_jobs_of_each_status(shown: Shown, status: str) -> None:
    shown.open(f"/jobs?status={status}" if status else "/jobs")
    expected = shown.ledger.list(status=status or None, order="newest")
    expect(shown.page.locator("table tbody tr")).to_have_count(len(expected))
    shown.check_jobs("Jobs", expected)
    counts = Counter(job.status.value for job in shown.jobs())
    assert shown.chips() == {"All": len(shown.jobs())} | {name.replace("_", " "): counts[name] for name in STATUSES}


def test_the_numbers_of_filtered_jobs(shown: Shown) -> None:
    shown.open("/jobs?queue=web&kind=fetch&status=dead_lettered")
    expected = shown.ledger.list(queue="web", kind="fetch", status="dead_lettered", order="newest")
    shown.check_jobs("Jobs", expected)
    assert shown.chips()["dead lettered"] == len(expected)
    shown.open("/jobs?owner=arm-7")
    shown.check_jobs("Jobs", shown.ledger.list(owner="arm-7", order="newest"))
    assert shown.chips() == {}


def test_each_job_says_what_its_explanation_says(shown: Shown) -> None:
    chosen = {(job.status, job.phase, job.queue): job for job in shown.jobs()}
    for job in chosen.values():
        shown.open(f"/jobs/{job.id}")
        explained = shown.ledger.explain(job.id)
        assert shown.answer() == explained.text
        assert f"{job.kind} #{job.id}" in shown.page.locator("h1").inner_text()
        assert shown.column("What happens next", "What") == [step.what for step in explained.next]
        offered = shown.page.locator("main h2:has-text('Commands') + div code").all_inner_texts()
        assert offered[2:] == [one.command for one in explained.commands]


def test_the_queues(shown: Shown) -> None:
    shown.open("/queues")
    queues = shown.ledger.queues()
    paused = sum(queue.paused_at is not None for queue in queues)
    waiting = sum(queue.counts.get("queued", 0) for queue in queues)
    text = f"{waiting} jobs wait in {len(queues)} queues. {paused} queue paused. Rates are of the last 5 min."
    assert shown.answer() == text
    left = Counter(job.queue for job in shown.letters_left())
    for row, queue in zip(shown.rows("Queues"), queues, strict=True):
        jobs = Counter(job.status.value for job in shown.jobs() if job.queue == queue.name)
        assert queue.rates is not None
        assert (row["Queue"], row["In/min"], row["Done/min"]) == (
            queue.name, tenths(queue.rates.enqueued), tenths(queue.rates.succeeded)
        )  # fmt: skip
        assert row["State"].startswith("paused by kim" if queue.paused_at else "open")
        columns = {"Waiting": "queued", "Running": "running", "Stalled": "stalled", "Failed": "failed", "Done": "succeeded"}
        assert [row[name] for name in columns] == [str(jobs[status]) for status in columns.values()]
        assert row["Dead letters"] == str(left[queue.name])


@pytest.mark.parametrize("queue", ["crawl", "web"])
def test_one_queue(shown: Shown, queue: str) -> None:
    shown.open(f"/queues/{queue}")
    jobs = [job for job in shown.jobs() if job.queue == queue]
    assert shown.chips() == Counter(job.status.value.replace("_", " ") for job in jobs)
    shown.check_jobs("Newest jobs of this queue", jobs[::-1][:20])


def test_the_kinds(shown: Shown) -> None:
    shown.open("/kinds")
    kinds, left = shown.ledger.kinds(), Counter(job.kind for job in shown.letters_left())
    unserved = [kind for kind in kinds if not kind.workers and {"queued", "claimed", "running", "stalled"} & kind.counts.keys()]
    text = f"{len(kinds)} kinds of jobs. Rates are of the last 5 min. {len(unserved)} kinds with jobs that no worker serves."
    assert shown.answer() == text
    for row, kind in zip(shown.rows("Kinds"), kinds, strict=True):
        jobs = Counter(job.status.value for job in shown.jobs() if job.kind == kind.kind)
        assert row["Kind"] == kind.kind
        columns = {"Waiting": "queued", "Running": "running", "Failed": "failed"}
        assert [row[name] for name in columns] == [str(jobs[status]) for status in columns.values()]
        assert row["Dead letters"] == str(left[kind.kind])
        assert kind.rates is not None
        assert row["Done/min"] == tenths(kind.rates.succeeded)
        assert row["Errors of the last hour"] == ", ".join(f"{one.error_class} \u00d7 {one.n}" for one in kind.errors[:3])
    shown.open("/kinds/fetch")
    fetched = [job for job in shown.jobs() if job.kind == "fetch"]
    assert shown.chips() == Counter(job.status.value.replace("_", " ") for job in fetched)
    shown.check_jobs("Newest jobs of this kind", fetched[::-1][:20])


def test_workers_and_agents(shown: Shown) -> None:
    shown.open("/workers")
    workers = shown.ledger.workers()
    held = Counter(job.owner for job in shown.jobs() if job.owner)
    total = sum(held[worker.name] for worker in workers)
    assert shown.answer().startswith(f"{len(workers)} workers hold {total} job")
    assert shown.answer().endswith(f"{len(workers)} of them silent for 45 s or longer.")
    found = [(row["Worker"], row["Holds"]) for row in shown.rows("Workers")]
    assert found == [(one.name, str(held[one.name])) for one in workers]
    shown.open("/workers/arm-7")
    page_rows = [row["Id"] for row in shown.rows("Jobs that it holds")]
    assert page_rows == [str(job.id) for job in shown.ledger.list(owner="arm-7", order="newest")]
    shown.open("/agents")
    [agent] = shown.ledger.agents()
    [row] = shown.rows("Agents")
    assert (row["Agent"], row["Session"], row["Task"], row["Holds"]) == ("ada", "s1", f"#{agent.focus}", str(agent.holding))
    assert shown.answer() == "1 session of agents; 1 session at a task."


def test_attention_has_one_card_for_each_thing(shown: Shown) -> None:
    shown.open("/attention")
    items = shown.ledger.attention()
    things = list(dict.fromkeys((item.kind, item.job_id, item.sink) for item in items))
    assert shown.answer().startswith(f"{len(things)} things wait for a person.")
    cards = shown.page.locator("main .card")
    expect(cards).to_have_count(len(things))
    for card, (kind, job_id, sink) in zip(cards.all(), things, strict=True):
        expect(card.locator("h2")).to_contain_text(f"Sink {sink}" if job_id is None else f"{kind} #{job_id}")
        reasons = [item for item in items if (item.job_id, item.sink) == (job_id, sink)]
        expect(card.locator(".said p:not(.muted)")).to_have_count(len(reasons))
        for item in reasons:
            expect(card).to_contain_text(item.detail or "")


def test_the_dead_letters(shown: Shown) -> None:
    shown.open("/dead-letters")
    left, letters = shown.letters_left(), shown.ledger.dead_letters()
    groups = shown.ledger.dead_letter_groups().groups
    assert shown.answer() == (
        f"{len(left)} dead letters wait for a decision, of 2 causes. Replay them when the cause is gone, or discard them. "
        f"{len(letters) - len(left)} more was replayed and stays in the list below until discarded."
    )
    found = shown.rows("Groups of dead letters")
    assert [int(row["Letters"]) for row in found] == [group.n for group in groups] == [3, 1]
    assert found[0]["Why"].split("\n")[0] == groups[0].key["cause"] == "ConnectionError: no answer from … after # s"
    assert found[1]["Why"] == groups[1].key["cause"]
    assert shown.column("Dead letters", "Id") == [str(job.id) for job in letters]
    assert sum(bool(text) for text in shown.column("Dead letters", "Replayed")) == len(letters) - len(left)
    for group, button in zip(groups, shown.page.get_by_role("button", name="Replay the whole group").all(), strict=True):
        button.click()
        expect(shown.page.locator("dialog h2")).to_have_text(f"Replay {group.n} job{'s' if group.n > 1 else ''}?")
        shown.page.keyboard.press("Escape")
    meaning = shown.page.locator("main p", has_text="A job becomes a dead letter when")
    expect(meaning).to_contain_text("A job is failed when its handler reports that no further attempt would help.")


def test_the_events(shown: Shown) -> None:
    shown.open("/events")
    events = [event for event in shown.ledger.events() if event.pos > shown.ledger.position() - 200 and event.type != "heartbeat"]
    found = [(row["Type"], row["Job"], row["Position"]) for row in shown.rows("Events, newest first")]
    assert found == [(event.type, f"#{event.job_id}", str(event.pos)) for event in reversed(events)]


def test_the_other_lists(shown: Shown) -> None:
    ledger = shown.ledger
    shown.open("/schedules")
    schedules = ledger.schedules()
    assert shown.answer() == f"{len(schedules)} schedules; 1 paused."
    assert [(row["Schedule"], row["Kind"], row["Made"]) for row in shown.rows("Schedules")] == [
        (one.name, one.kind, str(one.fired)) for one in schedules
    ]
    shown.open("/limits")
    assert shown.answer().startswith("1 limit over all workers.")
    found = [(row["Limit"], row["At once"]) for row in shown.rows("Limits")]
    assert found == [(one.name, str(one.concurrent)) for one in ledger.limits()]
    shown.open("/groups?all=true")
    [group] = ledger.groups()
    [row] = shown.rows("Groups")
    assert (row["Group"], row["Jobs"], row["Live"], row["Succeeded"]) == (
        group.name, str(group.total), str(group.live), str(group.succeeded)
    )  # fmt: skip
    shown.open(f"/groups/{group.name}")
    shown.check_jobs("Jobs of the group", ledger.group_jobs(group.name))
    shown.open("/sinks")
    assert shown.answer() == "1 sink; 1 sink given up."
    assert shown.column("Sinks", "Last error") == [sink.last_error for sink in ledger.sinks()]
    shown.open("/runs")
    assert shown.answer() == "1 supervised run; 0 given up."
    shown.open("/tokens")
    tokens: list[Any] = ledger.tokens()
    assert shown.answer() == f"{len(tokens)} tokens can be used."
    assert sorted(shown.column("Tokens", "Name")) == sorted(token.name for token in tokens)
    shown.open("/policies")
    assert {"index_page", "weld"} <= set(shown.page.locator("main td a").all_inner_texts())
