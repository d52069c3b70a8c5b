"""A stand-in for duties, for tests of what happens where they keep nobody out."""


class Everybody:
    """Gives every duty to everybody, and counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    def take_duty(self, name: str, holder: str, *, ttl: float) -> bool:
        self.asked += 1
        return True

    def drop_duty(self, name: str, holder: str) -> None: ...
