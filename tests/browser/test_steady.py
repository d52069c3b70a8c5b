"""Pages that change by themselves keep their controls in place, and a control that has just changed takes no click."""

import pytest
from playwright.sync_api import expect

from holdfast import Fence, Ledger
from holdfast.testing import ManualClock
from tests.browser.conftest import Open, Whole
from tests.browser.sample import claim
from tests.support.server import RunningServer

WATCH = """() => {
    const pointed = document.querySelector("#page :is(button, input, select, summary, a):hover");
    const around = pointed.closest(".held-box, .card, .filter, .verbs, .chips, details, .head");
    const controls = [...around.querySelectorAll(":is(button, input, select, summary):not([data-calm])")];
    const place = (one) => {
        const {left, top} = one.getBoundingClientRect();
        return [left, top, one.textContent];
    };
    const before = new Map(controls.filter((one) => one.checkVisibility()).map((one) => [one, place(one)]));
    before.set(pointed, place(pointed));
    const isSame = ([left, top, text], [left2, top2, text2]) =>
        Math.abs(left - left2) < 2 && Math.abs(top - top2) < 2 && text === text2;
    const hasMoved = ([one, at]) => !one.isConnected || !isSame(place(one), at);
    window.moved = () => [...before].filter(hasMoved).map(([one, at]) => `${at} to ${place(one)}`);
    window.changes = 0;
    const ofTime = (node) => (node.closest ? node : node.parentElement)?.closest("time");
    new MutationObserver((records) => (window.changes += records.filter((record) => !ofTime(record.target)).length))
        .observe(document.getElementById("page"), {subtree: true, childList: true, characterData: true});
}"""
"""Keeps where the control under the pointer and those around it are. `moved` names those that have moved or changed since."""
CHANGED = """() => new Promise((done) => {
    const look = () => (window.changes > 0 ? requestAnimationFrame(() => done(true)) : setTimeout(look, 20));
    look();
})"""
LATER = "() => new Promise((done) => setTimeout(done, 1_050))"
"""Waits until a change is longer ago than a second."""
PAGES = [
    ("/", ".chip[data-span='6 h']"),
    ("/jobs", "tbody tr:nth-child(2) input"),
    ("/jobs", ".filter input[name=kind]"),
    ("/jobs/2", "[data-verb=cancel]"),
    ("/jobs/2", "details[data-part=result] summary"),
    ("/queues", "tbody tr:nth-child(2) button"),
    ("/queues/mail", "[data-verb=unpause]"),
    ("/kinds", "tbody tr:nth-child(2) a"),
    ("/kinds/send_mail", ".chip[data-span='6 h']"),
    ("/workers", "tbody tr:nth-child(2) a"),
    ("/attention", ".card [data-verb=cancel]"),
    ("/dead-letters", "tbody tr:nth-child(2) [data-verb=replay]"),
    ("/dead-letters", "[aria-label='Dead letters'] tbody tr:nth-child(2) input"),
    ("/events", ".filter select"),
]


class Stream:
    """Changes that touch every page: what is new sorts before, between and after what is there."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        ledger.pause("crawl", actor="ada")
        self.number = 0
        self.held: list[Fence] = []

    def go_on(self) -> None:
        self.number += 1
        ledger, name = self.ledger, f"a{self.number}"
        ledger.set_policy(kind=name, requires_operator_coverage=True)
        for queue in (name, "mail", f"z{self.number}"):
            ledger.enqueue(name, queue=queue)
        ledger.enqueue("send_mail", queue="mail")
        asking = claim(ledger, name, name)
        ledger.heartbeat(asking, assist_requested=True)
        ledger.sign_in(name, incarnation="boot1", body={"host": "north", "queues": [name]})
        for cause in (name, "a", "z"):
            ledger.dead_letter(ledger.enqueue("fetch", queue="web").id, reason_code="timeout", error=f"cause {cause * 3}")
        if self.number == 1:
            ledger.enqueue("thumbnail", queue=name)
            self.held = [claim(ledger, name, "w-1")]
            ledger.pause("crawl", reason="a reason that is long enough to fill the line of the state of a queue", actor="ada")
        elif self.held:
            ledger.complete(self.held.pop(), {"sent": True})
        asked = [item.job_id for item in ledger.attention() if item.reason == "assist_requested" and item.job_id is not None]
        waiting = [id_ for id_ in asked if ledger.get(id_).phase == "executing"]
        if self.number % 2:
            ledger.assist(waiting[0], actor="ada")
        else:
            ledger.cancel(waiting[0], hard=True)


@pytest.fixture(scope="module")
def stream(whole: Whole) -> Stream:
    return Stream(whole.ledger)


@pytest.mark.parametrize(("path", "pointed"), PAGES, ids=[f"{path} {pointed}" for path, pointed in PAGES])
def test_what_a_person_points_at_stays(whole: Whole, stream: Stream, path: str, pointed: str) -> None:
    page = whole.page
    whole.open(path)
    expect(page.locator("#live")).to_contain_text("live")
    page.locator(pointed).first.hover()
    page.evaluate(WATCH)
    for _ in range(2):
        page.evaluate("window.changes = 0")
        stream.go_on()
        page.evaluate(CHANGED)
        assert page.evaluate("window.moved()") == []


def test_a_card_stays_when_its_job_needs_nothing_any_more(
    served: RunningServer, ledger: Ledger, clock: ManualClock, open_page: Open
) -> None:
    fences = []
    for number in range(3):
        ledger.enqueue("k", {"n": number}, queue="q")
        fences.append(claim(ledger, "q", "w-1"))
        ledger.heartbeat(fences[-1], assist_requested=True)
        clock.advance(1)
    page = open_page("/attention")
    expect(page.locator("#live")).to_contain_text("live")
    cards = page.locator("main .card")
    places = [card.bounding_box() for card in cards.all()]
    ledger.assist(fences[0].job_id, actor="ada")
    expect(cards.first).to_contain_text("An operator assists the job: ada")
    expect(cards.first.locator("[data-verb=assist]")).to_be_disabled()
    expect(cards.first.locator("[data-verb=unassist]")).to_be_enabled()
    ledger.complete(fences[0], {})
    expect(cards.first).to_contain_text("It waits for a person no longer.")
    expect(cards.first.locator("button:enabled")).to_have_count(0)
    expect(page.locator(".answer")).to_contain_text("2 things wait")
    assert [card.bounding_box() for card in cards.all()] == places


def test_a_button_that_has_just_changed_takes_no_click(filled: RunningServer, ledger: Ledger, open_page: Open) -> None:
    page = open_page("/queues")
    expect(page.locator("#live")).to_contain_text("live")
    row = page.locator("tbody tr", has=page.locator("a[href='/queues/crawl']"))
    ledger.pause("crawl", actor="ada")
    ledger.enqueue("fetch", queue="crawl")
    button = row.locator("button")
    expect(button).to_have_text("Resume")
    button.click()
    expect(page.locator(".toast")).to_contain_text("This has just changed, so the click did nothing.")
    assert "crawl" in ledger.paused()
    page.evaluate(LATER)
    button.click()
    expect(button).to_have_text("Pause…")
    assert "crawl" not in ledger.paused()


def test_rows_wait_while_a_person_points_at_a_table(filled: RunningServer, ledger: Ledger, open_page: Open) -> None:
    page = open_page("/workers")
    expect(page.locator("#live")).to_contain_text("live")
    rows = page.locator("tbody tr")
    count = rows.count()
    rows.first.hover()
    ledger.sign_in("a-0", incarnation="boot1", body={})
    ledger.enqueue("fetch", queue="crawl")
    more = page.locator(".new-rows")
    expect(more).to_have_text("1 new row – show")
    expect(rows).to_have_count(count)
    page.mouse.move(1, 1)
    expect(rows).to_have_count(count + 1)
    expect(more).to_be_hidden()
