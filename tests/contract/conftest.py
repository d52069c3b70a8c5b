"""Agents of the ledger under test, and an empty schema for each test, which is emptied and reused, as are the connections."""

import contextlib
from collections.abc import Callable, Iterable, Iterator

import pytest

import holdfast
from holdfast import Ledger
from holdfast.agent import Agent
from holdfast.proof.keys import KeyFile
from holdfast.testing import ManualClock
from tests.contract import builders as b
from tests.support.host import Host
from tests.support.near import serves
from tests.support.signers import ALL_KEYS, SERVER, enrol, opened

OpenKeyed = Callable[[Iterable[KeyFile]], Ledger]


@pytest.fixture
def empty_schema(warm_url: str) -> str:
    return warm_url


_AGENT = "the verbs of agents have no fence that a proof could belong to"
_RENEWAL = "a signed lease is renewed by heartbeats: a claim has no fence that a proof could belong to"
_SERVER_KEY = "the server has its key, and signs for the system"
_OPERATOR = "an operator signs near the database"
_VOUCHES = "the server's own key vouches for what an admin does"
SERVED = ("http", "http-postgres")
"""A server of a ledger on SQLite, and one on PostgreSQL."""
COUNTED = "a remote ledger is opened with a token, which is counted"
OF_A_STORE = "it looks at how a store settles the rows of one claim, and a server sends jobs with fences instead"
NOT_SERVED = {
    "test_append.py::test_a_holder_acknowledges_a_cancel_by_its_signature": _OPERATOR,
    "test_signed.py::test_an_agent_signs_its_events": _AGENT,
    "test_signed.py::test_an_agent_without_a_key_skips_tasks_that_require_signatures": _AGENT,
    "test_signed.py::test_an_agent_without_its_former_key_takes_another_task": _AGENT,
    "test_signed.py::test_a_renewing_claim_is_a_signed_beat": _RENEWAL,
    "test_signed.py::test_a_signed_renewal_for_another_ttl_keeps_the_fence": _RENEWAL,
    "test_signed.py::test_a_fence_without_a_worker_name_is_accepted": "a server is told who acts",
    "test_fences.py::test_the_worker_name_in_a_fence_is_not_compared": "a server compares it with the token of the caller",
    "test_signed.py::test_a_gc_without_the_server_key_skips_signed_jobs": _SERVER_KEY,
    "test_signed.py::test_a_sweeper_without_the_server_key_skips_signed_jobs": _SERVER_KEY,
    "test_signed.py::test_a_sweeper_that_cannot_sign_drops_its_duty": _SERVER_KEY,
    "test_signed.py::test_a_stall_by_id_needs_the_server_key": _SERVER_KEY,
    "test_signed.py::test_a_late_holder_waits_for_a_process_with_the_server_key": _SERVER_KEY,
    "test_signed.py::test_the_system_signs_the_outcome_of_an_undo_job": _SERVER_KEY,
    "test_signed.py::test_a_server_key_that_was_revoked_signs_nothing": _SERVER_KEY,
    "test_signed.py::test_changes_by_operators_are_signed_with_their_key": _OPERATOR,
    "test_signed.py::test_lowering_the_signed_policy_requires_a_key": _VOUCHES,
    "test_signed.py::test_a_change_keeps_the_other_fields": _VOUCHES,
    "test_signed.py::test_a_declaration_lowers_signed_only_with_a_key": _VOUCHES,
    "test_access.py::test_an_expired_token_does_not_count": COUNTED,
    "test_access.py::test_tokens_that_a_server_made_for_itself_do_not_count": COUNTED,
    "test_preconditions.py::test_a_role_that_the_table_allows_is_the_actor_of_the_event": "no caller acts as the system by name",
    "test_settle_many.py::test_a_claim_that_is_settled_at_once_looks_like_single_completions": OF_A_STORE,
    "test_settle_many.py::test_a_late_claim_is_settled_by_the_usual_way": OF_A_STORE,
    "test_settle_many.py::test_an_older_attempt_cannot_settle_a_claim": OF_A_STORE,
    "test_settle_many.py::test_batches_of_several_callers_keep_their_own_ids": OF_A_STORE,
    "test_settle_many.py::test_only_jobs_of_one_claim_can_be_settled_alike": OF_A_STORE,
    "test_settle_many.py::test_settling_a_claim_again_changes_nothing": OF_A_STORE,
    "test_settle_many.py::test_settling_a_claim_leaves_out_jobs_that_were_lost": OF_A_STORE,
    "test_until_ready.py::test_queues_with_a_job_that_can_be_claimed_now": "a server asks its own ledger",
}
"""Tests of what a remote ledger does not have, and why."""


ON_POSTGRES = {"test_claiming.py", "test_readings.py", "test_request_ids.py"}
"""The files that also run through a server on PostgreSQL: claims, keys of requests, and answers whose SQL differs most.

All files run on PostgreSQL, and through a server on SQLite. All of them through both would take as long as both together.
"""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test on both stores, and on a server if it uses `ledger` or `signing` and is not one of `NOT_SERVED`."""
    if "store_url" not in metafunc.fixturenames:
        return
    file = metafunc.definition.path.name
    kinds = ["sqlite", "postgres"]
    if not {"ledger", "signing"}.isdisjoint(metafunc.fixturenames) and f"{file}::{metafunc.function.__name__}" not in NOT_SERVED:
        kinds += [kind for kind in SERVED if kind == "http" or file in ON_POSTGRES]
    metafunc.parametrize("store_url", kinds, indirect=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out `b.aborting` through a server: it cancels as an operator, who signs near the database."""
    left_out = {
        item
        for item in items
        if isinstance(item, pytest.Function)
        and hasattr(item, "callspec")
        and item.callspec.params.get("store_url") in SERVED
        and "signing" in item.fixturenames
        and b.aborting in item.callspec.params.values()
    }
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    """The server of a module's tests. Each of them has a ledger of its own."""
    with Host() as host:
        yield host


@pytest.fixture
def store_url(request: pytest.FixtureRequest) -> str:
    """The address of an empty store of each kind. For those of `SERVED`, `ledger` is open on a server of it."""
    found: str = request.getfixturevalue("empty_schema" if request.param.endswith("postgres") else "sqlite_url")
    return found


@pytest.fixture
def ledger(
    request: pytest.FixtureRequest, store_url: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Ledger]:
    """An empty ledger on each kind of store, and on a server."""
    with holdfast.open(store_url, clock=clock) as ledger:
        if request.node.callspec.params["store_url"] in SERVED:
            host: Host = request.getfixturevalue("host")
            monkeypatch.setattr("holdfast.server.readings.OVERVIEW_SECONDS", 0.0)  # tests change the ledger and look again
            with (
                host.serving(ledger) as server,
                holdfast.open(server.url, token=server.client().token) as remote,
                serves(ledger, remote),
            ):
                yield remote
        else:
            yield ledger


@pytest.fixture
def ada(ledger: Ledger) -> Agent:
    return Agent(ledger, "ada")


@pytest.fixture
def bob(ledger: Ledger) -> Agent:
    return Agent(ledger, "bob")


@pytest.fixture
def open_keyed(request: pytest.FixtureRequest, store_url: str, clock: ManualClock) -> Iterator[OpenKeyed]:
    """Opens the ledger under test with keys. A server has only its own key: the others sign in the remote ledger."""
    with contextlib.ExitStack() as stack:
        if request.node.callspec.params["store_url"] in SERVED:
            served = stack.enter_context(opened(store_url, clock, [SERVER]))
            server = stack.enter_context(request.getfixturevalue("host").serving(served))
            token = server.client().token
            yield lambda keys: stack.enter_context(opened(server.url, clock, keys, token=token))
        else:
            yield lambda keys: stack.enter_context(opened(store_url, clock, keys))


@pytest.fixture
def signing(open_keyed: OpenKeyed) -> Ledger:
    """A ledger with all keys."""
    ledger = open_keyed(ALL_KEYS)
    enrol(ledger)
    return ledger
