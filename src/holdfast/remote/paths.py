"""Paths of a server's routes."""

from urllib.parse import quote


def path(*parts: str | int) -> str:
    """Return the path of a route. Each part is escaped, so that a name with a slash in it stays one part."""
    return "/v1/" + "/".join(quote(str(part), safe="") for part in parts)
