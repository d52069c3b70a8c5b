"""The transition table as Markdown and as a diagram, for the docs. Generated, so that page and code cannot drift apart."""

from holdfast.core.model import TERMINAL, Status
from holdfast.core.table import STEPS, TRANSITIONS


def table() -> str:
    """The transitions as a Markdown table."""
    lines = ["| command | from | to | by | event | rule |", "|---|---|---|---|---|---|"]
    created = (
        "Creates a job with rev 1 and attempt 0. If a live job has the `dedupe_key`, returns that job, "
        "[changed](../guides/dedupe.md) if `on_duplicate` says so."
    )
    lines.append(f"| enqueue | – | queued | client | enqueued | {created} |")
    for row in TRANSITIONS:
        sources = ", ".join(status.value for status in Status if status in row.sources)
        targets = " or ".join(status.value for status in row.targets) or "same"
        roles = ", ".join(role.value for role in row.roles)
        events = ", ".join(event.value for event in row.events)
        lines.append(f"| {row.verb} | {sources} | {targets} | {roles} | {events} | {row.rule} |")
    repeated = "Creates a job with the same arguments. Its `replay_of` names the old one."
    lines.append(f"| replay | failed, cancelled, dead_lettered | a new job | operator | enqueued | {repeated} |")
    return "\n".join(lines)


def diagram() -> str:
    """The steps between statuses as a Mermaid state diagram."""
    lines = ["stateDiagram-v2", "    [*] --> queued: enqueued"]
    for source in Status:
        for target in Status:
            labels = sorted(kind.value for kind, a, b in STEPS if (a, b) == (source, target) and source is not target)
            if labels:
                lines.append(f"    {source.value} --> {target.value}: {', '.join(labels)}")
    lines += [f"    {status.value} --> [*]" for status in Status if status in TERMINAL]
    return "\n".join(lines)


def insert(page: str) -> str:
    """`page` with the parts between its `<!-- generated: … -->` and `<!-- end -->` marks made anew."""
    parts = {"table": table(), "diagram": f"```mermaid\n{diagram()}\n```"}
    for name, text in parts.items():
        before, start, rest = page.partition(f"<!-- generated: {name} -->\n")
        if start:
            _, end, after = rest.partition("<!-- end -->")
            if not end:
                raise ValueError(f"the generated {name} has no end mark")
            page = before + start + text + "\n" + end + after
    return page
