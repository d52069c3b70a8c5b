"""The alert rules, as Prometheus's own checker promtool evaluates them: an alert fires when its trouble is caused."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]
from prometheus_client.parser import text_string_to_metric_families

import holdfast
from holdfast import Ledger
from holdfast.files.keys import write_key
from holdfast.testing import ManualClock
from holdfast.watch.prometheus import serve
from tests.contract.builders import claimed, dead_lettered, running_stalled, succeeded
from tests.deploy.commands import DEPLOY
from tests.deploy.prometheus_files import RULES, expressions
from tests.deploy.promtool import HOW, find_promtool
from tests.support.sealing import drawn
from tests.support.served_process import serving
from tests.support.server import Client, RunningServer, running
from tests.support.waiting import wait_until
from tools.pgserver import PostgresServer

pytestmark = pytest.mark.promtool
MINUTES = 40
"""Longer than the longest `for` of a rule."""


@pytest.fixture
def promtool() -> str:
    """Prometheus's own checker."""
    found = find_promtool()
    assert found is not None, HOW
    return found


def test_prometheus_accepts_the_rules_and_every_expression(promtool: str, tmp_path: Path) -> None:
    panel_rules = [
        {"record": f"panel:{number}", "expr": expression} for number, expression in enumerate(dict.fromkeys(expressions()))
    ]
    (tmp_path / "panels.yaml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": panel_rules}]}))
    config = DEPLOY / "prometheus" / "prometheus.yaml"
    (tmp_path / "token").write_text("hft_")
    text = config.read_text().replace("/etc/prometheus/holdfast.token", str(tmp_path / "token"))
    (tmp_path / "prometheus.yaml").write_text(text.replace("- alerts", f"- {RULES.parent}/alerts"))
    for what, file in (("rules", RULES), ("rules", tmp_path / "panels.yaml"), ("config", tmp_path / "prometheus.yaml")):
        done = subprocess.run([promtool, "check", what, str(file)], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


class AlertCheck:
    """Replays pages of metrics to the alert rules, and checks which alerts fire."""

    def __init__(self, promtool: str, folder: Path) -> None:
        self._promtool = promtool
        self._folder = folder

    def expect(self, firing: set[str], page: str, later: str | None = None, *, job: str = "holdfast") -> None:
        """Check which alerts fire if a server answers this page for a long time. With `later`, counters grow as between both."""
        series = [{"series": f'up{{job="{job}",instance="a"}}', "values": f"1x{MINUTES}"}]
        after = {} if later is None else values_by_series(later, job)
        for name, value in {**dict.fromkeys(after, 0.0), **values_by_series(page, job)}.items():
            growth = after.get(name, value) - value if "_total{" in name else 0
            series.append({"series": name, "values": f"{value:g}+{growth:g}x{MINUTES}"})
        self._run(firing, series)

    def expect_without_answer(self, firing: set[str]) -> None:
        self._run(firing, [{"series": 'up{job="holdfast",instance="a"}', "values": f"0x{MINUTES}"}])

    def _run(self, firing: set[str], series: list[dict[str, str]]) -> None:
        expected = [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in sorted(firing)]
        asked = {
            "expr": 'group by (alertname) (ALERTS{alertstate="firing"})',
            "eval_time": f"{MINUTES}m",
            "exp_samples": expected,
        }
        test = {
            "rule_files": [str(RULES)],
            "evaluation_interval": "1m",
            "tests": [{"interval": "1m", "input_series": series, "promql_expr_test": [asked]}],
        }
        path = self._folder / "alerts_test.yaml"
        path.write_text(yaml.safe_dump(test))
        command = [self._promtool, "test", "rules", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def values_by_series(page: str, job: str) -> dict[str, float]:
    found = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            labels = {**sample.labels, "job": job, "instance": "a"}
            named = ",".join(f"{name}={json.dumps(value)}" for name, value in labels.items())
            found[f"{sample.name}{{{named}}}"] = sample.value
    return found


@pytest.fixture
def alerts(promtool: str, tmp_path: Path) -> AlertCheck:
    return AlertCheck(promtool, tmp_path)


@pytest.fixture
def ledger(sqlite_url: str, clock: ManualClock) -> Iterator[Ledger]:
    with holdfast.open(sqlite_url, clock=clock) as found:
        yield found


@pytest.fixture
def served(ledger: Ledger) -> Iterator[RunningServer]:
    with running(ledger) as server:
        yield server


def scrape(served: RunningServer) -> str:
    return served.client("reader", "prometheus").get("/metrics").body.decode()


def test_nothing_fires_on_a_ledger_that_is_well(alerts: AlertCheck, ledger: Ledger, served: RunningServer) -> None:
    ledger.sign_in("w-1", body={})
    succeeded(ledger)
    claimed(ledger)
    alerts.expect(set(), scrape(served))


def test_dead_letters(alerts: AlertCheck, ledger: Ledger, served: RunningServer) -> None:
    dead_lettered(ledger)
    alerts.expect({"HoldfastDeadLetters", "HoldfastFinding"}, scrape(served))
    assert "dead_letters" in warnings(ledger)


def test_no_worker_and_a_job_that_waits(alerts: AlertCheck, ledger: Ledger, served: RunningServer, clock: ManualClock) -> None:
    ledger.sign_in("w-1", body={"queues": ["mail"], "kinds": ["k"]})
    ledger.enqueue("k", queue="mail")
    clock.advance(301)
    alerts.expect({"HoldfastNoWorker", "HoldfastOldestWaiting", "HoldfastFinding"}, scrape(served))
    assert "kind_unserved" in warnings(ledger)


def test_a_job_that_waits_though_there_are_workers(
    alerts: AlertCheck, ledger: Ledger, served: RunningServer, clock: ManualClock
) -> None:
    ledger.enqueue("k", queue="mail")
    clock.advance(301)
    ledger.sign_in("w-1", body={"queues": ["mail"], "kinds": ["k"]})
    alerts.expect({"HoldfastOldestWaiting"}, scrape(served))


def test_a_job_that_waits_for_a_person(alerts: AlertCheck, ledger: Ledger, served: RunningServer) -> None:
    ledger.sign_in("w-1", body={})
    running_stalled(ledger, policy={"requires_operator_coverage": True})
    alerts.expect({"HoldfastAttention", "HoldfastFinding"}, scrape(served))
    assert warnings(ledger) == {"sweeping"}, "no process sweeps in this test"


def warnings(ledger: Ledger) -> set[str]:
    return {finding.code for finding in ledger.diagnose().findings if finding.severity == "warning"}


def test_a_service_that_fails(alerts: AlertCheck, tmp_path: Path) -> None:
    write_key(tmp_path / "srv.key", drawn())
    with holdfast.open(f"sqlite:///{tmp_path}/ledger.db", keys=[enrolled := drawn(name="another")]) as ledger:
        ledger.enrol_key(enrolled.public, role=enrolled.role, name=enrolled.name)
        reader = ledger.new_token("reader", "prometheus").text
        with serving(tmp_path, "--key", "srv.key") as server:
            client = Client(server.port, reader)
            wait_until(lambda: client.get("/readyz").data["services"]["seal"] == "failing")
            alerts.expect({"HoldfastServiceFailing"}, client.get("/metrics").body.decode())


def test_a_store_that_is_away(alerts: AlertCheck, restartable_server: PostgresServer, tmp_path: Path) -> None:
    with holdfast.open(restartable_server.url) as ledger, serving(tmp_path, db=restartable_server.url) as server:
        ledger.patience = 0.5
        client = Client(server.port, ledger.new_token("reader", "prometheus").text)
        before = client.get("/metrics").body.decode()
        with serve(ledger, 0) as endpoint:
            restartable_server.stop()
            worker_page = Client(endpoint.port).get("/metrics").body.decode()
            alerts.expect({"HoldfastStoreAway"}, worker_page, job="holdfast-worker")
            answers: list[int] = []

            def mostly_fails() -> bool:
                answers.append(client.get("/metrics").status)
                return answers.count(503) > answers.count(200)

            wait_until(mostly_fails, seconds=60)
            assert Client(server.port).get("/healthz").status == 200
            assert Client(server.port).get("/readyz").status == 503
            alerts.expect_without_answer({"HoldfastServerDown"})
            restartable_server.start()
        wait_until(lambda: client.get("/metrics").status == 200)
        alerts.expect({"HoldfastErrors"}, before, client.get("/metrics").body.decode())
