"""All limits, and the checks of short texts, numbers and counts."""

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
"""Jobs that may ever wait for one job. Its end updates all of them in its own transaction."""
CASCADE_MAX = 10_000
"""Jobs that the end of a job ends with it in one transaction. A sweep continues with the others."""
OPEN_CASCADE_BATCH_MAX = 1_000
"""Cascades that did not fit into one transaction and that one sweep continues. A sweep also links at most so many jobs."""
NESTING_MAX = 64
INTEGER_MAX = 2**53 - 1
"""The largest integer that every JSON reader can represent exactly."""
ENQUEUE_BATCH_MAX = 10_000
CLAIM_BATCH_MAX = 1_000
WRITE_BATCH_MAX = 100_000
"""Items in one complete_many or heartbeat_many. The store gets them in chunks of WRITE_CHUNK."""
WRITE_CHUNK = 1_000
BULK_MAX = 1_000
"""Jobs that one verb of an operator on many jobs takes. Their transactions have SWEEP_BATCH of them each."""
PAGE_MAX = 1_000
EVENTS_COUNTED_MAX = 100_000
"""How far the events that a sink or a sealer has not seen yet are counted."""
HISTORY_NAMES_MAX = 200
"""Queues, and kinds, with a history of their own. All others share one."""
TOTALS_MAX = 10_000
"""Rows of the answer of `job_totals`, one for each queue, kind and status."""
TIMELINE_BEATS_MAX = 2_000
"""Heartbeats that a timeline has one by one. More are counted by bins."""
TIMELINE_WIDTH_MAX = 4_000
"""Bins of a timeline."""
TIMELINE_MARKS_MAX = 500
TIMELINE_ATTEMPTS_MAX = 500
TIMELINE_SPANS_MAX = 100
"""Phases, leases and stalls of each attempt of a timeline."""
GRAPH_NODES_MAX = 500
GRAPH_EDGES_MAX = 10_000
GRAPH_DEPTH_MAX = 10
GROUPS_MAX = 200
"""Groups of dead letters."""
GROUPED_LETTERS_MAX = 10_000
"""Dead letters that are grouped, newest first."""
ATTENTION_MAX = 1_000
"""What waits for a person, in one answer."""
KIND_ERRORS_MAX = 10
"""Classes of errors of each kind, in the answer of `kinds`."""
ERRORS_READ_MAX = 2_000
"""Newest errors from which those are counted."""
OVERVIEW_QUEUES_MAX = 8
READY_HEADS_MAX = 20
"""Ready jobs that an overview reads for each priority of each queue."""
SEARCHED_MAX = 100_000
"""Jobs that one search by time looks at."""
SEARCHED_TEXT_MAX = 50_000
"""Jobs that one search by text looks at. It reads their arguments too."""
SORTED_MAX = 10_000
"""Newest jobs that a list sorts, if its order is not that of ids."""
NAMES_PER_CLAIM_MAX = 1_000
PRIORITY_MAX = 1_000
DELAY_US_MAX = 10 * 366 * 86_400 * 1_000_000
DEDUPE_FOR_MS_MIN = 1
DEDUPE_FOR_MS_MAX = 366 * 86_400_000
"""How long a job may keep its dedupe key also after its end, from its enqueue on."""
POSTPONE_DELAYS = 10
"""How often its delay a job may be postponed in all, unless the call says how long."""
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
"""Jobs per transaction of a sweep, so that other transactions run in between."""
TIDY_BATCH_MAX = 1_000
"""Claims per sweep whose next check is scheduled. The others are checked again with the next sweep."""
DUTY_MS_MAX = 3_600_000
SCHEDULES_MAX = 10_000
SCHEDULE_EVERY_MS_MIN = 1_000
SCHEDULE_EVERY_MS_MAX = 366 * 86_400_000
SCHEDULE_JITTER_MS_MAX = 86_400_000
FIRINGS_MAX = 100
"""Firings of one schedule in one transaction. The next sweep makes those that are left."""
FIRINGS_SHOWN_MAX = 1_000
"""Planned times in one preview."""
FIRING_LATE_MS = 60_000
"""A firing that is later than this was missed."""
MISSED_FIRINGS_COUNTED_MAX = 1_000
"""Missed firings of a schedule that are counted one by one after an outage."""
SCHEDULES_PER_SWEEP_MAX = 1_000
LIMITS_MAX = 1_000
"""Limits of a ledger."""
LIMITS_PER_JOB_MAX = 8
LIMIT_UNITS_MAX = 1_000_000
"""Units of one limit that a job draws."""
LIMIT_COUNT_MAX = 1_000_000_000
"""The numbers of a limit: concurrent units, units of a rate, burst."""
LIMIT_RATE_MS_MIN = 1
LIMIT_RATE_MS_MAX = 366 * 86_400_000
LIMIT_PATH_PARTS_MAX = 8
"""Names in the path of the argument that a limit is counted by."""
LABELS_PER_WORKER_MAX = 64
LABELS_REQUIRED_MAX = 16
"""Labels that a job requires."""
PARTITION_WEIGHT_MAX = 1_000
PARTITION_WEIGHTS_MAX = 10_000
"""Partitions of a queue that have a weight."""
SUBQUEUE_NOTES_MAX = 20_000
"""Notes about changed subqueues that one claim works through."""
SUBQUEUES_OPENED_MAX = 1_000
"""Subqueues that one claim opens because their time has come."""
SUBQUEUE_KEPT_MS = 86_400_000
"""How long a subqueue without jobs is kept."""
SLOTS_WALKED_MAX = 10_000
"""Claims that drew on limits that one step of pruning looks at."""
ROUTES_CHECKED_MAX = 1_000
"""Combinations of labels, worker, kind and queue that a diagnosis looks at, the newest first."""
SUBQUEUES_CHECKED_MAX = 10_000
"""Subqueues with limits that a diagnosis looks at, the newest first, and subqueues that wait for limits in a status."""
LIMIT_WAITING_MAX = 1_000
"""Jobs that wait for a limit, or for one of its keys, that are counted."""
SUBQUEUE_CLOSED_MS_MAX = 30_000
"""How long a subqueue with jobs may be closed until a claim looks at it again, in case a note was lost."""
CLAIM_ROUNDS_MAX = 64
"""Rounds of one claim in a queue with subqueues."""
UNFINISHED_GROUPS_MAX = 10_000
"""Groups that are not closed, or have jobs that have not ended. Finished groups are not counted."""
GROUP_JOBS_MAX = 1_000_000
"""Jobs that join a group. Calls that run at the same time do not see each other, and may exceed it together."""
GROUP_CHAIN_MAX = 16
"""Groups that follow one another: the follow-up job of each joins the next one."""
GROUP_FOLD_ROWS = 64
"""Changes of a group that may wait before they are added to its counts."""
GROUPS_PER_SWEEP_MAX = 1_000
ENVELOPE_BYTES_MAX = 16_384
"""A signed event from another system: its statement, key and signature."""
SKEW_US_MAX = 300_000_000
"""How far a signer's clock may be from the ledger's, either way."""
WORKER_BYTES_MAX = 16_384
"""The description that a worker stores when it signs in."""
AGENT_VALUE_BYTES_MAX = 16_384
"""Args, checkpoint, error or result in the answer to an agent's start or resume. Longer ones are left out."""
AGENT_KEPT_MS = 30 * 86_400_000
"""How long workers keep the state of an agent that holds no task. After that it is treated as a new agent."""
BRIEF_EVENTS_MAX = 50
"""Events in a brief."""
BRIEF_COUNT_MAX = 10_000
"""Where the count of the events that a brief leaves out stops."""
BRIEF_PAYLOAD_MAX = 1_024
"""A payload in the history of a brief. Longer ones are left out."""
BRIEF_CHECKPOINTS_MAX = 5
"""Earlier attempts whose checkpoints a brief shows."""
BRIEF_RELATED_MAX = 20
"""Tasks in a brief that wait for its task, and tasks that its task waits for."""
BLOCKERS_NAMED_MAX = 5
"""Tasks that a refusal names because the refused task waits for them."""
CHECKPOINT_EVENTS_MAX = 5_000
"""How many of a task's newest events are searched for checkpoints of earlier attempts."""
CHECKPOINT_BEATS_MAX = 20
"""Beats of each of those attempts that are read for one with a checkpoint."""
OWN_TASKS_MAX = 100
"""Tasks of the agent itself that a resume looks at."""
RESUME_TRIES_MAX = 100
"""Queues and priorities that a resume tries, and then expired claims, to get a task."""
IDLE_COUNT_MAX = 1_000
"""Where the count of the tasks that a resume could not take stops."""
HTTP_BODY_BYTES_MAX = 2_097_152
HTTP_BATCH_BYTES_MAX = 16_777_216
"""The body of a request of the HTTP server with many jobs."""
HTTP_ENVELOPE_BYTES_MAX = 16_384
HTTP_WAIT_SECONDS_MAX = 30.0
"""How long a claim, or a request for a job's end, may wait."""
HTTP_REQUESTS_WAITING_MAX = 512
"""Requests that may wait for a thread, for each kind of call."""
HTTP_CLAIMS_WAITING_MAX = 2_000
HTTP_CLAIMS_WAITING_OF_ONE_MAX = 16
HTTP_EXPORT_JOBS_MAX = 100_000
HTTP_FILES_MAX = 8
"""Exports and other files that one server sends at once."""
HTTP_STREAMS_MAX = 1_200
HTTP_STREAMS_OF_ONE_MAX = 20
HTTP_HEAD_BYTES_MAX = 16_384
"""The request line and the headers of a request to the HTTP server."""
HTTP_HEADERS_MAX = 100
HTTP_HEAD_MS_MAX = 10_000
"""How long a client may take for the head of a request."""
HTTP_BODY_MS_MAX = 30_000
HTTP_BODY_MS_PER_MIB = 1_000
"""How long a client may take for the body of a request: the first, and the second for each MiB."""
HTTP_IDLE_MS_MAX = 75_000
"""How long a connection without a request stays open."""
HTTP_LINGER_MS_MAX = 2_000
"""How long a server reads what a client sends after its answer, so that the client can read the answer."""
HTTP_CONNECTIONS_MAX = 4_096
"""Connections to one process of the HTTP server."""
HTTP_PRINCIPAL_REQUESTS_MAX = 64
"""Requests of one token or person that are under way at once."""
HTTP_PRINCIPAL_RATE = 2_000
"""Requests of one token or person in a second, on average."""
HTTP_PRINCIPAL_BURST = 4_000
"""Requests of one token or person that may come at once after a pause."""
HTTP_PRINCIPAL_MS = 5_000
"""How long a server remembers a valid token or session. A revocation takes effect within this time."""
HTTP_PRINCIPALS_MAX = 10_000
"""Tokens and sessions, and addresses with wrong tokens, that a server remembers."""
HTTP_WRONG_TOKENS_MAX = 20
"""Wrong tokens that one address may send in HTTP_WRONG_TOKENS_MS."""
HTTP_WRONG_TOKENS_MS = 60_000
HTTP_SIGN_INS_MAX = 8
"""Sign-ins of persons that wait for the identity provider at once. A further one is refused."""
OIDC_CODE_BYTES_MAX = 4_096
"""The code with which an OpenID Connect provider sends a browser back."""
OIDC_ANSWER_BYTES_MAX = 1_048_576
OIDC_ANSWER_MS_MAX = 10_000
"""How long a server waits for the answers of the provider that one step of a sign-in needs."""
OIDC_KEYS_MS = 3_600_000
"""How long the configuration and the keys of the provider are kept."""
OIDC_KEYS_ANEW_MS = 60_000
"""How often at most they are read anew because of a signature by an unknown key."""
OIDC_SKEW_MS = 60_000
"""How far the provider's clock may be from the server's."""
TLS_FILE_BYTES_MAX = 1_048_576
"""The file with the key of a certificate."""
REDACT_PATTERNS_MAX = 1_000
"""Patterns of contents that readers do not see."""
MCP_PAGE_MAX = 100
"""Tasks or events in one answer of the MCP server."""
MCP_TEXT_CHARACTERS_MAX = 4_000
"""Each of a task's contents in the text of such an answer. The structured part has them complete."""
MCP_PIECE_CHARACTERS_MAX = 65_536
"""A piece of a task's contents in one answer of the MCP server."""
MCP_ROW_BYTES_MAX = 160
"""Args in a row of a list. Longer ones are left out."""
MCP_BODY_BYTES_MAX = 4_194_304
"""One message of a client to the MCP server."""
MCP_SESSIONS_MAX = 1_000
"""Sessions that an MCP server has open, and sessions it holds tasks for."""
MCP_SESSIONS_OF_ONE_MAX = 62
"""The same sessions of one token of a server."""
MCP_IDLE_MS_MAX = 86_400_000
"""How long an MCP server may hold tasks for a client that does not call."""
TOKEN_PATTERNS_MAX = 100
"""Patterns of queues, and of actors, of one token."""
TOKEN_MS_MIN = 60_000
TOKEN_MS_MAX = 3_660 * 86_400_000
"""How long a token that expires may be valid."""
TOKEN_USE_MS = 3_600_000
"""How often at most the last use of a token is recorded."""
SESSION_IDLE_MS = 12 * 3_600_000
"""How long a browser session lasts without a request."""
SESSION_MS_MAX = 7 * 86_400_000
"""How long a browser session lasts at most."""
SESSION_USE_MS = 60_000
"""How often at most the last request of a session is recorded."""
SESSIONS_PER_OWNER_MAX = 100
"""Sessions of one token, or of one person. Another one ends the session that was used least recently."""
LOGIN_CODE_MS = 600_000
"""How long a login code can be used."""
RUN_BYTES_MAX = 65_536
"""The stored state of a supervisor's run."""
TYPED_BYTES_MAX = 16_777_216
"""JSON that a command reads from a file or from standard input, including blanks."""
TYPED_LINES_BYTES_MAX = 268_435_456
"""All lines of `job enqueue --lines`."""
SEAL_MS_MIN = 50
SEAL_MS_MAX = 3_600_000
"""How long an event may wait until a head of the sealed log covers it."""
SEAL_EVENTS_MAX = 1_000_000
"""How many events may wait for a head."""
ANCHOR_MS_MAX = 86_400_000
"""The longest time between two heads that are sent to an anchor."""
EXPORT_LINE_BYTES_MAX = 16_777_216
"""A line of an export. It is enough for a row's longest texts with each byte escaped."""
EXPORT_HEADS_MAX = 1_000
"""The newest heads in an export, besides the first head."""
VERIFY_HEADS_MAX = 100_000
VERIFY_KEYS_BYTES_MAX = 16_777_216
VERIFY_ANCHOR_BYTES_MAX = 268_435_456


def check_text(what: str, value: Any, bytes_max: int) -> str:
    """Return `value` if it is a printable text of 1 to `bytes_max` UTF-8 bytes without blanks at its ends."""
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
    """Return a subclass of str as a plain str, because encoders and drivers do not accept subclasses."""
    return str.__add__(value, "")


def is_printable(value: str) -> bool:
    """Return whether `value` has no control character, lone surrogate, line break or unassigned character."""
    if value.isascii():
        return value.isprintable()
    return not any(unicodedata.category(character) in ("Cc", "Cs", "Cn", "Zl", "Zp") for character in value)


def check_name(what: str, value: Any) -> str:
    return check_text(what, value, NAME_BYTES_MAX)


def check_key(what: str, value: Any) -> str:
    return check_text(what, value, KEY_BYTES_MAX)


def check_integer(what: str, value: Any, low: int, high: int, field: str | None = None) -> int:
    """Return `value` if it is a whole number from `low` to `high`. A bool is not a number here.

    Messages name it as `what`, and errors carry the name of the field, which is `what` too if none is given.
    """
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValidationError(f"{what} must be a whole number, not {type(value).__name__}", field=field or what)
    if not low <= value <= high:
        raise out_of_range(what, f"{low} to {high}", low, high, field)
    return int(value)


def out_of_range(what: str, words: str, low: int, high: int, field: str | None = None) -> LimitExceeded:
    """Return the error for a number that is not in its range, which `words` tell in the caller's unit."""
    action = f"Give a value from {words}."
    return LimitExceeded(f"{what} must be from {words}", action=action, field=field or what, limit=[low, high])


def check_count(what: str, count: int, most: int) -> None:
    if count > most:
        raise LimitExceeded(f"{what}: {count} at once; the limit is {most}", field=what, actual=count, limit=most)
