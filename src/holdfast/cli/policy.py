"""`holdfast policy`: show and set the policies of kinds and tiers, and where each value comes from."""

import re
import shlex
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click
import msgspec

from holdfast.cli.command import CommandResult, NounGroup, request_option, with_existing_ledger, with_ledger
from holdfast.cli.completion import name_hint
from holdfast.cli.output import Page, usage_error
from holdfast.core.policy import FIELDS, FieldSource, SourcedField
from holdfast.core.text import format_setting_ms

if TYPE_CHECKING:
    from holdfast.ledger import Ledger

_WHOLE, _DECIMAL = re.compile(r"[0-9]{1,15}"), re.compile(r"[0-9]{1,15}\.[0-9]{1,6}")
_NAMES = {stored: typed for typed, stored in FIELDS.items()} | {"stall_after_ms": "stall_after"}
"""The name that users write, by the name of the stored field."""
tier_option = click.option("--tier", help="A tier instead of a kind.")


@click.group(cls=NounGroup)
def policy() -> None:
    """Show and set the policies of kinds and tiers.

    \b
    Try:
      holdfast policy list
    """


@policy.command("list")
@with_existing_ledger
def list_(ledger: "Ledger") -> CommandResult:
    """List what operators set and what handlers declare.

    \b
    Try:
      holdfast policy list
    """
    by_operators, declared = ledger.policies(), ledger.declarations()
    of_kinds, of_tiers = by_operators["kind"], by_operators["tier"]
    kinds = [
        {"kind": kind, "operator": of_kinds.get(kind, {}), "handler": declared.get(kind)}
        for kind in sorted(of_kinds.keys() | declared.keys())
    ]
    tiers = [{"tier": tier, "operator": fields} for tier, fields in sorted(of_tiers.items())]

    def show(page: Page) -> None:
        rows: list[tuple[object, ...]] = []
        for kind in sorted(of_kinds.keys() | declared.keys()):
            rows += _rows(f"kind {kind}", "operator", of_kinds.get(kind, {}))
            if (found := declared.get(kind)) is not None:
                rows += _rows(f"kind {kind}", f"handler, by {found.declared_by}", found.policy or {"": None})
        for tier, fields in sorted(of_tiers.items()):
            rows += _rows(f"tier {tier}", "operator", fields)
        if not rows:
            page.line("No operator has set a policy, and no handler has declared one: the defaults apply.")
            return
        page.table(("for", "set by", "field", "value"), rows)

    return CommandResult({"kinds": kinds, "tiers": tiers}, show)


@policy.command()
@click.argument("kind", required=False)
@click.option("--tier", help="The tier of the jobs.")
@with_existing_ledger
def get(ledger: "Ledger", *, kind: str | None, tier: str | None) -> CommandResult:
    """Show a kind's policy, and where each value comes from.

    Without a kind, show the policy of a kind that sets nothing.

    \b
    Try:
      holdfast policy get index_page
      holdfast policy get index_page --tier in_home
    """
    return _policy_result(ledger, kind, tier)


@policy.command("set")
@click.argument("words", nargs=-1, metavar="[KIND] FIELD=VALUE…")
@tier_option
@request_option
@with_ledger
def set_(ledger: "Ledger", *, words: tuple[str, ...], tier: str | None, request_id: str | None) -> CommandResult:
    """Set fields for a kind, or for a tier.

    They override what handlers declare. Other fields stay as they are. Leases issued from now on follow them.

    \b
    Try:
      holdfast policy set index_page attempts_max=3 lease_ttl=2m
      holdfast policy set --tier in_home requires_operator_coverage=true
    """
    kind, typed = _split_words(words, tier)
    if not typed:
        raise usage_error("name the fields to set, as in attempts_max=3")
    fields: dict[str, Any] = {}
    for word in typed:
        name, equals, value = word.partition("=")
        if not equals:
            raise usage_error(f"{word!r:.80} is not of the form FIELD=VALUE")
        if name in fields:
            raise usage_error(f"{name!r:.80} is set twice")
        if value in ("none", "null", "") and name != "signed":
            action = f"To unset it: holdfast policy unset {shlex.join(filter(None, [kind, name]))}"
            raise usage_error(
                f"{name!r:.80} cannot be {value!r}", action=action + (f" --tier {shlex.quote(tier)}" if tier else "")
            )
        fields[_check_field(name)] = _parse_value(value)
    ledger.set_policy(kind, tier=tier, request_id=request_id, **fields)
    return _policy_result(
        ledger, kind, tier, [*_undeclared_kind_remark(ledger, kind), *_overridden_remark(ledger, kind, tier, fields)]
    )


@policy.command()
@click.argument("words", nargs=-1, metavar="[KIND] [FIELD…]")
@tier_option
@click.option("--declared", is_flag=True, help="Remove what the kind's handler declared.")
@request_option
@with_ledger
def unset(ledger: "Ledger", *, words: tuple[str, ...], tier: str | None, declared: bool, request_id: str | None) -> CommandResult:
    """Remove what was set for a kind or a tier.

    Without fields, everything that operators set for it is removed. The handler's declaration and the defaults apply again.

    \b
    Try:
      holdfast policy unset index_page lease_ttl
      holdfast policy unset --tier in_home
    """
    kind, fields = _split_words(words, tier)
    if declared and fields:
        raise usage_error("a declaration is removed as a whole, without fields")
    remarks = _not_set_remark(ledger, kind, tier, fields, declared)
    if fields:
        ledger.set_policy(kind, tier=tier, request_id=request_id, **dict.fromkeys(map(_check_field, fields)))
    else:
        ledger.unset_policy(kind, tier=tier, declared=declared, request_id=request_id)
    return _policy_result(ledger, kind, tier, remarks)


def _check_field(name: str) -> str:
    """Return the name, unless it is another argument of the verb. The verb refuses other unknown names."""
    if name in ("kind", "tier", "request_id", "actor"):
        raise usage_error(f"there is no policy field {name!r}")
    return name


def _split_words(words: Sequence[str], tier: str | None) -> tuple[str | None, list[str]]:
    """Return the kind, unless a tier is given, and the remaining words."""
    if tier is not None:
        return None, list(words)
    if not words:
        raise usage_error("name a kind, or a tier with --tier")
    name, equals, _ = words[0].partition("=")
    if equals and name in FIELDS:
        raise usage_error("the kind is missing", action=f"Name it first: holdfast policy set KIND {shlex.join(words)}")
    return words[0], list(words[1:])


def _undeclared_kind_remark(ledger: "Ledger", kind: str | None) -> list[str]:
    """Return a remark if no worker has declared the kind: its name may be mistyped."""
    declared = ledger.declarations()
    if kind is None or kind in declared:
        return []
    return [
        f"No worker has declared the kind {kind}. {name_hint(kind, declared)}The policy applies once there are jobs of this kind."
    ]


def _overridden_remark(ledger: "Ledger", kind: str | None, tier: str | None, fields: Iterable[str]) -> list[str]:
    """Return a remark for each field that was set to a value that does not apply."""
    set_by = FieldSource.OPERATOR_TIER if kind is None else FieldSource.OPERATOR_KIND
    found = {one.name: one for one in ledger.policy_sources(kind, tier=tier)}
    remarks = []
    for field in fields:
        one = found.get(FIELDS[field])
        if one is None or one.layers.get(set_by) in (None, one.value):
            continue
        text = f"{field}={_format_value(one.name, one.layers[set_by])} is set, but {_format_value(one.name, one.value)} applies"
        remarks.append(f"{text}: {_OVERRIDE_REASONS.get(one.name, 'another value overrides it')}.")
    return remarks


_OVERRIDE_REASONS = {
    "lease_ttl_ms": "a lease does not end before stall_after, which is heartbeat_interval times missed_beats_max",
    "signed": "the strictest of all values applies",
}


def _not_set_remark(ledger: "Ledger", kind: str | None, tier: str | None, fields: list[str], declared: bool) -> list[str]:
    """Return remarks on fields that are to be unset and were not set."""
    of = f"tier {tier}" if kind is None else f"kind {kind}"
    if declared:
        return [] if kind in ledger.declarations() else [f"No handler has declared {of}: nothing has changed."]
    policies = ledger.policies()
    set_fields = policies["tier"].get(tier or "", {}) if kind is None else policies["kind"].get(kind, {})
    if not set_fields:
        return [f"Nothing was set for {of}: nothing has changed."]
    return [f"{field} was not set for {of}." for field in fields if FIELDS.get(field) not in set_fields]


def _parse_value(text: str) -> bool | int | float | str:
    if text in ("true", "false"):
        return text == "true"
    if _WHOLE.fullmatch(text):
        return int(text)
    return float(text) if _DECIMAL.fullmatch(text) else text


def _policy_result(ledger: "Ledger", kind: str | None, tier: str | None, remarks: Sequence[str] = ()) -> CommandResult:
    found = ledger.policy_sources(kind, tier=tier)
    declared = None if kind is None else ledger.declarations().get(kind)
    names = [f"kind {kind}"] if kind is not None else []
    names += [f"tier {tier}"] if tier is not None else []

    def show(page: Page) -> None:
        page.line(f"Policy of {', '.join(names) or 'a kind that sets nothing'}", bold=True)
        rows = [
            (_NAMES[one.name], _format_value(one.name, one.value), _source(one, kind, tier), _other_layers(one, kind, tier))
            for one in found
        ]
        page.table(("field", "value", "from", "overrides"), rows)
        if declared is not None:
            page.line(f"The handler's declaration is by worker {declared.declared_by}, for queue {declared.queue}.")
        for remark in remarks:
            page.line(remark, fg="yellow")

    data = {"kind": kind, "tier": tier, "fields": msgspec.to_builtins(found), "handler": declared, "remarks": list(remarks)}
    return CommandResult(data, show)


def _rows(what: str, by: str, fields: dict[str, Any]) -> list[tuple[object, ...]]:
    return [(what, by, _NAMES.get(name, "–"), _format_value(name, value)) for name, value in fields.items()]


def _format_value(name: str, value: Any) -> str:
    """Return a value in the form that `policy set` takes."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "true" if value else "false"
    return format_setting_ms(value) if name.endswith("_ms") else str(value)


def _source(found: SourcedField, kind: str | None, tier: str | None) -> str:
    if found.name == "stall_after_ms":
        return "heartbeat_interval, missed_beats_max"
    return _layer(found.source, kind, tier)


def _layer(source: FieldSource, kind: str | None, tier: str | None) -> str:
    """Return the text for a layer, the same in every column."""
    return {
        FieldSource.OPERATOR_TIER: f"operator, for tier {tier}",
        FieldSource.OPERATOR_KIND: f"operator, for kind {kind}",
        FieldSource.HANDLER: "handler",
        FieldSource.TIER: f"tier {tier}",
        FieldSource.DERIVED: "stall_after",
        FieldSource.DEFAULT: "default",
    }[source]


def _other_layers(found: SourcedField, kind: str | None, tier: str | None) -> str:
    """Return the values of the other layers: farther ones, and nearer ones whose value does not apply."""
    others = {source: value for source, value in found.layers.items() if source is not found.source}
    return (
        "; ".join(f"{_layer(source, kind, tier)} {_format_value(found.name, value)}" for source, value in others.items()) or "–"
    )
