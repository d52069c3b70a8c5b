"""A replacement for duties that grants every request, for tests without mutual exclusion."""


class GrantEveryDuty:
    """Grant every duty to every caller, and count the requests."""

    def __init__(self) -> None:
        self.asked = 0

    def take_duty(self, name: str, holder: str, *, ttl: float) -> bool:
        self.asked += 1
        return True

    def drop_duty(self, name: str, holder: str) -> None: ...
