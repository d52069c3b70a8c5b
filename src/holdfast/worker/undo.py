"""The handler of undo jobs. An undo job runs the undo steps of a job that did not succeed. Every worker has this handler."""

import contextlib
import inspect
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from holdfast.core.model import SYSTEM, UNDO_KIND
from holdfast.core.payloads import UndoStep
from holdfast.errors import JobCancelled, LeaseConflictError, NotFound, TransientError
from holdfast.ledger import Job
from holdfast.worker.context import Context
from holdfast.worker.failures import ClassifiedError, classify
from holdfast.worker.handlers import Handler, make_handler

if TYPE_CHECKING:
    from holdfast.worker.runtime import WorkerRuntime


def undo_handler(runtime: "WorkerRuntime") -> Handler:
    """Return a worker's handler of undo jobs. The handlers in the worker's registry run the steps."""
    return make_handler(UNDO_KIND, UndoRunner(runtime).run, isolation="thread", check_result=False)


class UndoRunner:
    def __init__(self, runtime: "WorkerRuntime") -> None:
        self._runtime = runtime

    def run(self, job: Context, job_id: int, steps: tuple[UndoStep, ...]) -> dict[str, int]:
        """Run the undo steps of job `job_id` one after another, the newest first.

        Each step is recorded when it is done. Neither a later attempt nor a replay runs a recorded step again.
        """
        recorded = self._recorded_progress(job)
        for number in range(recorded["done"], len(steps)):
            job.check_cancelled()
            self._run_step(job, steps[number], number, recorded.get("step") if number == recorded["done"] else None)
            job.checkpoint({"done": number + 1})
        with contextlib.suppress(NotFound):
            # Retention may have deleted the job before a late replay of its undo job.
            self._runtime.ledger.annotate(job_id, "compensated", actor=SYSTEM, request_id=f"undo-{job_id}")
        return {"done": len(steps)}

    def _recorded_progress(self, job: Context) -> dict[str, Any]:
        """Return the newest checkpoint of this undo job, or of the job that it replays."""
        source: Job = job.job
        with contextlib.suppress(NotFound):
            while not source.has_checkpoint and source.replay_of is not None:
                source = self._runtime.ledger.get(source.replay_of)
        return source.checkpoint or {"done": 0}

    def _run_step(self, job: Context, step: UndoStep, number: int, restored: Any) -> None:
        handler = self._runtime.registry.of_kind(step.kind)
        if handler is None:
            # Another worker may have the handler, or the next version of this one.
            raise TransientError(f"there is no handler here for {step.kind!r}, undo step {number + 1}")
        job.deadline = self._runtime.monotonic() + (math.inf if handler.timeout_s is None else handler.timeout_s)
        try:
            _call_handler(handler, step_context(handler, job, number, restored), bytes(step.args))
        except (JobCancelled, LeaseConflictError):
            raise
        except Exception as error:
            raise ClassifiedError(classify(error, handler.rules)) from error
        finally:
            job.deadline = math.inf


def _call_handler(handler: Handler, context: Context, body: bytes) -> None:
    """Run the handler in this thread, for every isolation."""
    args = handler.signature.read(body)
    result = handler.call(context, args)
    if inspect.iscoroutine(result):
        import asyncio

        with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
            runner.run(result)


class StepContext(Context):
    """The context of an undo step. Its checkpoint is stored next to the number of steps that are done."""

    _number = 0
    _restored: Any = None

    @property
    def restored(self) -> Any:
        return self._restored

    def checkpoint(self, state: Any) -> Any:
        save: Callable[[Any], Any] = super().checkpoint
        return save({"done": self._number, "step": state})


def step_context(handler: Handler, job: Context, number: int, restored: Any) -> Context:
    """Return a context of the class that the step's handler takes. It shares all attributes with the undo job's context."""
    context_class: Any = type("StepContext", (StepContext, handler.context_type), {"_number": number, "_restored": restored})
    context: Context = context_class.__new__(context_class)
    context.__dict__ = job.__dict__
    return context
