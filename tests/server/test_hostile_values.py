"""Values that are attacks: filters, cursors, names, durations, counts and keys. Each is refused or means only itself."""

import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

import pytest
from msgspec.structs import fields

from holdfast import Ledger
from holdfast.core import limits
from holdfast.server.routes import ROUTES
from holdfast.watch.process import NAMES_MAX
from tests.support.server import Client, RunningServer

WILDCARDS = [
    "%",
    "_",
    "\\",
    "a_b%",
    "%%",
    "a*b",
    "a?b",
    "[ab]",
    "'",
    "' OR '1'='1",
    "'; DROP TABLE jobs; --",
    '"',
    "$1",
    "%s",
    "?1",
]
FILTERS = {
    "/v1/jobs": ["queue", "kind", "owner", "incarnation", "correlation_id", "text"],
    "/v1/jobs/export": ["queue", "kind", "owner", "incarnation", "correlation_id", "text"],
    "/v1/events": ["correlation_id"],
    "/v1/dead-letters": ["queue", "kind"],
    "/v1/dead-letters/groups": ["queue", "kind"],
    "/v1/tasks": ["queue", "kind"],
}


def _one_job(ledger: Ledger, name: str) -> None:
    """A dead letter whose queue, kind, owner, incarnation, correlation id and arguments are this name."""
    ledger.enqueue(name, {"text": name}, queue=name, correlation_id=name)
    [job] = ledger.claim(name, [name], incarnation=name, start=True)
    ledger.fail(job.fence, name, retryable=False, reason_code="timeout")
    ledger.enqueue(name, {"text": name}, queue=name, correlation_id=name)
    ledger.claim(name, [name], incarnation=name)


def _found(client: Client, path: str, **query: str) -> bytes:
    """Return what the route finds, without the fields that only repeat the question."""
    asked = "&".join(f"{name}={quote(value)}" for name, value in query.items())
    answer = client.get(f"{path}?{asked}")
    assert answer.status == 200, (path, query, answer.body)
    return answer.body


@pytest.mark.parametrize(("path", "name"), [(path, name) for path, names in FILTERS.items() for name in names])
def test_wildcards_and_sql_in_a_filter_mean_themselves(admin: Client, ledger: Ledger, path: str, name: str) -> None:
    _one_job(ledger, "axb")
    nothing = _found(admin, path, **{name: "none"})
    for value in WILDCARDS:
        assert _found(admin, path, **{name: value}) == nothing or name == "text", value
        if name == "text" and value != '"':  # which all JSON has
            assert b"axb" not in _found(admin, path, text=value), value
    assert _found(admin, path, **{name: "axb"}) != nothing
    _one_job(ledger, "a_b%")
    assert _found(admin, path, **{name: "a_b%"}).count(b"a_b%") > 0
    assert b"axb" not in _found(admin, path, **{name: "a_b%"})
    assert len(ledger.list()) == 4


@pytest.mark.parametrize(
    "path", ["/v1/history", "/v1/queues/{}", "/v1/policies/kinds/{}", "/v1/policy-sources", "/v1/tokens", "/v1/runs"]
)
def test_wildcards_and_sql_in_a_name_mean_themselves(admin: Client, ledger: Ledger, path: str) -> None:
    _one_job(ledger, "axb")
    parameter = {"/v1/history": "queue", "/v1/policy-sources": "kind"}.get(path, "after")
    for value in WILDCARDS:
        asked = path.format(quote(value, safe="")) if "{}" in path else f"{path}?{parameter}={quote(value)}"
        answer = admin.get(asked)
        assert answer.status in (200, 404), (value, answer.body)
        assert b"axb" not in answer.body
    assert len(ledger.list()) == 2


def test_a_cursor_works_only_as_it_was_given(admin: Client, ledger: Ledger) -> None:
    ledger.enqueue_many([{"kind": "k", "queue": queue} for queue in ("a", "b") * 5])
    base = "/v1/jobs?limit=2&order=-updated"
    cursor = admin.get(f"{base}&queue=a").data["next_cursor"]
    assert admin.get(f"{base}&queue=a&cursor={cursor}").status == 200
    middle = len(cursor) // 2
    wrong = {
        "of another filter": f"{base}&queue=b&cursor={cursor}",
        "of no filter": f"{base}&cursor={cursor}",
        "of another order": f"/v1/jobs?limit=2&order=id&queue=a&cursor={cursor}",
    }
    forged = [
        cursor[:-1],
        cursor[:middle],
        cursor + "A",
        cursor[1:],
        "A" * len(cursor),
        "",
        "null",
        "x",
        "%00",
        "a" * 501,
        "a" * 8_000,
    ]
    forged += [
        cursor[:place] + ("A" if cursor[place] != "A" else "B") + cursor[place + 1 :] for place in range(0, len(cursor), 3)
    ]
    wrong |= {f"forged as {text:.40}": f"{base}&queue=a&cursor={text}" for text in forged}
    accepted = [name for name, path in wrong.items() if admin.get(path).status not in (400, 413)]
    assert accepted == []


ODD_NAMES = {
    "10 KB": "n" * 10_000,
    "empty": "",
    "NUL": "a\0b",
    "a line break": "a\r\nSet-Cookie: x=1",
    "an escape": "a\x1b[2J",
    "a lone surrogate": "a\ud800b",
    "blanks at its ends": " a ",
}


def test_odd_names_are_refused_wherever_a_name_is_taken(admin: Client, ledger: Ledger) -> None:
    job = ledger.enqueue("k").id
    before = ledger.position()
    for case, name in ODD_NAMES.items():
        part = quote(name, safe="", errors="surrogatepass")
        requests: list[tuple[str, str, Any]] = [
            ("POST", "/v1/jobs", {"kind": name}),
            ("POST", "/v1/jobs", {"kind": "k", "queue": name}),
            ("POST", "/v1/jobs", {"kind": "k", "dedupe_key": name}),
            ("POST", "/v1/jobs", {"kind": "k", "correlation_id": name}),
            ("POST", "/v1/jobs", {"kind": "k", "tier": name}),
            ("POST", f"/v1/jobs/{job}/move", {"queue": name}),
            ("POST", "/v1/claims", {"queues": [name]}),
            ("POST", "/v1/tokens", {"role": "reader", "name": name}),
            ("POST", "/v1/keys", {"public": "x", "role": "worker", "name": name}),
            ("PUT", "/v1/duties/relay", {"holder": name}),
        ]
        if name:
            requests += [
                ("POST", f"/v1/queues/{part}/pause", {}),
                ("PATCH", f"/v1/policies/kinds/{part}", {"attempts_max": 3}),
                ("PUT", f"/v1/workers/{part}", {}),
                ("PUT", f"/v1/declarations/{part}", {}),
                ("PUT", f"/v1/duties/{part}", {"holder": "x"}),
            ]
        for method, path, body in requests:
            client = admin.acting(Holdfast_Actor="worker:w-1#b") if "claims" in path or "workers" in path else admin
            refused = client.send(method, path, body)
            assert refused.status in (400, 403, 413), (case, method, path, refused.body)
            assert len(refused.body) < 2_500
    assert ledger.position() == before and ledger.paused() == {}


def test_a_name_that_looks_alike_is_another_name(served: RunningServer, ledger: Ledger) -> None:
    shop = served.client("client", "shop", queues=["mail"])
    for name in ("m\u0430il", "mail\u200b", "ma\u0131l", "MAIL", "m\uff41il", "mail.", "mail*"):
        assert shop.post("/v1/jobs", {"kind": "k", "queue": name}).status in (400, 403), name
    assert ledger.list() == []


TOO_LONG = (0, -1, "0s", "-1s", 315_360_000, "3650d", 1e18, "1e999", "", "soon", [1])


@pytest.mark.parametrize("ttl", TOO_LONG, ids=repr)
def test_a_lease_is_neither_nothing_nor_ten_years(admin: Client, worker: Client, ledger: Ledger, ttl: Any) -> None:
    job = ledger.enqueue("k").id
    before = ledger.position()
    for path in (f"/v1/jobs/{job}/claim", f"/v1/tasks/{job}/start", "/v1/tasks/resume"):
        refused = worker.post(path, {"ttl": ttl})
        assert refused.status in (400, 413), (path, refused.body)
    for field in ("lease_ttl", "heartbeat_interval"):
        assert admin.send("PATCH", "/v1/policies/kinds/k", {field: ttl}).status in (400, 413)
        assert admin.post("/v1/jobs", {"kind": "k", "policy": {field: ttl}}).status in (400, 413)
    assert admin.send("PUT", "/v1/duties/relay", {"holder": "x", "ttl": ttl}).status in (400, 413)
    assert ledger.position() == before


def test_times_are_within_limits(admin: Client, worker: Client, ledger: Ledger) -> None:
    job = ledger.enqueue("k").id
    before = ledger.position()
    for body in (
        {"delay": -1},
        {"delay": 1e18},
        {"delay": "9999999d"},
        {"available_at": "0000-01-01T00:00:00Z"},
    ):
        assert admin.post("/v1/jobs", {"kind": "k", **body}).status in (400, 413), body
        assert admin.post(f"/v1/jobs/{job}/reschedule", body).status in (400, 413), body
    for wait in ("nan", "inf", "-inf", "1e999"):
        for path in (f"/v1/jobs/{job}?wait={wait}", f"/v1/flow?max_age={wait}"):
            assert admin.get(path).status == 400, path
        assert worker.get(f"/v1/wake?wait_s={wait}").status == 400
    for wait_s in (-1, 31, 1e9):
        assert worker.post("/v1/claims", {"queues": ["q"], "wait_s": wait_s}).status == 400
    assert ledger.position() == before


FILES = frozenset({"/v1/jobs/export"})
"""A file of up to 100,000 jobs. It does not read `limit`."""
LISTS = [
    route.path
    for route in ROUTES
    if route.method == "GET" and route.path not in FILES and "limit" in {field.name for field in fields(route.query)}
]


@pytest.mark.parametrize("path", LISTS)
def test_a_list_has_a_limit(admin: Client, ledger: Ledger, path: str) -> None:
    ledger.enqueue("k")
    for limit in ("0", "-1", "1001", "1000000000", "9223372036854775808", "1" * 100):
        refused = admin.get(f"{path.replace('{job_id}', '1')}?limit={limit}")
        assert refused.status in (400, 413), (limit, refused.body)


def test_batches_have_a_limit(admin: Client, worker: Client, ledger: Ledger) -> None:
    fence = {"job_id": 1, "attempt": 1, "token": "0" * 32}
    many, chosen = limits.ENQUEUE_BATCH_MAX + 1, [{"id": number} for number in range(1, limits.PAGE_MAX + 2)]
    requests: list[tuple[Client, str, Any]] = [
        (admin, "/v1/jobs/batch", {"jobs": [{"kind": "k"}] * many}),
        (admin, "/v1/newest-replays", {"job_ids": list(range(1, many + 1))}),
        (admin, "/v1/jobs", {"kind": "k", "depends_on": list(range(1, many))}),
        (worker, "/v1/heartbeats", {"fences": [fence] * (limits.WRITE_BATCH_MAX + 1)}),
        (worker, "/v1/completions", {"completions": [{"fence": fence}] * (limits.WRITE_BATCH_MAX + 1)}),
        (worker, "/v1/claims", {"queues": ["q"], "limit": 100_000}),
        (worker, "/v1/claims", {"queues": [f"q{number}" for number in range(2_000)]}),
        *((admin, "/v1/batches", {"verb": verb, "jobs": chosen}) for verb in ("cancel", "discard", "requeue", "replay")),
        (admin, "/v1/batches", {"verb": "dead_letter", "jobs": chosen, "reason_code": "timeout"}),
        (admin, "/v1/sweep", {"limit": 10**9}),
        (admin, "/v1/prune", {"batch": 10**9}),
        (admin, "/v1/tokens", {"role": "reader", "name": "x", "queues": ["q*"] * 10_000}),
    ]
    for client, path, body in requests:
        refused = client.post(path, body)
        assert (refused.status, refused.data.get("code")) == (413, "limit_exceeded"), (path, refused.body)
    assert ledger.list() == []


# Keys


def test_one_key_in_parallel_has_one_effect(served: RunningServer, ledger: Ledger) -> None:
    shop = served.client("client", "shop")
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda _: shop.post("/v1/jobs", {"kind": "k"}, Idempotency_Key="once"), range(32)))
    assert {(answer.data["job"]["id"]) for answer in answers} == {1}, [answer.body for answer in answers]
    assert len(ledger.list()) == len(ledger.events()) == 1


# Guesses


def test_the_labels_of_metrics_are_limited(admin: Client) -> None:
    made = admin.post("/v1/jobs/batch", {"jobs": [{"kind": f"k{number}", "queue": f"q{number}"} for number in range(300)]})
    assert made.status == 201
    shown = admin.get("/metrics").body.decode()
    for label in ("kind", "queue"):
        found = set(re.findall(rf'{label}="([^"]*)"', shown))
        assert 1 < len(found) <= NAMES_MAX + 1, (label, len(found))
