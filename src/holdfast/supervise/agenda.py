"""What is to be done, and when."""

from collections.abc import Callable

Act = Callable[[], None]


class Agenda:
    """Each act has one time; to say it again moves it."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._due: dict[Act, float] = {}

    def after(self, seconds: float, act: Act) -> None:
        self._due[act] = self._monotonic() + seconds

    def within(self, seconds: float, act: Act) -> None:
        """No later than that."""
        self._due[act] = min(self._due.get(act, float("inf")), self._monotonic() + seconds)

    def drop(self, act: Act) -> None:
        self._due.pop(act, None)

    def patience_s(self) -> float | None:
        """How long until something is due; None where nothing ever is."""
        return max(0.0, min(self._due.values()) - self._monotonic()) if self._due else None

    def act(self) -> None:
        """Do what is due. An act may drop another that was due with it."""
        now = self._monotonic()
        for act in [act for act, at in self._due.items() if at <= now]:
            if self._due.pop(act, None) is not None:
                act()
