"""What the commands for agents answer."""

from holdfast.agent.tasks import Task
from holdfast.cli.shapes.base import Shape


class OneTask(Shape, frozen=True):
    task: Task


class Tasks(Shape, frozen=True):
    tasks: list[Task]
    next_after: int | None
