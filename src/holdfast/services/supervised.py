"""A worker that is supervised says by itself that it is alive: from a thread that stands still when the interpreter does."""

from holdfast import supervised


class Supervised:
    name = "supervised"

    def __init__(self) -> None:
        self.every_s = supervised.every_s()

    def tick(self) -> None:
        supervised.beat(stage="working")

    def close(self) -> None:
        """There is nothing to hand over."""
