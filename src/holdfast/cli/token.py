"""`holdfast token`: create, list and revoke the tokens of the HTTP server."""

from typing import TYPE_CHECKING

import click

from holdfast.cli.command import CommandResult, NounGroup, with_existing_ledger, with_ledger
from holdfast.cli.output import usage_error
from holdfast.cli.values import format_time
from holdfast.core.access import AccessRole

if TYPE_CHECKING:
    from holdfast.ledger import Ledger, TokenRecord


def split_patterns(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[str, ...] | None:
    """Return the patterns of a,b*,c. Blanks around them are left out."""
    return None if value is None else tuple(part.strip() for part in value.split(","))


def token_state(token: "TokenRecord") -> str:
    if token.revoked_at is not None:
        return f"revoked {format_time(token.revoked_at)}"
    if token.expires_at is None:
        return "valid"
    return f"valid until {format_time(token.expires_at)}" if token.is_valid else f"expired {format_time(token.expires_at)}"


@click.group(cls=NounGroup)
def token() -> None:
    """Create, list and revoke tokens of the HTTP server.

    \b
    Try:
      holdfast token list
    """


@token.command()
@click.option("--role", type=click.Choice([role.value for role in AccessRole]), required=True, help="What the token allows.")
@click.option("--name", required=True, help="The name of the actor in events.")
@click.option("--queues", callback=split_patterns, help="Patterns of the queues that it may use: mail,crawl*. [default: *]")
@click.option("--act-as", callback=split_patterns, help="Patterns of other actors: worker:crawl-*,operator:kim. [default: none]")
@click.option("--expires", metavar="DURATION", help="How long it is valid: 90d. [default: until it is revoked]")
@with_ledger
def new(
    ledger: "Ledger",
    *,
    role: str,
    name: str,
    queues: tuple[str, ...] | None,
    act_as: tuple[str, ...] | None,
    expires: str | None,
) -> CommandResult:
    """Create a token, and print it.

    It is printed only now: the ledger keeps a hash. In patterns, * stands for any number of characters.

    \b
    Try:
      holdfast token new --role worker --name arm-1 --queues 'crawl*' --expires 90d
    """
    made = ledger.new_token(role, name, queues=("*",) if queues is None else queues, act_as=act_as or (), expires=expires)
    record = made.token
    shown = [
        ("token", made.text),
        ("id", record.id),
        ("role", f"{record.role.value} {record.name}"),
        ("queues", ", ".join(record.queues)),
        *([("acts as", ", ".join(record.act_as))] if record.act_as else []),
        ("state", token_state(record)),
    ]
    return CommandResult({"token": record, "text": made.text}, lambda page: page.fields(shown))


@token.command("list")
@with_existing_ledger
def list_(ledger: "Ledger") -> CommandResult:
    """List all tokens, oldest first.

    Revoked and expired ones are listed too. No secret is shown. A server records the last use of a token once a minute, so
    that the newest use may be missing for as long.

    \b
    Try:
      holdfast token list
    """
    found = all_tokens(ledger)
    rows = [
        (
            record.id,
            record.role.value,
            record.name,
            ", ".join(record.queues),
            ", ".join(record.act_as) or "–",
            token_state(record),
            format_time(record.last_used_at),
            record.created_by,
        )
        for record in found
    ]
    heads = ("token", "role", "name", "queues", "acts as", "state", "last used", "by")
    return CommandResult({"tokens": found}, lambda page: page.listing(heads, rows, "There are no tokens."))


@token.command()
@click.argument("which", metavar="NAME|TOKEN_ID")
@with_existing_ledger
def revoke(ledger: "Ledger", *, which: str) -> CommandResult:
    """Revoke a token.

    Its sessions end too. Servers refuse it within 5 s.

    \b
    Example:
      holdfast token revoke arm-1
    """
    record = ledger.revoke_token(_find_token(all_tokens(ledger), which).id)
    return CommandResult(
        {"token": record}, lambda page: page.line(f"Token {record.id} of {record.role.value} {record.name} is revoked.")
    )


def all_tokens(ledger: "Ledger") -> "list[TokenRecord]":
    """Return all tokens, oldest first."""
    found: list[TokenRecord] = []
    while page := ledger.tokens(after=found[-1].id if found else ""):
        found += page
    return sorted(found, key=lambda record: (record.created_at, record.id))


def _find_token(found: "list[TokenRecord]", which: str) -> "TokenRecord":
    """Return the token with this id, else the only valid token with this name."""
    if by_id := [record for record in found if record.id == which]:
        return by_id[0]
    valid = [record for record in found if record.is_valid and record.name == which]
    if len(valid) == 1:
        return valid[0]
    if valid:
        raise usage_error(f"{len(valid)} tokens are named {which!r:.80}", action="Name one by its id: see `holdfast token list`.")
    raise usage_error(f"no valid token is named {which!r:.80}, and none has this id", action="See `holdfast token list`.")
