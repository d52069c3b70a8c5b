"""What a shell may offer where a name is to be typed."""

import click
from click.shell_completion import CompletionItem

from holdfast.cli.address import ledger_url
from holdfast.cli.pasting import typed_ledger

OFFERED_MAX = 200


class QueueName(click.ParamType[str]):
    """A queue. Those that the ledger has are offered."""

    name = "text"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(name) for name in _queues(typed_ledger(ctx)) if name.startswith(incomplete)][:OFFERED_MAX]


def _queues(db: str | None) -> list[str]:
    """None where the ledger cannot be asked: nobody who types wants to hear of that."""
    import holdfast

    try:
        with holdfast.open(ledger_url(db), keys=(), create=False) as ledger:
            return [queue.name for queue in ledger.queues()]
    except Exception:  # noqa: BLE001 - a shell shows whatever is said between what is typed
        return []


QUEUE = QueueName()
