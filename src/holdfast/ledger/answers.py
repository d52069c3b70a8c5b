"""Answers on their way out, and the short form in which they are kept for a repetition."""

from typing import Any, NamedTuple

import msgspec

from holdfast import errors
from holdfast.core.model import Job
from holdfast.ledger.requests import Result
from holdfast.store.base import Change, Made


class Found(NamedTuple):
    """A job that an enqueue or a replay answered with."""

    job: Job
    is_new: bool


class Item(msgspec.Struct, frozen=True, omit_defaults=True):
    """A job at a revision, which its events can rebuild; or a refusal within a batch."""

    job_id: int = 0
    rev: int = 0
    is_new: bool = True
    code: str = ""
    message: str = ""

    def error(self) -> errors.HoldfastError | None:
        return _BY_CODE[self.code](self.message) if self.code else None


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    items: tuple[Item, ...]
    token: str | None = None


def _leaves(kind: type[errors.HoldfastError]) -> list[type[errors.HoldfastError]]:
    return [kind, *(leaf for sub in kind.__subclasses__() for leaf in _leaves(sub))]


_BY_CODE = {kind.code: kind for kind in reversed(_leaves(errors.HoldfastError))}
"""What stands nearest to the root speaks for a code: errors further down may be made of more than a message."""
_decoder = msgspec.json.Decoder(Answer)


NONE = msgspec.json.encode(Answer(()))


def decode(body: bytes) -> Answer:
    return _decoder.decode(body)


def encode(result: Result) -> bytes:
    verb, answers = result.request.verb, result.answers
    found = answers[0] if verb in ("claim", "replay_many") else answers
    token = answers[0].token if verb == "claim_job" else getattr(result.request.commands[0], "token", None)
    return msgspec.json.encode(Answer(tuple(_item(answer) for answer in found), token))


def _item(answer: Any) -> Item:
    match answer:
        case Made():
            return Item(answer.job_id, 1)
        case Found():
            return Item(answer.job.id, answer.job.rev, answer.is_new)
        case Change():
            return Item(answer.job_id, answer.rev)
        case Job():
            return Item(answer.id, answer.rev)
        case errors.HoldfastError():
            return Item(code=answer.code, message=answer.message)
    raise TypeError(f"an answer of type {type(answer).__name__}")
