"""The proof of a job, verified in the browser: what was changed is named."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

import holdfast
from holdfast import Ledger
from holdfast.services.sealer import Sealer
from holdfast.testing import ManualClock
from tests.browser.conftest import Open
from tests.browser.sample import claim
from tests.support.sealing import drawn, enrol
from tests.support.server import RunningServer

KEY = drawn()


@pytest.fixture
def ledger(tmp_path: Path, clock: ManualClock) -> Iterator[Ledger]:
    with holdfast.open(f"sqlite:///{tmp_path}/ledger.db", clock=clock, keys=[KEY]) as opened:
        enrol(opened, KEY)
        for number in range(5):
            opened.enqueue("k", {"n": number}, queue="q")
        opened.complete(claim(opened, "q", "w-1"))
        with Sealer(opened) as sealer:
            sealer.tick()
        yield opened


def verify(page: Page, data: Any, key: str) -> list[str]:
    """Return the steps of the check that failed."""
    found = page.evaluate(
        """async ([data, key]) => {
            const base = document.querySelector("meta[name=holdfast-assets]").content;
            const { verify } = await import(`/assets/${base}/js/proof/verify.js`);
            return await verify(data, key);
        }""",
        [data, key],
    )
    return [step["what"] for step in found if not step["ok"]]


def test_a_job_is_verified_and_its_key_is_trusted(served: RunningServer, open_page: Open) -> None:
    page = open_page("/jobs/1")
    page.click("details[data-part=proof] summary")
    expect(page.locator("[data-proof]")).to_contain_text("Sealed, not checked")
    page.click("[data-verify]")
    expect(page.locator("[data-proof]")).to_contain_text("Verified here: 4 events. The key came from this server")
    page.click("text=Trust this key from now on")
    page.click("[data-verify]")
    expect(page.locator("[data-proof]")).to_have_text("Verified here: 4 events.")
    page.fill("#proof-key", drawn().public.public.hex())
    page.click("[data-verify]")
    expect(page.locator("[data-proof]")).to_contain_text("Does not verify: The note is signed by the key")


def test_what_was_forged_is_named(served: RunningServer, open_page: Open) -> None:
    page = open_page("/help")
    client = served.client()
    key = client.get("/v1/keys").data["keys"][0]["public"]

    def fresh() -> Any:
        return client.get("/v1/jobs/1/inclusion").data

    assert verify(page, fresh(), key) == []
    data = fresh()
    data["events"][1]["leaf"] = data["events"][0]["leaf"]
    assert verify(page, data, key) == ["Event 1-2 (claimed)"]
    data = fresh()
    data["events"][0]["proof"][0] = data["head"]["root"]
    assert verify(page, data, key) == ["Event 1-1 (enqueued)"]
    data = fresh()
    data["events"][2]["event"]["actor"] = "worker:other#boot1"
    assert verify(page, data, key) == ["Event 1-3 (started)"]
    data = fresh()
    data["head"]["root"] = data["events"][0]["proof"][0]
    assert verify(page, data, key) == ["The head's size and root are those of the note"]
    data = fresh()
    data["head"]["note"] = data["head"]["note"].replace("holdfast/", "holdfast/x", 1)
    assert "The note is signed by the key" in verify(page, data, key)
    data = fresh()
    data["ledger_id"] = "another"
    assert verify(page, data, key) == ["The head names this ledger"]


def test_a_job_that_is_not_sealed_yet(served: RunningServer, ledger: Ledger, open_page: Open) -> None:
    new = ledger.enqueue("k", queue="q").id
    page = open_page(f"/jobs/{new}")
    page.click("details[data-part=proof] summary")

    expect(page.locator("details[data-part=proof] .body")).to_contain_text("not sealed yet")
