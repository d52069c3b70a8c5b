"""What all forms have in common."""

import msgspec


class Shape(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An object with these fields and no others."""
