"""Update the generated parts of README.md, CONTRIBUTING.md and the pages in docs from the code.

A part is between `<!-- generated: name -->` and `<!-- end -->`. `make docs` runs this; a test fails if a page is out of date.
"""

import ast
import inspect
import re
import sys
import textwrap
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import click
import msgspec

from docs import diagrams
from holdfast import Ledger, errors, liveness
from holdfast.cli import main as main_command
from holdfast.core import limits, vocabulary
from holdfast.core.audit import WITH_POLICY
from holdfast.core.model import EventType, Policy
from holdfast.core.payloads import PAYLOAD_TYPES
from holdfast.core.policy import _CHOICES, _COUNTS, _DURATIONS, _SWITCHES, TIER_INTERVAL_MS, UNKNOWN_TIER_INTERVAL_MS
from holdfast.core.table import EVENT_ROLES, TRANSITIONS
from holdfast.ledger import public
from holdfast.store.postgres.connections import SERVER_OLDEST
from holdfast.supervise.run import COUNTS, DURATIONS_MS, STALL_TIMEOUT_MS, RunPolicy
from holdfast.watch import families
from tools.site import PROJECT, project_urls

ROOT = Path(__file__).parents[1]

PROCESS_FAMILIES = (
    *families.COUNTERS,
    *families.HISTOGRAMS,
    *families.LEDGER_COUNTERS,
    *families.LEDGER_HISTOGRAMS,
    *families.GAUGES,
)
"""The metrics of every process that has a ledger."""
METRIC_FAMILIES = (
    *PROCESS_FAMILIES,
    *families.SERVER_COUNTERS,
    *families.SERVER_HISTOGRAMS,
    *families.SERVER_GAUGES,
)

LIMITS = {
    "NAME_BYTES_MAX": "a queue, kind, worker, incarnation, actor, tier, stage, fenced resource or a key's name, in UTF-8 bytes",
    "KEY_BYTES_MAX": "a request id, dedupe key, correlation id or trace id, in UTF-8 bytes",
    "REASON_BYTES_MAX": "a reason that a caller gives, in UTF-8 bytes",
    "PAYLOAD_BYTES_MAX": "the args of a job, and its result, in bytes of JSON",
    "ERROR_BYTES_MAX": "an error given as an object, in bytes of JSON; exceptions and texts are cut to fit",
    "CHECKPOINT_BYTES_MAX": "a checkpoint, in bytes of JSON",
    "UNDO_BYTES_MAX": "the args of an undo step, in bytes of JSON",
    "UNDO_STEPS_MAX": "undo steps of one job",
    "UNDO_BATCH_MAX": "jobs for which one `sweep` makes undo jobs or adds their notes",
    "DEPENDENCIES_MAX": "jobs that one job may depend on",
    "DEPENDENTS_MAX": "jobs that may ever wait for one job",
    "CASCADE_MAX": "jobs that end because of another one, in one transaction",
    "OPEN_CASCADE_BATCH_MAX": "larger cascades that one sweep continues at once",
    "NESTING_MAX": "the depth of nested JSON",
    "INTEGER_MAX": "a whole number in JSON, either sign; also `progress`",
    "ENQUEUE_BATCH_MAX": "jobs in one `enqueue_many`",
    "CLAIM_BATCH_MAX": "jobs in one `claim`",
    "WRITE_BATCH_MAX": "items in one `complete_many` or `heartbeat_many`",
    "WRITE_CHUNK": "items of those that share a transaction",
    "BULK_MAX": "jobs in one `on_jobs`",
    "PAGE_MAX": "jobs in one `list` or `dead_letters`, events in one `events`",
    "EVENTS_COUNTED_MAX": "events that are counted as not yet delivered or not yet sealed; more are shown as this number",
    "HISTORY_NAMES_MAX": "queues, and kinds, with a history of their own; the others share one",
    "TOTALS_MAX": "rows in the answer of `job_totals`",
    "TIMELINE_BEATS_MAX": "heartbeats that a timeline has one by one; more are counted by bins",
    "TIMELINE_WIDTH_MAX": "bins of a timeline",
    "TIMELINE_MARKS_MAX": "marks of a timeline",
    "TIMELINE_ATTEMPTS_MAX": "attempts of a timeline, the newest",
    "TIMELINE_SPANS_MAX": "phases, leases and stalls of each of those attempts",
    "GRAPH_NODES_MAX": "jobs in one `graph`",
    "GRAPH_EDGES_MAX": "dependencies that `graph` reads for each step",
    "GRAPH_DEPTH_MAX": "`depth` of a `graph`",
    "GROUPS_MAX": "groups in one `dead_letter_groups`",
    "GROUPED_LETTERS_MAX": "dead letters that one `dead_letter_groups` reads, newest first",
    "ATTENTION_MAX": "items in one `attention`",
    "KIND_ERRORS_MAX": "classes of errors of each kind in one `kinds`",
    "ERRORS_READ_MAX": "newest errors from which they are counted",
    "OVERVIEW_QUEUES_MAX": "queues in one `overview`",
    "READY_HEADS_MAX": "ready jobs of each priority of each queue that an `overview` reads",
    "SEARCHED_MAX": "jobs that one `list` with `since` or `until` reads",
    "SEARCHED_TEXT_MAX": "jobs that one `list` with `text` reads",
    "SORTED_MAX": "jobs that one `list` sorts by `-updated` or `-finished`, the newest",
    "NAMES_PER_CLAIM_MAX": "queues, and kinds, in one `claim`",
    "PRIORITY_MAX": "a priority, either sign",
    "DELAY_US_MAX": "`delay` and `retry_after`, in microseconds: ten years",
    "TIME_US_MAX": "a point in time, in microseconds since 1970: the end of the year 9999",
    "LEASE_MS_MIN": "the shortest lease, in milliseconds",
    "LEASE_MS_MAX": "the longest `ttl` of a claim, and the longest `lease_ttl` unless `lease_widened` is set, in milliseconds",
    "JOB_ID_MAX": "a job id, and a position",
    "REV_MAX": "a revision, and an attempt",
    "PRUNE_BATCH_MAX": "rows read in one step of `prune`; `jobs_before` and `failed_before` share them",
    "SWEEP_MAX": "jobs in one `sweep`",
    "SWEEP_BATCH": "jobs of those that share a transaction",
    "TIDY_BATCH_MAX": "claims whose next check one sweep schedules",
    "DUTY_MS_MAX": "the longest `ttl` of a duty, in milliseconds; the shortest is that of a lease",
    "DEDUPE_FOR_MS_MIN": "the shortest `dedupe_for`, in milliseconds",
    "DEDUPE_FOR_MS_MAX": "the longest one: 366 days",
    "POSTPONE_DELAYS": "how many delays a job may be postponed, without `postpone_max`",
    "SCHEDULES_MAX": "schedules in a ledger",
    "SCHEDULE_EVERY_MS_MIN": "the shortest `every` of a schedule, in milliseconds",
    "SCHEDULE_EVERY_MS_MAX": "the longest one: 366 days",
    "SCHEDULE_JITTER_MS_MAX": "the longest `jitter` of a schedule, in milliseconds; also not longer than its `every`",
    "FIRINGS_MAX": "missed firings of one schedule that one sweep makes",
    "FIRINGS_SHOWN_MAX": "times in one preview of a schedule",
    "FIRING_LATE_MS": "after which a firing counts as missed, in milliseconds",
    "MISSED_FIRINGS_COUNTED_MAX": "missed firings of a schedule that are counted one by one",
    "SCHEDULES_PER_SWEEP_MAX": "schedules that one sweep fires",
    "LIMITS_MAX": "limits in a ledger",
    "LIMITS_PER_JOB_MAX": "limits that one job draws on",
    "LIMIT_UNITS_MAX": "units of one limit that a job draws",
    "LIMIT_COUNT_MAX": "`concurrent`, the number of a `rate`, and `burst` of a limit",
    "LIMIT_RATE_MS_MIN": "the shortest time of a `rate`, in milliseconds",
    "LIMIT_RATE_MS_MAX": "the longest one: 366 days",
    "LIMIT_PATH_PARTS_MAX": "names in the path `by` of a limit",
    "LABELS_PER_WORKER_MAX": "labels of a worker",
    "LABELS_REQUIRED_MAX": "labels that a job requires",
    "PARTITION_WEIGHT_MAX": "the weight of a partition",
    "PARTITION_WEIGHTS_MAX": "partitions of a queue that have a weight",
    "CLAIM_ROUNDS_MAX": "rounds of one claim in a queue with subqueues",
    "SUBQUEUE_NOTES_MAX": "notes on changed subqueues that one claim works through",
    "SUBQUEUES_OPENED_MAX": "subqueues that one claim opens because their time has come",
    "SUBQUEUE_CLOSED_MS_MAX": "after which a claim looks again at a subqueue whose limit was used up, in milliseconds",
    "SUBQUEUE_KEPT_MS": "how long a subqueue without jobs is kept, in milliseconds: a day",
    "SLOTS_WALKED_MAX": "slots, which are claims that drew on limits, that one step of `prune` looks at",
    "ROUTES_CHECKED_MAX": "combinations of labels, worker, kind and queue that a diagnosis looks at, the newest",
    "SUBQUEUES_CHECKED_MAX": "subqueues with limits that a diagnosis and `flow_status` look at",
    "LIMIT_WAITING_MAX": "waiting jobs that are counted for a limit, and for each of its keys",
    "UNFINISHED_GROUPS_MAX": "groups that are not done",
    "GROUP_JOBS_MAX": "jobs in a group",
    "GROUP_CHAIN_MAX": "groups that follow one another",
    "GROUP_FOLD_ROWS": "changes of a group that wait before they are added to its counts",
    "GROUPS_PER_SWEEP_MAX": "groups whose counts one sweep brings up to date",
    "WORKER_BYTES_MAX": "the `body` of a `sign_in`, in bytes of JSON",
    "AGENT_VALUE_BYTES_MAX": "each of a task's contents in the answer to a start or resume, in bytes; longer ones are left out",
    "AGENT_KEPT_MS": "how long workers keep the focus of an agent that holds nothing, in milliseconds: 30 days",
    "BRIEF_EVENTS_MAX": "events in a brief",
    "BRIEF_COUNT_MAX": "up to which the events are counted that a brief leaves out",
    "BRIEF_PAYLOAD_MAX": "the payload of an event in a brief, in bytes; longer ones are left out",
    "BRIEF_CHECKPOINTS_MAX": "earlier attempts whose checkpoints are in a brief",
    "BRIEF_RELATED_MAX": "tasks in a brief that wait for its task, and tasks that its task waits for",
    "BLOCKERS_NAMED_MAX": "tasks named in a refusal because the agent's task waits for them",
    "CHECKPOINT_EVENTS_MAX": "newest events of a task that are searched for those checkpoints",
    "CHECKPOINT_BEATS_MAX": "heartbeats of each attempt among them that are read for its checkpoint",
    "OWN_TASKS_MAX": "tasks of the agent that a resume reads",
    "RESUME_TRIES_MAX": "queues and priorities, and then expired claims, at which a resume tries to get a task",
    "IDLE_COUNT_MAX": "up to which the tasks are counted that a resume could not take",
    "TOKEN_PATTERNS_MAX": "patterns of queues, and of actors, of one token",
    "TOKEN_MS_MIN": "the shortest time after which a new token expires, in milliseconds",
    "TOKEN_MS_MAX": "the longest, in milliseconds: ten years",
    "TOKEN_USE_MS": "how often at most the last use of a token is recorded, in milliseconds",
    "SESSION_IDLE_MS": "how long a browser session lasts without a request, in milliseconds: 12 hours",
    "SESSION_MS_MAX": "how long it lasts at most, in milliseconds: 7 days",
    "SESSION_USE_MS": "how often at most the last request of a session is recorded, in milliseconds",
    "SESSIONS_PER_OWNER_MAX": "sessions of one token or person; another one ends the one that was used least recently",
    "LOGIN_CODE_MS": "how long a login code can be used, in milliseconds: 10 minutes",
    "HTTP_HEAD_BYTES_MAX": "the request line and the headers of a request to the HTTP server, in bytes",
    "HTTP_HEADERS_MAX": "headers of a request",
    "HTTP_HEAD_MS_MAX": "how long a client may take for the head of a request, in milliseconds",
    "HTTP_BODY_MS_MAX": "how long it may take for the body, in milliseconds",
    "HTTP_BODY_MS_PER_MIB": "how much longer for each MiB of the body, in milliseconds",
    "HTTP_IDLE_MS_MAX": "how long a connection without a request stays open, in milliseconds",
    "HTTP_LINGER_MS_MAX": "how long what a refused client still sends is read and dropped, in milliseconds",
    "HTTP_CONNECTIONS_MAX": "connections to one process of the HTTP server",
    "HTTP_PRINCIPAL_REQUESTS_MAX": "requests of one token or person that are under way at once",
    "HTTP_PRINCIPAL_RATE": "requests of one token or person in a second, on average",
    "HTTP_PRINCIPAL_BURST": "requests of one token or person that may come at once after a pause",
    "HTTP_PRINCIPAL_MS": "how long a server remembers a valid token or session, in milliseconds",
    "HTTP_PRINCIPALS_MAX": "tokens and sessions, and addresses with wrong tokens, that a server remembers",
    "HTTP_WRONG_TOKENS_MAX": "wrong tokens from one address in the next time",
    "HTTP_WRONG_TOKENS_MS": "that time, in milliseconds",
    "HTTP_SIGN_INS_MAX": "sign-ins that wait for an OpenID Connect provider at once",
    "OIDC_CODE_BYTES_MAX": "the code of an OpenID Connect provider, in bytes",
    "OIDC_ANSWER_BYTES_MAX": "an answer of the provider, in bytes",
    "OIDC_ANSWER_MS_MAX": "how long a server waits for the answers that one step of a sign-in needs, in milliseconds",
    "OIDC_KEYS_MS": "how long the provider's configuration and keys are kept, in milliseconds",
    "OIDC_KEYS_ANEW_MS": "how often at most its keys are read anew because of an unknown key, in milliseconds",
    "OIDC_SKEW_MS": "how far the provider's clock may be from the server's, in milliseconds",
    "TLS_FILE_BYTES_MAX": "the file with the key of a server's certificate, in bytes",
    "REDACT_PATTERNS_MAX": "patterns of contents that readers of the HTTP server do not see",
    "HTTP_BODY_BYTES_MAX": "the body of a request to the HTTP server, in bytes",
    "HTTP_BATCH_BYTES_MAX": "the body of a request with many jobs, in bytes",
    "HTTP_ENVELOPE_BYTES_MAX": "the body of a request with a signed event, in bytes",
    "HTTP_REQUESTS_WAITING_MAX": "requests that wait for a thread, for each of reads, writes and heartbeats",
    "HTTP_CLAIMS_WAITING_MAX": "claims that wait for a job at one server",
    "HTTP_CLAIMS_WAITING_OF_ONE_MAX": "claims of one worker that wait for a job at one server",
    "HTTP_EXPORT_JOBS_MAX": "jobs in one file of the HTTP server",
    "HTTP_FILES_MAX": "exports and other files that one server sends at once; beyond that, 503",
    "HTTP_STREAMS_MAX": "streams of events of one server",
    "HTTP_STREAMS_OF_ONE_MAX": "streams of events of one caller",
    "MCP_PAGE_MAX": "tasks or events in one answer of the MCP server",
    "MCP_TEXT_CHARACTERS_MAX": "each of a task's contents in the text of its answers, in characters; the structure has more",
    "MCP_PIECE_CHARACTERS_MAX": "a piece of a task's contents in an answer of the MCP server, in characters",
    "MCP_ROW_BYTES_MAX": "args in a row of its lists, in bytes; longer ones are left out",
    "MCP_BODY_BYTES_MAX": "one message to the MCP server, in bytes",
    "MCP_SESSIONS_MAX": "open sessions of agents at `/mcp` of a server, and sessions for which it holds tasks",
    "MCP_SESSIONS_OF_ONE_MAX": "the same sessions of one token",
    "MCP_IDLE_MS_MAX": "the longest `--idle-limit` of an MCP server, in milliseconds",
    "ENVELOPE_BYTES_MAX": "an envelope for `append`, in bytes of JSON; its statement has at most half of that",
    "EXPORT_LINE_BYTES_MAX": "a line of an export, in bytes",
    "EXPORT_HEADS_MAX": "the newest heads in an export; the first is there as well",
    "VERIFY_HEADS_MAX": "heads in a file that `verify` reads",
    "VERIFY_KEYS_BYTES_MAX": "the file of `verify --keys`, in bytes",
    "VERIFY_ANCHOR_BYTES_MAX": "a file of `verify --head`, in bytes",
    "SKEW_US_MAX": "how far a signer's clock may be from the ledger's, in microseconds, either way",
    "TYPED_BYTES_MAX": "JSON that a command reads from a file or from standard input, in bytes, blanks included",
    "TYPED_LINES_BYTES_MAX": "all lines of `job enqueue --lines`, in bytes",
    "RUN_BYTES_MAX": "the stored state of a supervised run, in bytes of JSON",
    "SEAL_MS_MIN": "the shortest `every` of a sealer, in milliseconds",
    "SEAL_MS_MAX": "the longest",
    "SEAL_EVENTS_MAX": "`every_events` of a sealer",
    "ANCHOR_MS_MAX": "the longest `anchor_every` of a sealer, in milliseconds",
}

POLICY = {
    "heartbeat_interval": "the interval of a holder's heartbeats",
    "missed_beats_max": "intervals of silence before a stall; their product is `stall_after`",
    "lease_ttl": "length of a lease; raised to `stall_after` if it is shorter",
    "resume_window": "how long a stalled job waits for its holder before it is requeued; with a tier, `stall_after` unless set",
    "attempts_max": "attempts that count before the job is exhausted",
    "on_exhausted": "what an exhausted job becomes",
    "backoff_base": "wait before the second attempt; doubled for each one after it",
    "backoff_max": "where the doubling stops, before jitter",
    "cancel_grace": "how long a soft cancel waits before the sweep makes it hard; by default at least `stall_after`",
    "progress_timeout": "how long heartbeats of a running job may show no change of stage or progress, and no checkpoint",
    "requires_operator_coverage": "send a message `ESCALATION_NEEDED` for a lost, stuck or broken worker; no other effect",
    "signed": "which events have to be [signed](../guides/signed.md)",
    "lease_widened": "allows a `lease_ttl` beyond an hour, up to a day; not part of the snapshot",
}


LIVENESS = {
    "MAX_RUN_ID_LENGTH": "the `run_id` of a receipt, in UTF-8 bytes",
    "MAX_HEARTBEAT_DETAIL_LENGTH": "the `detail` of a receipt, in UTF-8 bytes",
    "MAX_LIVENESS_DENIAL_DETAIL_LENGTH": "the `detail` of a denial, in UTF-8 bytes; cut when it is made, refused when it is read",
    "MAX_RESTARTS_LIMIT": "`max_restarts` of a restart policy",
    "MAX_CIRCUIT_BREAKER_FAILURES": "`circuit_breaker_max_failures` of a restart policy",
}


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def _code(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _leaves(kind: type[errors.HoldfastError]) -> list[type[errors.HoldfastError]]:
    return [leaf for sub in kind.__subclasses__() for leaf in (sub, *_leaves(sub))]


def error_table() -> str:
    return _table(
        ["code", "class", "same call later?", "who acts", "HTTP", "what to do"],
        [
            [
                f"`{kind.code}`",
                f"`{kind.__name__}`",
                "may succeed" if kind.retryable else "no",
                kind.fault,
                str(kind.http_status),
                kind.action or "–",
            ]
            for kind in _leaves(errors.HoldfastError)
            if kind.__module__ == errors.__name__
        ],
    )


def limit_table() -> str:
    return _table(
        ["what", "limit", "name in `holdfast.core.limits`"],
        [[what, f"{getattr(limits, name):,}", f"`{name}`"] for name, what in LIMITS.items()],
    )


def liveness_table() -> str:
    return _table(
        ["what", "limit", "name in `holdfast.liveness`"],
        [[what, f"{getattr(liveness, name):,}", f"`{name}`"] for name, what in LIVENESS.items()],
    )


def _ms(ms: int) -> str:
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000)):
        if ms and ms % size == 0:
            return f"{ms // size} {unit}"
    return f"{ms} ms" if ms else "0"


def policy_table() -> str:
    defaults = msgspec.structs.asdict(Policy())
    rows = []
    for name, what in POLICY.items():
        if name in _DURATIONS:
            default, allowed = defaults[f"{name}_ms"], " – ".join(map(_ms, _DURATIONS[name]))
            rows.append([f"`{name}`", "off" if default is None else _ms(default), allowed, what])
        elif name in _COUNTS:
            low, high = _COUNTS[name]
            rows.append([f"`{name}`", str(defaults[name]), f"{low} – {high:,}", what])
        elif name in _CHOICES:
            rows.append([f"`{name}`", f'`"{defaults[name]}"`', ", ".join(f'`"{c}"`' for c in _CHOICES[name]), what])
        elif name in _SWITCHES:
            rows.append([f"`{name}`", str(defaults.get(name, False)), "True, False", what])
    return _table(["field", "default", "allowed", "what it sets"], rows)


SUPERVISE = {
    "max_restarts": "restarts in any window",
    "window": "the time in which restarts are counted",
    "breaker_failures": "after this number of restarts in the breaker's window, the program is not restarted any more",
    "breaker_window": "no longer than `window`",
    "stall_timeout": "how long a program may be silent",
    "backoff": "wait before the first restart in a window",
    "backoff_max": "where the doubling stops, before jitter",
    "grace": "the time between SIGTERM and SIGKILL",
}


def supervise_table() -> str:
    defaults = msgspec.structs.asdict(RunPolicy())
    rows = []
    for name, what in SUPERVISE.items():
        if name in COUNTS:
            rows.append([f"`{name}`", str(defaults[name]), " – ".join(f"{number:,}" for number in COUNTS[name]), what])
        else:
            default = defaults[f"{name}_ms"]
            shown = f"{_ms(STALL_TIMEOUT_MS)}, after its first heartbeat" if default is None else _ms(default)
            rows.append([f"`{name}`", shown, " – ".join(map(_ms, DURATIONS_MS[name])), what])
    return _table(["field", "default", "allowed", "what it sets"], rows)


def tier_table() -> str:
    rows = [[f"`{tier}`", _ms(interval)] for tier, interval in TIER_INTERVAL_MS.items()]
    return _table(["tier", "heartbeat_interval"], [*rows, ["any other", _ms(UNKNOWN_TIER_INTERVAL_MS)]])


def event_table() -> str:
    rows = []
    for kind in EventType:
        verbs = [row.verb for row in TRANSITIONS if kind in row.events]
        if kind is EventType.ENQUEUED:
            verbs = ["enqueue", "replay", "sweep"]
        if kind is EventType.UNBLOCKED:
            verbs = ["complete (of the last dependency)", "enqueue", "replay"]
        if kind is EventType.STARTED:
            verbs.append("claim with start")
        fields = [*(msgspec.structs.fields(PAYLOAD_TYPES[kind]) if kind in PAYLOAD_TYPES else ())]
        names = [field.name for field in fields] + ["policy"] * (kind in WITH_POLICY)
        by = ", ".join(sorted(role.value for role in EVENT_ROLES[kind]))
        rows.append([f"`{kind.value}`", ", ".join(dict.fromkeys(verbs)), by, _code(names) or "–"])
    return _table(["type", "made by", "actor's role", "payload"], rows)


def alias_table() -> str:
    rows = []
    for dialect, names in vocabulary.DIALECTS.items():
        rows += [_alias(dialect, "event type", name, kind, vocabulary.event_name(dialect, kind)) for name, kind in names.events]
        for name, status, phase in names.statuses:
            row = _alias(dialect, "status", name, status, vocabulary.status_name(dialect, status, phase))
            rows.append(row if phase is None else [*row[:3], f"`{status.value}`, phase `{phase.value}`", row[4]])
        rows += [
            _alias(dialect, "reason", name, reason, vocabulary.reason_name(dialect, reason)) for name, reason in names.reasons
        ]
    return _table(["dialect", "of", "name there", "name here", "written"], rows)


def _alias(dialect: str, what: str, name: str, ours: str, written: str) -> list[str]:
    return [f"`{dialect}`", what, f"`{name}`", f"`{ours}`", "yes" if name == written else "only read"]


def target_table() -> str:
    """The targets of the Makefile, with what it says of them itself."""
    found = re.findall(r"^([a-z-]+):.*?## (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    return _table(["target", "what it does"], [[f"`make {target}`", what] for target, what in found])


def address_line(pyproject: Path = PROJECT) -> str:
    """Links to the documentation and the repository, or nothing while pyproject.toml has no addresses."""
    urls = project_urls(pyproject)
    return " · ".join(f"[{name}]({urls[name]})" for name in ("Documentation", "Repository") if name in urls)


def metric_table() -> str:
    rows = [[f"`{family.name}`", family.type, _code(family.labels) or "–", family.description] for family in METRIC_FAMILIES]
    return _table(["metric", "type", "labels", "what it tells"], rows)


def command_table() -> str:
    rows = []
    for path, command in _leaves_of(main_command, ()):
        arguments = [p.make_metavar(click.Context(command)) for p in command.params if isinstance(p, click.Argument)]
        shown = [p for p in command.params if isinstance(p, click.Option) and not p.hidden]
        options = [name for p in shown for name in (p.opts[0], *p.secondary_opts)]
        what = inspect.cleandoc(command.help or "").partition("\n\n")[0].replace("\n", " ")
        rows.append([f"`{' '.join(['holdfast', *path, *arguments])}`", what, _code(options)])
    return _table(["command", "what it does", "options"], rows)


def _leaves_of(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    if not isinstance(command, click.Group):
        yield path, command
        return
    for name in command.list_commands(click.Context(command)):
        found = command.get_command(click.Context(command), name)
        assert found is not None
        yield from _leaves_of(found, (*path, name))


LINE_MAX = 110
_VERB = re.compile(r"^(### (\w+)\n\n)(?:```text\nledger\..*?^```\n\n)?", re.MULTILINE | re.DOTALL)


def signature(name: str) -> str:
    """A verb of the ledger as its source declares it, on one line or with a line for each argument."""
    [found] = ast.parse(textwrap.dedent(inspect.getsource(getattr(Ledger, name)))).body
    assert isinstance(found, ast.FunctionDef)
    takes = found.args
    more = [] if takes.kwarg is None else _options(takes.kwarg)
    takes.args, takes.kwarg = takes.args[1:], None
    shown = _list(takes) + more
    end = f" -> {_text(found.returns)}"
    line = f"ledger.{name}({', '.join(shown)}){end}"
    return line if len(line) <= LINE_MAX else "\n".join([f"ledger.{name}(", *(f"    {one}," for one in shown), f"){end}"])


def _list(takes: ast.arguments) -> list[str]:
    given = [*[None] * (len(takes.args) - len(takes.defaults)), *takes.defaults]
    named = [_argument(one, default) for one, default in zip(takes.kwonlyargs, takes.kw_defaults, strict=True)]
    shown = [_argument(one, default) for one, default in zip(takes.args, given, strict=True)]
    return [*shown, "*", *named] if named else shown


def _argument(one: ast.arg, default: ast.expr | None) -> str:
    return f"{one.arg}: {_text(one.annotation)}" + ("" if default is None else f" = {ast.unparse(default)}")


def _text(node: ast.expr | None) -> str:
    """The source of an annotation, without quotes around names that are only imported for types."""
    assert node is not None
    text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ast.unparse(node)
    return text.removeprefix("builtins.")


def _options(taken: ast.arg) -> list[str]:
    """The options that a TypedDict declares, each of which may be left out."""
    annotation = taken.annotation
    if not isinstance(annotation, ast.Subscript):
        return [f"**{taken.arg}: {_text(annotation)}"]
    [declared] = [one for one in ast.walk(annotation.slice) if isinstance(one, ast.Name)]
    return [f"{option} = …" for option in _declared(declared.id)]


def _declared(name: str) -> list[str]:
    """What a TypedDict of `holdfast.ledger.public` declares, that of its base first."""
    classes = {one.name: one for one in ast.parse(inspect.getsource(public)).body if isinstance(one, ast.ClassDef)}
    found = classes[name]
    above = [option for base in found.bases if (known := _text(base)) in classes for option in _declared(known)]
    return above + [f"{_text(one.target)}: {_text(one.annotation)}" for one in found.body if isinstance(one, ast.AnnAssign)]


def _insert_signatures(page: str) -> str:
    """`page` with the signature below the heading of each verb."""
    return _VERB.sub(lambda found: f"{found[1]}```text\n{signature(found[2])}\n```\n\n", page)


def decision_list() -> str:
    """A link to each page of docs/decisions."""
    decisions = sorted((ROOT / "docs/decisions").glob("0*.md"))
    return "\n".join(f"- [{page.read_text().splitlines()[0].removeprefix('# ')}]({page.name})" for page in decisions)


def version_text() -> str:
    """The versions that the tests run on."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    python = settings["project"]["requires-python"].removeprefix(">=")
    *others, newest = map(str, settings["tool"]["holdfast"]["postgresql"])
    return (
        f"Tested with Python {python}, the oldest that Holdfast accepts, and with PostgreSQL {', '.join(others)} and {newest}. "
        f"A server older than PostgreSQL {SERVER_OLDEST} is refused (`{errors.ServerTooOld.code}`)."
    )


PARTS: dict[str, Callable[[], str]] = {
    "errors": error_table,
    "limits": limit_table,
    "liveness": liveness_table,
    "policy": policy_table,
    "supervise": supervise_table,
    "tiers": tier_table,
    "events": event_table,
    "aliases": alias_table,
    "metrics": metric_table,
    "commands": command_table,
    "targets": target_table,
    "decisions": decision_list,
    "addresses": address_line,
    "versions": version_text,
}

_EMPTY = re.compile(r"(<!-- generated: \w+ -->\n)(<!-- end -->)")
_MARKED = re.compile(rf"(<!-- generated: ({'|'.join(PARTS)}) -->\n).*?(\n<!-- end -->)", re.DOTALL)


def insert(page: str) -> str:
    """`page` with all its generated parts made anew."""
    if page.startswith("# Every verb\n"):
        page = _insert_signatures(page)
    page = diagrams.insert(_EMPTY.sub(r"\1\n\2", page))
    return _MARKED.sub(lambda found: found[1] + PARTS[found[2]]() + found[3], page)


def pages() -> list[Path]:
    """README.md, CONTRIBUTING.md and every page of the docs."""
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def main() -> None:
    for path in pages():
        before = path.read_text()
        after = insert(before)
        if after != before:
            path.write_text(after)
            sys.stdout.write(f"{path.relative_to(ROOT)}\n")


if __name__ == "__main__":
    main()
