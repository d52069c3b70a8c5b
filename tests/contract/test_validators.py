"""Validators and conflict detectors run for every completion. A refused result changes nothing."""

from collections.abc import Iterator
from typing import Any

import pytest

import holdfast
from holdfast import App, Job, Ledger
from holdfast.agent import Agent
from holdfast.errors import RefusedByValidator, TransientError
from holdfast.ledger.validators import Hooks
from holdfast.testing import ManualClock
from tests.contract.builders import WORKER, claimed, queued, refused, refused_without_trace, running, types
from tests.contract.test_append import own_envelope
from tests.support.signers import ALL_KEYS, enrol
from tests.support.validating import validating


class Looked:
    """A validator that records its arguments and accepts results above zero."""

    def __init__(self) -> None:
        self.shown: list[tuple[int, Any]] = []

    def __call__(self, job: Any, result: Any) -> bool:
        self.shown.append((job.id, result))
        return result is not None and result > 0


@pytest.fixture
def looked() -> Looked:
    return Looked()


@pytest.fixture
def strict(ledger: Ledger, store_url: str, clock: ManualClock, looked: Looked) -> Iterator[Ledger]:
    """The same ledger, with a validator for the kind of the builders."""
    with holdfast.open(store_url, clock=clock, validators=validating("index_page", looked)) as opened:
        yield opened


def test_a_result_that_is_refused_leaves_the_job_running(strict: Ledger, looked: Looked) -> None:
    made = running(strict)
    with refused_without_trace(strict, "refused_by_validator") as caught:
        strict.complete(made.fence, -1)
    assert "Looked" in caught.value.message and caught.value.context == {"job_id": made.id, "attempt": 1}
    assert not caught.value.retryable
    assert strict.get(made.id).status == "running"
    assert strict.complete(made.fence, 1).status == "succeeded"
    assert looked.shown == [(made.id, -1), (made.id, 1)]


def test_the_caller_gets_the_validators_message(ledger: Ledger, store_url: str, clock: ManualClock) -> None:
    def short(job: Job, result: str) -> None:
        if len(result) > 5:
            raise ValueError(f"{job.kind} of attempt {job.attempt} is too long")

    def exits(job: Job, result: str) -> None:
        if result == "exit":
            raise SystemExit(1)

    def busy(job: Job, result: str) -> None:
        if result == "busy":
            raise TransientError("another process has changed it")

    made = running(ledger)
    with holdfast.open(store_url, clock=clock, validators=validating("index_page", short, exits, busy)) as strict:
        for result, words, retryable in (
            ("a long story", "ValueError: index_page of attempt 1 is too long", False),
            ("exit", "SystemExit: 1", False),
            ("busy", "another process has changed it", True),
        ):
            with refused_without_trace(strict, "refused_by_validator") as caught:
                strict.complete(made.fence, result)
            assert words in caught.value.message and caught.value.retryable is retryable
        assert strict.complete(made.fence, "short").status == "succeeded"


def test_validators_do_not_see_jobs_of_other_kinds(strict: Ledger, looked: Looked) -> None:
    made = running(strict, kind="other")
    assert strict.complete(made.fence, -1).status == "succeeded"
    assert looked.shown == []


def test_in_a_batch_only_the_refused_ones_are_refused(strict: Ledger) -> None:
    good, bad, other = running(strict), running(strict), running(strict, kind="other")
    answers = strict.complete_many([(bad.fence, -1), (good.fence, 1), (other.fence, -1)], request_id="r1")
    assert [getattr(answer, "code", None) for answer in answers] == ["refused_by_validator", None, None]
    assert [strict.get(made.id).status for made in (good, bad, other)] == ["succeeded", "running", "succeeded"]
    again = strict.complete_many([(bad.fence, -1), (good.fence, 1), (other.fence, -1)], request_id="r1")
    assert [getattr(answer, "code", None) for answer in again] == ["refused_by_validator", None, None]
    assert [isinstance(answer, RefusedByValidator) for answer in again] == [True, False, False]


def test_a_refused_request_may_be_sent_again_with_another_result(strict: Ledger) -> None:
    made = running(strict)
    with refused("refused_by_validator"):
        strict.complete(made.fence, -1, request_id="r1")
    assert strict.complete(made.fence, 1, request_id="r1").status == "succeeded"


def test_a_repeated_request_is_not_validated_again(strict: Ledger, looked: Looked) -> None:
    made = running(strict)
    first = strict.complete(made.fence, 1, request_id="r1")
    assert strict.complete(made.fence, 1, request_id="r1") == first
    assert looked.shown == [(made.id, 1)]


def test_a_lost_fence_is_reported_before_any_validator(strict: Ledger, looked: Looked, clock: ManualClock) -> None:
    made = running(strict)
    clock.advance(61)
    strict.claim_job(made.id, "w-2")
    with refused_without_trace(strict, "fence_lost"):
        strict.complete(made.fence, -1)
    assert looked.shown == []
    unstarted = claimed(strict)
    with refused_without_trace(strict, "invalid_transition"):
        strict.complete(unstarted.fence, -1)


def test_a_result_of_a_late_holder_is_validated(strict: Ledger, clock: ManualClock) -> None:
    made = running(strict)
    clock.advance(61)
    with refused_without_trace(strict, "refused_by_validator"):
        strict.complete(made.fence, -1)
    assert strict.complete(made.fence, 1).status == "succeeded"
    assert types(strict, made.id)[-3:] == ["stalled", "resumed", "succeeded"]


def test_a_completion_with_the_gate_is_validated(strict: Ledger) -> None:
    made = running(strict)
    with refused_without_trace(strict, "refused_by_validator"):
        strict.complete(made.fence, -1, gate=True)
    assert strict.complete(made.fence, 1, gate=True).status == "succeeded"


def test_an_agent_is_refused_and_keeps_its_task(strict: Ledger, looked: Looked) -> None:
    ada, bob, made = Agent(strict, "ada"), Agent(strict, "bob"), queued(strict)
    ada.start(made.id)
    with refused_without_trace(strict, "refused_by_validator") as caught:
        ada.complete(made.id, -1, request_id="r1")
    assert "Looked" in caught.value.message
    with refused_without_trace(strict, "fence_lost"):
        bob.complete(made.id, -1)
    assert ada.resume().why == "focus"
    assert ada.complete(made.id, 2, request_id="r1").status == "succeeded"
    assert ada.complete(made.id, 2, request_id="r1").replayed is True
    assert looked.shown == [(made.id, -1), (made.id, 2)]


def test_an_appended_signed_success_is_validated(ledger: Ledger, store_url: str, clock: ManualClock, looked: Looked) -> None:
    with holdfast.open(store_url, clock=clock, keys=list(ALL_KEYS), validators=validating("index_page", looked)) as strict:
        enrol(strict, [*ALL_KEYS])
        made = running(strict, policy={"signed": "all"})
        with refused_without_trace(strict, "refused_by_validator"):
            strict.append(own_envelope(strict, made, "succeeded", body=b'{"result":-1}'), content=-1)
        accepted = own_envelope(strict, made, "succeeded", body=b'{"result":1}')
        assert strict.append(accepted, content=1).to_status == "succeeded"
        assert strict.append(accepted, content=1).to_status == "succeeded"
        assert looked.shown == [(made.id, -1), (made.id, 1)]


def test_validators_and_conflict_detectors_of_an_app(ledger: Ledger, store_url: str, clock: ManualClock) -> None:
    app = App(store_url, clock=clock)

    @app.validator
    def positive(job: Any, result: int) -> bool:
        return result > 0

    def taken(job: Any, result: int) -> bool:
        return bool(result != 7)

    def exact(job: Any, result: int) -> bool:
        return bool(result == job.job.args["n"] or result == 7)

    @app.handler("index_page", validators=exact, conflicts=taken)
    def index_page(n: int) -> int:
        return n

    with holdfast.open(store_url, clock=clock, validators=app) as strict:
        for opened in (strict, app.ledger):
            made, bare = running(opened), running(opened, kind="unhandled")
            for result, words, retryable in (
                (-1, "positive refused", False),
                (2, "exact refused", False),
                (7, "taken found a conflict", True),
            ):
                with refused_without_trace(opened, "refused_by_validator") as caught:
                    opened.complete(made.fence, result)
                assert words in caught.value.message and caught.value.retryable is retryable
                assert ("complete it again later" in caught.value.action) is retryable
            assert opened.complete(made.fence, 1).status == "succeeded"
            with refused_without_trace(opened, "refused_by_validator"):
                opened.complete(bare.fence, -1)
            assert opened.complete(bare.fence, 7).status == "succeeded"
    app.close()


def test_a_validator_sees_the_job_without_its_fence(ledger: Ledger, store_url: str, clock: ManualClock) -> None:
    seen: list[Any] = []
    made = running(ledger)
    with holdfast.open(
        store_url, clock=clock, validators=validating("index_page", lambda job, result: seen.append(job))
    ) as strict:
        strict.complete(made.fence, {"n": 1})
    [job] = seen
    assert job.job is job
    assert (isinstance(job, Job), job.owner, job.status, job.args, job.fence, job.record.token) == (
        True,
        WORKER,
        "running",
        {"n": 1},
        None,
        None,
    )


async def _later(job: Job, result: Any) -> bool:
    return True


@pytest.mark.parametrize(
    "given",
    [1, "app", [print], {"kind": print}],
    ids=["number", "text", "list", "functions by kind"],
)
def test_values_that_are_not_validators_are_refused(store_url: str, given: Any) -> None:
    with refused("validation_error"):
        holdfast.open(store_url, validators=given)


@pytest.mark.parametrize("given", [["text"], [print, None], _later], ids=["a text", "one of two", "async"])
def test_a_validator_is_a_plain_function(given: Any) -> None:
    with refused("validation_error"):
        App("sqlite:///none.db").handler("index_page", validators=given)(lambda: None)


def test_a_job_that_is_claimed_meanwhile_is_validated(ledger: Ledger, store_url: str, clock: ManualClock, looked: Looked) -> None:
    class Claiming:
        """Another process of the agent claims the job just after this one has read it."""

        def has_hooks(self) -> bool:
            return True

        def hooks_of(self, kind: str) -> Hooks:
            Agent(ledger, "ada").start(made.id)
            return Hooks((looked,))

    made = queued(ledger)
    with holdfast.open(store_url, clock=clock, validators=Claiming()) as opened:
        with refused("refused_by_validator") as caught:
            Agent(opened, "ada").complete(made.id, -1)
        assert caught.value.retryable
        assert (ledger.get(made.id).status, looked.shown) == ("running", [])
        assert Agent(opened, "ada").complete(made.id, 1).status == "succeeded"
    assert looked.shown == [(made.id, 1)]


class _AsyncCall:
    async def __call__(self, job: Any, result: Any) -> bool:
        return False


async def _refuse(job: Any, result: Any) -> bool:
    return False


def _in_a_while(job: Any, result: Any) -> Any:
    return _refuse(job, result)


def _generate(job: Any, result: Any) -> Iterator[bool]:
    yield False


@pytest.mark.parametrize("validator", [_AsyncCall(), _in_a_while, _generate])
def test_an_async_or_generator_validator_refuses_every_result(
    ledger: Ledger, store_url: str, clock: ManualClock, validator: Any
) -> None:
    made = running(ledger)
    with (
        holdfast.open(store_url, clock=clock, validators=validating("index_page", validator)) as opened,
        refused_without_trace(opened, "refused_by_validator") as caught,
    ):
        opened.complete(made.fence, 1)
    assert "must be a plain function" in caught.value.message


def test_an_app_without_validators_reads_no_job(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    app = holdfast.App(store_url)
    made = running(app.ledger)
    reads: list[object] = []
    whole = app.ledger._store.read

    def read(work: Any) -> Any:
        reads.append(work)
        return whole(work)

    monkeypatch.setattr(app.ledger._store, "read", read)
    app.ledger.complete(made.fence)
    assert reads == []
    app.validator(lambda job, result: True)
    again = running(app.ledger)
    reads.clear()
    app.ledger.complete(again.fence)
    assert len(reads) == 1
    app.close()
