"""What a store remembers between transactions."""

from typing import Protocol

from holdfast.core.model import Actor, Policy


class Learned(Protocol):
    """A transaction that may have read, or made, what is worth remembering."""

    learned: dict[tuple[str, str, str], int]
    policies: dict[int, Policy]


class Memory:
    """Rows that never change once they are committed."""

    ACTORS_MAX = 10_000

    def __init__(self) -> None:
        self.policies: dict[int, Policy] = {}
        self.profiles: dict[tuple[str, str, str], int] = {}
        self.actors: dict[str, Actor] = {}

    def keep(self, session: Learned) -> None:
        """The session was committed: what it read, its own writes among it, is so."""
        if session.learned:
            self.profiles.update(session.learned)
        if session.policies:
            self.policies.update(session.policies)

    def actor(self, text: str) -> Actor:
        found = self.actors.get(text)
        if found is None:
            if len(self.actors) >= self.ACTORS_MAX:
                self.actors.clear()
            found = self.actors[text] = Actor.parse(text)
        return found
