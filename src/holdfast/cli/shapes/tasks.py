"""What the commands for agents answer."""

from holdfast.agent.tasks import Task
from holdfast.cli.shapes.base import Shape


class OneTask(Shape, frozen=True):
    task: Task


class Tasks(Shape, frozen=True):
    tasks: list[Task]
    next_after: int | None


class Outcomes(Shape, frozen=True):
    """How many tasks a run of `task run` took up, by what became of them."""

    succeeded: int
    failed: int
    released: int
    lost: int


class TasksRun(Shape, frozen=True):
    tasks: Outcomes
