"""The planned times of a schedule: every so often, or by a cron expression in a time zone.

In the hour that a zone skips in spring, a job at a fixed time runs right after the gap. In the hour that comes twice in autumn,
it runs once, the first time. Expressions with a `*` for the minute or the hour follow the clock on the wall: they do not run in
the gap, and run in both hours.
"""

from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import islice
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from holdfast.core import limits
from holdfast.core.model import Micros
from holdfast.core.schedule import ScheduleBody
from holdfast.errors import ValidationError
from holdfast.ledger.public import to_datetime, to_micros

FIELDS = ("minute", "hour", "day-of-month", "month", "day-of-week")
ALIASES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
}
_WINDOWS = (timedelta(hours=1), timedelta(days=2), timedelta(days=70), timedelta(days=800), timedelta(days=20_000))
"""How far back to look for the newest time, the shortest first. Even `0 0 29 2 *` has one within 20,000 days."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@cache
def zone(name: str) -> ZoneInfo:
    """Return a time zone. Raise ValidationError if there is none of this name."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise ValidationError(
            f"there is no time zone {name!r:.80}", field="tz", action='Use a name such as "Europe/Berlin" or "UTC".'
        ) from None


def read_cron(text: str) -> str:
    """Return a checked cron expression of five fields. Raise ValidationError that names the wrong part."""
    wanted = ALIASES.get(text.strip(), text.strip())
    parts = wanted.split()
    if len(parts) != len(FIELDS):
        names = ", ".join(ALIASES)
        action = f'The fields are minute, hour, day of month, month and day of week, as in "0 3 * * *". Or write {names}.'
        raise ValidationError(f"cron {text!r:.80} has {len(parts)} fields, not five", field="cron", action=action)
    try:
        first = next(CronSim(wanted, _EPOCH), None)
    except CronSimError as error:
        wrong = str(error).removeprefix("Bad ")
        value = parts[FIELDS.index(wrong)] if wrong in FIELDS else wanted
        raise ValidationError(f"cron {text!r:.80}: {value!r:.40} is not a valid {wrong}", field="cron", part=wrong) from None
    if first is None:
        raise ValidationError(f"cron {text!r:.80} never fires", field="cron")
    return " ".join(parts)


class CronTimes:
    """Times by a cron expression."""

    def __init__(self, cron: str, tz: str) -> None:
        self._cron = cron
        self._zone = zone(tz)

    def after(self, at: Micros) -> Micros | None:
        try:
            local = to_datetime(at).astimezone(self._zone)
            for found in islice(CronSim(self._cron, local), limits.MISSED_FIRINGS_COUNTED_MAX):
                planned = to_micros(found.astimezone(UTC))
                # In the second of two equal hours, the time on the wall may be one that has passed in the first.
                if planned > at:
                    return planned
        except OverflowError:
            return None  # the calendar ends with the year 9999
        return None

    def newest(self, at: Micros) -> Micros | None:
        for window in _WINDOWS:
            planned, found = self.after(max(0, at - window // timedelta(microseconds=1))), None
            while planned is not None and planned <= at:
                found, planned = planned, self.after(planned)
            if found is not None:
                return found
        return None


class RegularTimes:
    """Every so many microseconds, counted from a time."""

    def __init__(self, every_us: int, origin: Micros) -> None:
        self._every = every_us
        self._origin = origin

    def after(self, at: Micros) -> Micros:
        return self._origin if at < self._origin else self._origin + ((at - self._origin) // self._every + 1) * self._every

    def newest(self, at: Micros) -> Micros | None:
        return None if at < self._origin else self._origin + (at - self._origin) // self._every * self._every


class ScheduleTimes:
    """The planned times of a schedule between its start and its end."""

    def __init__(self, body: ScheduleBody) -> None:
        self._start, self._end = body.start_at or 0, limits.TIME_US_MAX if body.end_at is None else body.end_at
        self._times: CronTimes | RegularTimes
        if body.cron is not None:
            self._times = CronTimes(body.cron, body.tz)
        else:
            assert body.every_us is not None
            self._times = RegularTimes(body.every_us, self._start)

    def after(self, at: Micros) -> Micros | None:
        found = self._times.after(max(at, self._start - 1))
        return None if found is None or found > self._end else found

    def newest(self, at: Micros) -> Micros | None:
        found = self._times.newest(min(at, self._end))
        return None if found is None or found < self._start else found
