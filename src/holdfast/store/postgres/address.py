"""The address of a ledger on PostgreSQL."""

import re
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import unquote

from psycopg.pq import Conninfo

from holdfast.core.urls import ServerUrl, read_server
from holdfast.errors import ValidationError
from holdfast.store.base import Lane

OWN = ("schema", "lanes", "pooled", "listen")
"""The parameters of a url that are Holdfast's own; the others are for libpq."""
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,50}")


class Address(NamedTuple):
    conninfo: str
    schema: str
    lanes: Sequence[Lane]
    pooled: bool | None
    """Whether a connection pooler in transaction mode may be in between; None where the url does not say."""
    listen: str | None
    """The same for a connection that listens, where that one goes to another host or port."""


def read_url(url: str) -> Address:
    """Split a url into a part for libpq and Holdfast's own parameters.

    `schema`; `lanes=1` for one connection less; `pooled=1` or `pooled=0` where a connection pooler must not be looked for;
    `listen=HOST:PORT`, the server itself, where the url leads to a pooler, which cannot pass on notifications.
    The part for libpq stays as it was typed: libpq has rules of its own for empty parts and for escapes.
    """
    read = read_server(url)
    named = [(unquote(name), name, value) for name, value in read.parameters]
    ours = {
        "schema": "holdfast",
        "lanes": "2",
        "pooled": "",
        "listen": "",
        **{plain: unquote(value) for plain, _, value in named},
    }
    if not _SCHEMA.fullmatch(ours["schema"]):
        raise ValidationError("schema must be a plain lower-case name of at most 51 characters", field="url")
    if ours["lanes"] not in ("1", "2"):
        raise ValidationError("lanes must be 1 or 2", field="url")
    if ours["pooled"] not in ("", "0", "1"):
        raise ValidationError("pooled must be 0 or 1", field="url")
    left = [(plain, name, value) for plain, name, value in named if plain not in OWN]
    if not {plain for plain, _, _ in left} <= _libpq_names():
        raise ValidationError(
            f"the url has a parameter that neither Holdfast ({', '.join(OWN)}) nor libpq knows: in a password write & as %26",
            field="url",
        )
    lanes: Sequence[Lane] = ("work", "keyed") if ours["lanes"] == "1" else ("claim", "work", "keyed")
    kept = [(name, value) for _, name, value in left]
    pooled = None if not ours["pooled"] else ours["pooled"] == "1"
    return Address(read.text(kept), ours["schema"], lanes, pooled, _listen(read, ours["listen"], kept))


def _listen(read: ServerUrl, hosts: str, parameters: Sequence[tuple[str, str]]) -> str | None:
    if not hosts:
        return None
    text = read._replace(hosts=hosts).text(parameters)
    if read_server(text).hosts != hosts:
        raise ValidationError("listen must be HOST or HOST:PORT", field="url")
    return text


def _libpq_names() -> set[str]:
    """Names of parameters. `ssl` is an older name that libpq knows in urls alone."""
    return {option.keyword.decode() for option in Conninfo.get_defaults()} | {"ssl"}
