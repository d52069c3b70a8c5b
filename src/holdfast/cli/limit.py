"""`holdfast limit`: how many jobs may run at once or start in a time, over all workers."""

from typing import TYPE_CHECKING

import click

from holdfast.cli.command import CommandResult, NounGroup, request_option, with_existing_ledger, with_ledger
from holdfast.cli.completion import LIMIT
from holdfast.cli.flow_options import format_replaced
from holdfast.cli.output import Page, usage_error
from holdfast.cli.values import WholeNumber, format_time
from holdfast.core.limits import LIMIT_COUNT_MAX, LIMIT_WAITING_MAX, PAGE_MAX
from holdfast.core.text import format_age

if TYPE_CHECKING:
    from datetime import datetime

    from holdfast.ledger import Ledger, LimitKeyRecord, LimitRecord


@click.group(cls=NounGroup)
def limit() -> None:
    """Limit how many jobs run at once or start in a time.

    A job draws on the limits that it names when it is enqueued. A limit holds over all workers.

    \b
    Try:
      holdfast limit set openai --concurrent 20 --rate 600/1m --by args.tenant
      holdfast limit list
    """


@limit.command("set")
@click.argument("name", type=LIMIT)
@click.option(
    "--concurrent",
    type=WholeNumber(0, LIMIT_COUNT_MAX),
    metavar="N",
    help="The most units that are held at once. 0 lets no job start.",
)
@click.option("--rate", metavar="N/DURATION", help="The most units that start in a time, on average: 600/1m.")
@click.option(
    "--burst",
    type=WholeNumber(1, LIMIT_COUNT_MAX),
    metavar="N",
    help="The most units that start at once. [default: 1 s of --rate]",
)
@click.option("--by", metavar="PATH", help="The argument that is the key, such as args.tenant: each value has its own limit.")
@click.option("--for", "key", metavar="KEY", help="Set the numbers of this key alone.")
@request_option
@with_ledger
def set_(ledger: "Ledger", *, name: str, request_id: str, key: str | None, **numbers: object) -> CommandResult:
    """Make a limit, or replace the one of this name.

    The numbers hold from the next claim on. What is not given is removed. With --for, the numbers are for one key, and replace
    those of the limit. Jobs that wait keep the keys that they have, also if --by changes.

    \b
    Try:
      holdfast limit set openai --concurrent 20 --rate 600/1m --by args.tenant
      holdfast limit set openai --for acme --concurrent 50
      holdfast job enqueue ask --queue chat --args '{"tenant": "acme"}' --limit openai=3
    """
    if numbers["concurrent"] is None and numbers["rate"] is None:
        raise usage_error("give --concurrent, --rate or both")
    before = next((one for one in ledger.limits() if one.name == name), None) if key is None else None
    made = ledger.set_limit(name, key=key, request_id=request_id, **numbers)  # type: ignore[arg-type]
    text = f"Limit {name}: {_numbers(made)}{_by(made)}."
    if key is not None:
        own = "; ".join(f"{option} {value}" for option, value in numbers.items() if value is not None)
        text = f"Limit {name} has numbers of its own for {key}: {own}."
    replaced = "" if before is None else _replaced(before, made)

    def show(page: Page) -> None:
        page.line(text)
        if replaced:
            page.remark(replaced)

    return CommandResult({"limit": made}, show)


def _replaced(before: "LimitRecord", made: "LimitRecord") -> str:
    """Return what the limit had before and has no longer; an empty text if nothing has changed."""
    old = {"concurrent": before.concurrent, "rate": before.rate, "by": before.by}
    new = {"concurrent": made.concurrent, "rate": made.rate, "by": made.by}
    if before.rate == made.rate:  # else the burst may follow from the rate
        old["burst"], new["burst"] = before.burst, made.burst
    text = format_replaced("It was there before, and is replaced", old, new)
    return f"{text} Jobs that wait keep the keys that they have." if before.by != made.by else text


@limit.command("list")
@with_existing_ledger
def list_(ledger: "Ledger") -> CommandResult:
    """List limits by name.

    \b
    Try:
      holdfast limit list
    """
    found = ledger.limits()
    rows = [
        (one.name, _dash(one.concurrent), _dash(one.rate), _dash(one.burst), _dash(one.by), format_time(one.updated_at))
        for one in found
    ]
    heads = ("limit", "concurrent", "rate", "burst", "by", "set")
    return CommandResult({"limits": found}, lambda page: page.listing(heads, rows, "There are no limits."))


@limit.command()
@click.argument("name", type=LIMIT)
@click.option("--for", "key", metavar="KEY", help="Show this key only.")
@click.option("--after", help="Show the next page: keys after this one.")
@click.option("--limit", "most", type=click.IntRange(1, PAGE_MAX), default=100, show_default=True, help="The most keys to show.")
@with_existing_ledger
def get(ledger: "Ledger", *, name: str, key: str | None, after: str | None, most: int) -> CommandResult:
    """Show a limit, its keys, and what is in use of them.

    Also show how many jobs wait for each key, and since when the first of them could have started.

    \b
    Example:
      holdfast limit get openai
      holdfast limit get openai --for acme
    """
    found, keys = ledger.limit(name), ledger.limit_keys(name, key=key, after=after, limit=most)
    now = ledger.now()
    more = keys[-1].key if key is None and len(keys) == most else None

    def show(page: Page) -> None:
        page.line(f"Limit {name}: {_numbers(found)}{_by(found)}", bold=True)
        page.fields([("set", f"{format_time(found.updated_at)} by {found.updated_by}")])
        heads = ("key", "in use", "may start now", "waiting", "oldest", "numbers")
        empty = "No job has drawn on it yet." if key is None else f"No job has drawn on it for {key} yet."
        page.listing(heads, [_key_row(one, now) for one in keys], empty, more=more)

    return CommandResult({"limit": found, "keys": keys, "next_after": more}, show)


@limit.command()
@click.argument("name", type=LIMIT)
@click.option("--for", "key", metavar="KEY", help="Remove only the numbers of this key: those of the limit apply again.")
@request_option
@with_existing_ledger
def unset(ledger: "Ledger", *, name: str, key: str | None, request_id: str) -> CommandResult:
    """Remove a limit, or the numbers of one of its keys.

    Jobs that draw on a removed limit go on without it.

    \b
    Example:
      holdfast limit unset openai --for acme
      holdfast limit unset openai
    """
    if key is None:
        ledger.remove_limit(name, request_id=request_id)
        text = f"Limit {name} is removed. Jobs that draw on it go on without it."
    else:
        found = ledger.set_limit(name, key=key, request_id=request_id)
        text = f"For {key}, the numbers of limit {name} apply again: {_numbers(found)}."
    return CommandResult({"unset": name, "key": key}, lambda page: page.line(text))


def _numbers(found: "LimitRecord | LimitKeyRecord") -> str:
    parts = [
        None if found.concurrent is None else f"{found.concurrent} at once",
        None if found.rate is None else f"{found.rate}, up to {found.burst} at once after a pause",
    ]
    return "; ".join(part for part in parts if part)


def _by(found: "LimitRecord") -> str:
    return "" if found.by is None else f", for each {found.by}"


def format_waiting(jobs: int) -> str:
    """Return how many jobs wait for a limit. The count has a bound."""
    return f"{jobs:,} or more" if jobs >= LIMIT_WAITING_MAX else f"{jobs:,}"


def _key_row(one: "LimitKeyRecord", now: "datetime") -> tuple[object, ...]:
    return (
        one.key or "all jobs",
        one.used if one.concurrent is None else f"{one.used} of {one.concurrent}",
        "–" if one.tokens is None else f"{int(one.tokens)} of {one.burst}",
        format_waiting(one.waiting),
        "–" if one.waiting_since is None else format_age(now - one.waiting_since),
        f"its own: {_numbers(one)}" if one.is_own else "those of the limit",
    )


def _dash(value: object) -> object:
    return "–" if value is None else value
