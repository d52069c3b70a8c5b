"""Every limit and its number, and the checks of short texts and numbers that apply them."""

import unicodedata
from typing import Any

from holdfast.errors import LimitExceeded, ValidationError

NAME_BYTES_MAX = 200
"""Queues, kinds, workers, actors, tiers, stages."""
KEY_BYTES_MAX = 500
"""Request ids, dedupe keys, correlation and trace ids."""
REASON_BYTES_MAX = 1_000
PAYLOAD_BYTES_MAX = 1_048_576
"""Args of a job, and its result."""
ERROR_BYTES_MAX = 16_384
CHECKPOINT_BYTES_MAX = 262_144
UNDO_BYTES_MAX = 65_536
"""Args of one undo step."""
UNDO_STEPS_MAX = 1_000
"""Undo steps of one job."""
UNDO_BATCH_MAX = 100
"""Jobs whose compensation one sweep starts or notes."""
DEPENDENCIES_MAX = 1_000
"""Jobs that one job may wait for."""
DEPENDENTS_MAX = 10_000
"""Jobs that may ever wait for one job: its end tells all of them in its own transaction."""
CASCADE_MAX = 10_000
"""Jobs that an end brings down with it in one transaction; a sweep goes on with the others."""
UNTOLD_BATCH_MAX = 1_000
"""Ends that were too much for one transaction and that a sweep takes up at once."""
NESTING_MAX = 64
INTEGER_MAX = 2**53 - 1
"""What every JSON reader can hold exactly."""
ENQUEUE_BATCH_MAX = 10_000
CLAIM_BATCH_MAX = 1_000
WRITE_BATCH_MAX = 100_000
"""Items in one complete_many or heartbeat_many; the store sees them in chunks."""
WRITE_CHUNK = 1_000
PAGE_MAX = 1_000
SEARCHED_MAX = 100_000
"""Jobs that one search by time looks at."""
SEARCHED_TEXT_MAX = 10_000
"""Jobs that one search by text looks at: it reads their arguments too."""
NAMES_PER_CLAIM_MAX = 1_000
PRIORITY_MAX = 1_000
DELAY_US_MAX = 10 * 366 * 86_400 * 1_000_000
TIME_US_MAX = 253_402_300_799_000_000
"""The last second of the year 9999."""
JOB_ID_MAX = 2**63 - 1
REV_MAX = 2**31 - 1
"""Revisions and attempts of one job."""
LEASE_MS_MIN = 1_000
LEASE_MS_MAX = 3_600_000
PRUNE_BATCH_MAX = 10_000
SWEEP_MAX = 10_000
SWEEP_BATCH = 200
"""Jobs that a sweep takes through one transaction, so that others get their turn in between."""
DUTY_MS_MAX = 3_600_000
ENVELOPE_BYTES_MAX = 16_384
"""A signed event from elsewhere: its statement, key and signature."""
SKEW_US_MAX = 300_000_000
"""How far a signer's clock may be from the ledger's, either way."""
WORKER_BYTES_MAX = 16_384
"""What a worker says of itself."""
AGENT_VALUE_BYTES_MAX = 16_384
"""Args, a checkpoint, an error or a result in the answer to an agent's start or resume; what is longer is left out of it."""
AGENT_KEPT_MS = 30 * 86_400_000
"""How long workers keep where an agent stood that holds nothing; then it begins like a new one."""
BRIEF_EVENTS_MAX = 50
"""Events in a brief."""
BRIEF_COUNT_MAX = 10_000
"""How far the events that a brief leaves out are counted."""
BRIEF_PAYLOAD_MAX = 1_024
"""A payload in the history of a brief; what is longer is left out of it."""
BRIEF_CHECKPOINTS_MAX = 5
"""Earlier attempts whose checkpoints a brief shows."""
BRIEF_RELATED_MAX = 20
"""Tasks in a brief that wait for the one it is about, and that this one waits for."""
BLOCKERS_NAMED_MAX = 5
"""Tasks that a refusal names where a task waits for them."""
CHECKPOINT_EVENTS_MAX = 5_000
"""How many of a task's newest events are searched for them."""
CHECKPOINT_BEATS_MAX = 20
"""Beats of each of those attempts that are read for one with a checkpoint."""
OWN_TASKS_MAX = 100
"""Tasks of its own that a resume looks at."""
RESUME_TRIES_MAX = 100
"""Queues and priorities, and then expired claims, at which a resume tries to get a task."""
IDLE_COUNT_MAX = 1_000
"""How far the tasks are counted that a resume could not take."""
MCP_PAGE_MAX = 100
"""Tasks or events in one answer of the MCP server."""
MCP_TEXT_CHARACTERS_MAX = 4_000
"""Each of a task's contents in the words of such an answer; its structured part has them whole."""
MCP_PIECE_CHARACTERS_MAX = 65_536
"""A piece of a task's contents in one answer of the MCP server."""
MCP_ROW_BYTES_MAX = 160
"""Args in a row of a list; what is longer is left out of it."""
MCP_BODY_BYTES_MAX = 4_194_304
"""What a client sends to the MCP server at once."""
MCP_SESSIONS_MAX = 1_000
"""Sessions that an MCP server has open, and sessions it holds tasks for."""
MCP_TOKENS_MAX = 16
"""Tokens of an MCP server over HTTP. Each is a client with an equal share of its sessions and requests."""
MCP_REFUSALS_LOGGED_MAX = 10
"""Refused tokens that an MCP server over HTTP logs in a minute; further ones are counted in the next line."""
MCP_CONNECTIONS_MAX = 800
"""Connections to an MCP server over HTTP; beyond that, the one that has waited longest for its client is closed."""
MCP_REQUESTS_MAX = 640
"""Requests that it serves at once, open streams among them."""
MCP_HEAD_MS_MAX = 10_000
"""How long a client may take for the head of a request."""
MCP_REQUEST_MS_MAX = 60_000
"""How long it may take for the body."""
MCP_IDLE_MS_MAX = 86_400_000
"""How long an MCP server may hold tasks for a client that does not call."""
RUN_BYTES_MAX = 65_536
"""What a supervisor keeps of its run."""
TYPED_BYTES_MAX = 16_777_216
"""JSON that a command reads from a file or from standard input, blanks included."""
TYPED_LINES_BYTES_MAX = 268_435_456
"""All lines of `job enqueue --lines`."""
SEAL_MS_MIN = 50
SEAL_MS_MAX = 3_600_000
"""How long an event may wait for a head of the sealed log."""
SEAL_EVENTS_MAX = 1_000_000
"""How many may."""
ANCHOR_MS_MAX = 86_400_000
"""How far apart the heads may be that an anchor is given."""
EXPORT_LINE_BYTES_MAX = 16_777_216
"""A row's longest texts, each byte of them escaped, and room to spare."""
EXPORT_HEADS_MAX = 1_000
"""The newest heads that an export tells of, beside the first."""
VERIFY_HEADS_MAX = 100_000
VERIFY_KEYS_BYTES_MAX = 16_777_216
VERIFY_ANCHOR_BYTES_MAX = 268_435_456


def check_text(what: str, value: Any, bytes_max: int) -> str:
    """`value`, if it is a printable text of 1 to `bytes_max` UTF-8 bytes without blanks at its ends."""
    if not isinstance(value, str):
        raise ValidationError(f"{what} must be a text, not {type(value).__name__}", field=what)
    text = value if type(value) is str else plain_text(value)
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise ValidationError(f"{what} holds a lone surrogate, which is not valid Unicode", field=what) from None
    if size > bytes_max:
        raise LimitExceeded(f"{what} has {size} bytes; the limit is {bytes_max}", field=what, actual=size, limit=bytes_max)
    if not text or text != text.strip() or not is_printable(text):
        raise ValidationError(
            f"{what} must be a printable text of at least one character, without blanks at its ends", field=what
        )
    return text


def plain_text(value: str) -> str:
    """The same text as a plain str, if it is of a kind of its own: encoders and drivers do not know those."""
    return str.__add__(value, "")


def is_printable(value: str) -> bool:
    """No control character, no lone surrogate, no line break, nothing Unicode has not assigned."""
    if value.isascii():
        return value.isprintable()
    return not any(unicodedata.category(character) in ("Cc", "Cs", "Cn", "Zl", "Zp") for character in value)


def check_name(what: str, value: Any) -> str:
    return check_text(what, value, NAME_BYTES_MAX)


def check_key(what: str, value: Any) -> str:
    return check_text(what, value, KEY_BYTES_MAX)


def check_integer(what: str, value: Any, low: int, high: int) -> int:
    """`value`, if it is a whole number from `low` to `high`. A bool is not a number here."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValidationError(f"{what} must be a whole number, not {type(value).__name__}", field=what)
    if not low <= value <= high:
        raise LimitExceeded(f"{what} must be from {low} to {high}", field=what, limit=[low, high])
    return int(value)


def check_count(what: str, count: int, most: int) -> None:
    if count > most:
        raise LimitExceeded(f"{what}: {count} at once; the limit is {most}", field=what, actual=count, limit=most)
