"""The form of every command's answer to `--json`: what is in its `data`.

Read by `holdfast schema` alone, so that no command pays for it. Each command has its entry in SHAPES.
"""

import msgspec

from holdfast.agent.brief import Brief, InFull
from holdfast.agent.tasks import Collected
from holdfast.cli.board.picture import Picture
from holdfast.cli.shapes import fleet, jobs, tasks, upkeep
from holdfast.core.explain import Explanation

SHAPES: dict[str, tuple[type[msgspec.Struct], ...]] = {
    "beat": (fleet.Beaten,),
    "completion": (upkeep.Completion,),
    "demo": (fleet.Demonstrated,),
    "dlq discard": (jobs.Discarded,),
    "dlq list": (jobs.Letters,),
    "dlq replay": (jobs.LettersReplayed,),
    "dlq get": (jobs.LetterInFull,),
    "doctor": (upkeep.Diagnosed,),
    "events append": (jobs.OneEvent,),
    "events export": (upkeep.Exported,),
    "events get": (jobs.Events, jobs.EventsInDialect),
    "events tail": (jobs.OneEvent, jobs.OneEventInDialect),
    "explain": (Explanation,),
    "gate": (fleet.Gated,),
    "job assist": (jobs.Assisted,),
    "job cancel": (jobs.CancelledMany, jobs.CancelledAll),
    "job discard": (jobs.Discarded,),
    "job enqueue": (jobs.Enqueued, jobs.EnqueuedMany),
    "job events": (jobs.EventPage,),
    "job get": (jobs.OneJob,),
    "job list": (jobs.Jobs,),
    "job replay": (jobs.ReplayedMany,),
    "job move": (jobs.PlacedMany,),
    "job reprioritise": (jobs.PlacedMany,),
    "job reschedule": (jobs.PlacedMany,),
    "job unassist": (jobs.Assisted,),
    "key enrol": (upkeep.OneKey,),
    "key export": (upkeep.PublicKeys,),
    "key list": (upkeep.Keys,),
    "key new": (upkeep.KeyMade,),
    "key revoke": (upkeep.OneKey,),
    "key rotate": (upkeep.KeyMade,),
    "mcp": (),
    "migrate": (upkeep.Migrated,),
    "policy list": (upkeep.PolicyList,),
    "policy set": (upkeep.OnePolicy,),
    "policy get": (upkeep.OnePolicy,),
    "policy unset": (upkeep.OnePolicy,),
    "queue list": (jobs.Queues,),
    "queue pause": (jobs.OneQueue,),
    "queue unpause": (jobs.OneQueue,),
    "resume": (Brief,),
    "schema": (upkeep.Schemas,),
    "seal": (upkeep.Sealed,),
    "sink drop": (upkeep.Dropped,),
    "sink list": (upkeep.Sinks,),
    "sink revive": (upkeep.OneSink,),
    "sink skip": (upkeep.OneSink,),
    "supervise": (fleet.Ended, fleet.Run, fleet.Runs),
    "sweep": (fleet.Swept,),
    "task complete": (tasks.OneTask,),
    "task fail": (tasks.OneTask,),
    "task gc": (Collected,),
    "task get": (InFull,),
    "task heartbeat": (tasks.OneTask,),
    "task list": (tasks.Tasks,),
    "task release": (tasks.OneTask,),
    "task run": (tasks.TasksRun,),
    "task start": (tasks.OneTask,),
    "top": (Picture,),
    "verify": (upkeep.Verified, upkeep.Proved),
    "worker list": (fleet.Workers,),
    "worker run": (fleet.Worked, fleet.WorkedTogether),
}
"""Of each command, the forms that its `data` may have. One that answers nothing, as to a person alone, has none."""
