"""`holdfast policy`: each value is shown with its source."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast
from tests.cli.conftest import Run

Declare = Callable[..., None]


@pytest.fixture
def declare(folder: Path) -> Declare:
    """Declare a policy as a worker does when it starts."""

    def declared(**fields: Any) -> None:
        with holdfast.open(f"sqlite:///{folder}/holdfast.db") as ledger:
            ledger.declare_policy("index", queue="crawl", actor="w-1", **fields)

    return declared


def fields(run: Run, *words: str) -> dict[str, tuple[Any, str]]:
    answer = run(*words, "--json").answer
    return {one["name"]: (one["value"], one["source"]) for one in answer["data"]["fields"]}


def test_each_value_shows_its_layer(run: Run, declare: Declare) -> None:
    declare(attempts_max=7, lease_ttl="2m")
    run("policy", "set", "index", "attempts_max=3")
    found = fields(run, "policy", "get", "index", "--tier", "in_home")
    assert found["attempts_max"] == (3, "operator_kind")
    assert found["lease_ttl_ms"] == (120_000, "handler")
    assert found["heartbeat_interval_ms"] == (30_000, "tier")
    assert found["backoff_base_ms"] == (500, "default")
    lines = [line.split() for line in run("policy", "get", "index", "--tier", "in_home").out.splitlines()]
    assert ["attempts_max", "3", "operator,", "for", "kind", "index", "handler", "7"] in lines
    assert ["lease_ttl", "2m", "handler", "–"] in lines
    assert ["backoff_base", "500ms", "default", "–"] in lines
    assert ["resume_window", "90s", "stall_after", "–"] in lines


def test_values_of_operators_and_handlers_are_listed(run: Run, declare: Declare) -> None:
    declare(attempts_max=7)
    run("policy", "set", "index", "signed=liveness", "requires_operator_coverage=true", "heartbeat_interval=2.5")
    run("policy", "set", "--tier", "in_home", "cancel_grace=0")
    found = run("policy", "list", "--json").answer["data"]
    [kind] = found["kinds"]
    assert kind["operator"] == {"signed": "liveness", "requires_operator_coverage": True, "heartbeat_interval_ms": 2_500}
    assert (kind["handler"]["queue"], kind["handler"]["policy"]) == ("crawl", {"attempts_max": 7})
    assert found["tiers"] == [{"tier": "in_home", "operator": {"cancel_grace_ms": 0}}]
    lines = [line.split() for line in run("policy", "list").out.splitlines()]
    assert ["kind", "index", "operator", "heartbeat_interval", "2500ms"] in lines
    assert ["kind", "index", "handler,", "by", "w-1", "attempts_max", "7"] in lines
    assert ["tier", "in_home", "operator", "cancel_grace", "0s"] in lines


def test_set_keeps_other_fields_and_unset_keeps_the_handlers_values(run: Run, declare: Declare) -> None:
    declare(attempts_max=7)
    run("policy", "set", "index", "attempts_max=3", "lease_ttl=2m")
    assert fields(run, "policy", "set", "index", "attempts_max=4")["lease_ttl_ms"] == (120_000, "operator_kind")
    assert fields(run, "policy", "unset", "index", "attempts_max")["attempts_max"] == (7, "handler")
    assert fields(run, "policy", "unset", "index")["lease_ttl_ms"] == (60_000, "default")
    assert fields(run, "policy", "unset", "index", "--declared")["attempts_max"] == (5, "default")
    assert "the defaults apply" in run("policy", "list").out


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("set", 2, "name a kind"),
        ("set index", 2, "attempts_max=3"),
        ("set index attempts_max", 2, "FIELD=VALUE"),
        ("set index attempts_max=1 attempts_max=2", 2, "twice"),
        ("set index actor=root", 2, "there is no policy field"),
        ("set index colour=blue", 1, "there is no policy field"),
        ("set index attempts_max=0", 1, "must be from 1 to"),
        ("set index lease_ttl=soon", 1, "must be seconds"),
        ("set index lease_ttl=none", 2, "holdfast policy unset index lease_ttl"),
        ("set --tier home lease_ttl=", 2, "holdfast policy unset lease_ttl --tier home"),
        ("set attempts_max=3", 2, "the kind is missing"),
        ("unset", 2, "name a kind"),
        ("unset index colour", 1, "there is no policy field"),
        ("unset index signed --declared", 2, "as a whole"),
        ("unset index actor", 2, "there is no policy field"),
    ],
)
def test_wrong_arguments_change_nothing(run: Run, words: str, code: int, said: str) -> None:
    run("migrate")
    done = run("policy", *words.split())
    assert (done.code, said in done.err) == (code, True), done.err
    assert run("policy", "list", "--json").answer["data"] == {"kinds": [], "tiers": []}


def test_a_value_without_effect_is_reported(run: Run, declare: Declare) -> None:
    declare(attempts_max=7)
    done = run("policy", "set", "index", "lease_ttl=10s", "attempts_max=3")
    assert "lease_ttl=10s is set, but 30s applies: a lease does not end before stall_after, which is" in done.out
    assert "attempts_max=3 is set" not in done.out
    lines = [line.split() for line in run("policy", "get", "index").out.splitlines()]
    assert ["lease_ttl", "30s", "stall_after", "operator,", "for", "kind", "index", "10s"] in lines
    [remark] = run("policy", "set", "indx", "attempts_max=3", "--json").answer["data"]["remarks"]
    assert (
        remark == "No worker has declared the kind indx. Did you mean index? The policy applies once there are jobs of this kind."
    )
    assert run("policy", "set", "--tier", "in_home", "attempts_max=3", "--json").answer["data"]["remarks"] == []


@pytest.mark.parametrize(
    ("words", "remark"),
    [
        ("unset other", "Nothing was set for kind other: nothing has changed."),
        ("unset --tier in_home", "Nothing was set for tier in_home: nothing has changed."),
        ("unset index lease_ttl", "lease_ttl was not set for kind index."),
        ("unset index --declared", "No handler has declared kind index: nothing has changed."),
    ],
)
def test_unset_without_effect_is_reported(run: Run, words: str, remark: str) -> None:
    run("policy", "set", "index", "attempts_max=3")
    done = run("policy", *words.split())
    assert (done.code, done.out.splitlines()[-1]) == (0, remark)
    assert run("policy", "unset", "index", "--json").answer["data"]["remarks"] == []
