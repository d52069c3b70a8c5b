"""Read the progress that a program reports of its own work, where an error would only disturb that work."""

import math
from typing import Any

from holdfast.core.limits import INTEGER_MAX

PER_CENT_MAX = 99
"""The largest share below 1. A share is never rounded up to the whole."""


def read_progress(given: Any) -> int | None:
    """Return the whole number to record for a number, or None if it cannot be read: no number, or not finite.

    A number between 0 and 1 is a share and recorded in per cent: 0.5 is 50. Any other is rounded down. Below 0 it is 0.
    """
    if type(given) is int:
        return max(0, min(given, INTEGER_MAX))
    if isinstance(given, bool):
        return None
    try:
        if 0 < given < 1:
            # Binary fractions: 0.29 * 100 is a little less than 29.
            return min(PER_CENT_MAX, math.floor(round(float(given) * 100, 9)))
        if not -math.inf < given < math.inf:
            return None
        # To round a decimal number of many digits would take long.
        return 0 if given <= 0 else INTEGER_MAX if given >= INTEGER_MAX else math.floor(given)
    except Exception:  # noqa: BLE001 - comparing and rounding may run code of any type
        return None
