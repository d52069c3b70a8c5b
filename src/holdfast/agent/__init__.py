"""Verbs for agents: a task in focus, taken up again by whichever process comes next, and a brief of what it is about."""

from holdfast.agent.agent import Agent
from holdfast.agent.brief import Brief, InFull
from holdfast.agent.idle import Nothing
from holdfast.agent.looking import Past, look, past
from holdfast.agent.tasks import Collected, Task

__all__ = ["Agent", "Brief", "Collected", "InFull", "Nothing", "Past", "Task", "look", "past"]
