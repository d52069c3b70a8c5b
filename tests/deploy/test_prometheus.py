"""The alert rules and the dashboard: their metrics exist, and every part is there."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

import holdfast
from tests.contract.builders import dead_lettered, failed, succeeded
from tests.deploy.commands import DEPLOY
from tests.deploy.prometheus_files import DASHBOARD, expressions, panels, rules
from tests.support.served_process import serving
from tests.support.server import Client
from tests.support.waiting import wait_until

OF_PROMETHEUS = {"up": {"job", "instance"}}
TARGET_LABELS = {"job", "instance", "le"}


def used(expression: str) -> Iterator[tuple[str, set[str]]]:
    """Yield each metric of an expression, and the labels by which it is chosen."""
    for name, chosen in re.findall(r"\b(holdfast_\w+|up)\b(?:\{([^}]*)\})?", expression):
        yield name, set(re.findall(r"(\w+)\s*[=!]", chosen))


def labels_by_name(page: str) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


@pytest.fixture(scope="module")
def busy_page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The metrics of a server process on which everything has happened at least once."""
    folder = tmp_path_factory.mktemp("busy")
    url, policy = f"sqlite:///{folder}/ledger.db", {"lease_ttl": 1, "heartbeat_interval": 1, "missed_beats_max": 1}
    with holdfast.open(url) as ledger, serving(folder) as server:
        admin = Client(server.port, ledger.new_token("admin", "root", act_as=["*"]).text)
        admin.get("/metrics")  # ledger-wide counts begin here
        ledger.enqueue("k", policy=policy)  # type: ignore[arg-type]
        [held] = ledger.claim("w-1", start=True)
        for made in (succeeded, failed, dead_lettered):
            made(ledger)
        ledger.enqueue("waits", queue="mail")
        ledger.set_limit("api", concurrent=1)
        ledger.sign_in("w-1", body={"queues": ["default"], "kinds": ["k"]})
        ledger.enqueue("k", requires=["gpu"])
        ledger.claim("w-1")
        assert admin.acting(Holdfast_Actor="worker:w-1#b").post(f"/v1/jobs/{held.id}/start", {"fence": fence(held)}).status == 409
        wait_until(lambda: "lease_expiries_total{" in admin.get("/metrics").body.decode())
        wait_until(lambda: "holdfast_ledger_run_seconds_bucket{" in admin.get("/metrics").body.decode())
        wait_until(lambda: 'holdfast_findings{code="dead_letters"}' in admin.get("/metrics").body.decode())
        return admin.get("/metrics").body.decode()


def fence(job: Any) -> dict[str, Any]:
    return {"attempt": job.attempt, "token": "another"}


def test_every_metric_and_label_of_rules_and_panels_is_one_that_a_busy_server_answers(busy_page: str) -> None:
    known = {**labels_by_name(busy_page), **OF_PROMETHEUS}
    found = [(name, labels) for expression in expressions() for name, labels in used(expression)]
    assert len(found) > 30
    for name, labels in found:
        assert name in known, name
        assert labels <= known[name] | TARGET_LABELS, (name, labels)
    for expression in expressions():
        grouped = {label.strip() for group in re.findall(r"by \(([^)]*)\)", expression) for label in group.split(",")}
        assert grouped <= set().union(*(known[name] for name, _ in used(expression))) | TARGET_LABELS, expression
    for rule in rules():
        named = set(re.findall(r"\$labels\.(\w+)", json.dumps(rule)))
        assert named <= set().union(*(known[name] for name, _ in used(rule["expr"]))) | TARGET_LABELS, rule["alert"]


def test_the_dashboard_is_whole() -> None:
    whole = json.loads(DASHBOARD.read_text())
    assert (whole["uid"], [one["name"] for one in whole["templating"]["list"]]) == ("holdfast", ["datasource"])
    assert len({panel["id"] for panel in panels()}) == len({panel["title"] for panel in panels()}) == len(panels())
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        place = panel["gridPos"]
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}
        assert place["x"] + place["w"] <= 24 and not cells & taken, panel["title"]
        taken |= cells
        assert panel["targets"] and all(target["datasource"]["uid"] == "${datasource}" for target in panel["targets"])


def test_every_rule_says_what_is_wrong_and_for_how_long() -> None:
    assert len({rule["alert"] for rule in rules()}) == len(rules())
    for rule in rules():
        assert set(rule) == {"alert", "expr", "for", "labels", "annotations"}, rule
        assert rule["labels"]["severity"] in ("critical", "warning") and rule["annotations"]["summary"].endswith(".")


def test_the_guide_lists_every_alert_and_file() -> None:
    guide = (DEPLOY.parent / "docs" / "guides" / "deploy.md").read_text()
    assert re.findall(r"^\| `(Holdfast\w+)`", guide, re.MULTILINE) == [rule["alert"] for rule in rules()]
    for name in re.findall(r"`(deploy/[\w./]+)`", guide):
        assert (DEPLOY.parent / name).exists() or name == "deploy/.env", name
