"""The address of a ledger on PostgreSQL."""

import re
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import unquote

from psycopg.pq import Conninfo

from holdfast.core.urls import read_server
from holdfast.errors import ValidationError
from holdfast.store.base import Lane

_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,50}")


class Address(NamedTuple):
    conninfo: str
    schema: str
    lanes: Sequence[Lane]


def read_url(url: str) -> Address:
    """Split a url into a part for libpq and Holdfast's own parameters: `schema`, and `lanes=1` for one connection less.

    The part for libpq stays as it was typed: libpq has rules of its own for empty parts and for escapes.
    """
    read = read_server(url)
    named = [(unquote(name), name, value) for name, value in read.parameters]
    ours = {"schema": "holdfast", "lanes": "2", **{plain: unquote(value) for plain, _, value in named}}
    if not _SCHEMA.fullmatch(ours["schema"]):
        raise ValidationError("schema must be a plain lower-case name of at most 51 characters", field="url")
    if ours["lanes"] not in ("1", "2"):
        raise ValidationError("lanes must be 1 or 2", field="url")
    left = [(plain, name, value) for plain, name, value in named if plain not in ("schema", "lanes")]
    if not {plain for plain, _, _ in left} <= _libpq_names():
        raise ValidationError(
            "the url has a parameter that neither Holdfast (schema, lanes) nor libpq knows: in a password write & as %26",
            field="url",
        )
    lanes: Sequence[Lane] = ("work", "keyed") if ours["lanes"] == "1" else ("claim", "work", "keyed")
    return Address(read.text([(name, value) for _, name, value in left]), ours["schema"], lanes)


def _libpq_names() -> set[str]:
    """Names of parameters. `ssl` is an older name that libpq knows in urls alone."""
    return {option.keyword.decode() for option in Conninfo.get_defaults()} | {"ssl"}
