"""The proof of a job, verified in the browser: what was changed is named."""

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest
from playwright.sync_api import Browser, Page, expect

import holdfast
from holdfast import Ledger
from holdfast.server.redact import Redaction
from holdfast.services.sealer import Sealer
from holdfast.testing import ManualClock
from tests.browser.conftest import Open
from tests.browser.sample import claim
from tests.support.sealing import drawn, enrol
from tests.support.server import RunningServer, running

KEY = drawn()
NOT_IN = "its leaf is not in the sealed log: the path does not lead to the root"


@pytest.fixture
def ledger(tmp_path: Path, clock: ManualClock) -> Iterator[Ledger]:
    with holdfast.open(f"sqlite:///{tmp_path}/ledger.db", clock=clock, keys=[KEY]) as opened:
        enrol(opened, KEY)
        for number in range(5):
            args = msgspec.Raw(b'{"n":%d,"rate":1.10}' % number)
            opened.enqueue_many([{"kind": "k", "args": args, "queue": "q"}])
        fence = claim(opened, "q", "w-1")
        for number in range(2):
            opened.heartbeat(fence, progress=number)
        opened.complete(fence, {"done": True})
        with Sealer(opened) as sealer:
            sealer.tick()
        yield opened


def verify(page: Page, data: Any, key: str, **shown: Any) -> list[str]:
    """Return the steps of the check that failed, each with what is wrong."""
    found = page.evaluate(
        """async ([data, key, shown]) => {
            const base = document.querySelector("meta[name=holdfast-assets]").content;
            const { verify } = await import(`/assets/${base}/js/proof/verify.js`);
            return await verify(data, key, shown);
        }""",
        [data, key, shown],
    )
    return [": ".join(filter(None, (step["what"], step.get("detail", "")))) for step in found if not step["ok"]]


def test_a_job_is_verified_and_its_key_is_trusted(served: RunningServer, open_page: Open) -> None:
    page = open_page("/jobs/1")
    page.click("details[data-part=proof] summary")
    expect(page.locator("[data-proof]")).to_contain_text("Sealed, not checked")
    page.click("[data-verify]")
    expect(page.locator("[data-proof]")).to_contain_text(
        "Verified here: 6 events with their contents. The key came from this server"
    )
    page.click("text=Trust this key from now on")
    page.click("[data-verify]")
    expect(page.locator("[data-proof]")).to_have_text("Verified here: 6 events with their contents.")
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
    [found] = verify(page, data, key)
    assert found.startswith("Event 1-2 (claimed): its leaf is not in the sealed log")
    data = fresh()
    data["events"][0]["proof"][0] = data["head"]["root"]
    assert verify(page, data, key) == [f"Event 1-1 (enqueued): {NOT_IN}"]
    data = fresh()
    data["events"][2]["event"]["actor"] = "worker:other#boot1"
    assert verify(page, data, key) == ["Event 1-3 (started): shown otherwise than sealed: actor"]
    data = fresh()
    data["head"]["root"] = data["events"][0]["proof"][0]
    assert verify(page, data, key)[0].startswith("The head's size and root are those of the note")
    data = fresh()
    data["head"]["note"] = data["head"]["note"].replace("holdfast/", "holdfast/x", 1)
    assert any(step.startswith("The note is signed by the key") for step in verify(page, data, key))
    data = fresh()
    data["ledger_id"] = "another"
    assert len(verify(page, data, key)) == 1


def test_a_forged_payload_is_distinguished_from_a_forged_leaf(served: RunningServer, open_page: Open) -> None:
    page = open_page("/help")
    client = served.client()
    key = client.get("/v1/keys").data["keys"][0]["public"]

    def forged(change: Callable[[Any], None], **shown: Any) -> list[str]:
        data = client.get("/v1/jobs/1/inclusion").data
        change(data["events"])
        return verify(page, data, key, **shown)

    def change_payload(events: Any) -> None:
        events[0]["sealed_payload"] = events[0]["sealed_payload"].replace('"n":0', '"n":9')

    def change_both(events: Any) -> None:
        change_payload(events)
        leaf = json.loads(b64decode(events[0]["leaf"]))
        leaf[15] = sha256(events[0]["sealed_payload"].encode()).hexdigest()
        events[0]["leaf"] = b64encode(json.dumps(leaf, separators=(",", ":")).encode()).decode()

    def drop(events: Any) -> None:
        events[-1]["sealed_payload"] = None

    other = "its contents are not those that were sealed"
    assert forged(change_payload) == [f"Event 1-1 (enqueued): {other}"]
    assert forged(change_both) == [f"Event 1-1 (enqueued): {NOT_IN}"]
    assert forged(drop) == [f"Event 1-6 (succeeded): {other}"]
    assert forged(lambda _: None, args={"n": 0, "rate": 1.1}, result={"done": False}) == [
        "What this page shows as args is that of event 1-1",
        "What this page shows as result is that of event 1-6",
    ]


def test_pruned_heartbeats_are_verified_by_their_hash(
    served: RunningServer, ledger: Ledger, clock: ManualClock, open_page: Open
) -> None:
    ledger.prune(beats_before=clock.now() + timedelta(seconds=1))
    assert "pruned" in ledger.inclusion(1).events[3].sealed_payload  # type: ignore[operator]
    page = open_page("/jobs/1")
    page.click("details[data-part=proof] summary")
    page.click("[data-verify]")
    expect(page.locator("[data-proof]")).to_contain_text("Verified here: 6 events with their contents")


def test_contents_that_are_hidden_are_not_called_verified(ledger: Ledger, browser: Browser) -> None:
    with running(ledger, redaction=Redaction(["args.n"])) as server:
        context = browser.new_context()
        secret = ledger.new_session(ledger.new_token("reader", "eye").token.id)
        context.add_cookies([{"name": "holdfast", "value": secret, "url": server.url}])
        page = context.new_page()
        page.goto(f"{server.url}/jobs/1")
        page.click("details[data-part=proof] summary")
        page.click("[data-verify]")
        expect(page.locator("[data-proof]")).to_contain_text("so those of 1 event were not checked")
        context.close()


def test_a_job_that_is_not_sealed_yet(served: RunningServer, ledger: Ledger, open_page: Open) -> None:
    new = ledger.enqueue("k", queue="q").id
    page = open_page(f"/jobs/{new}")
    page.click("details[data-part=proof] summary")

    expect(page.locator("details[data-part=proof] .body")).to_contain_text("not sealed yet")
