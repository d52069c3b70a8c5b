"""The verbs for agents. An agent has one task in focus. Its next process resumes that task, with a brief of what it is about."""

from holdfast.agent.agent import Agent
from holdfast.agent.brief import Brief, HistoryPage, TaskDetails, get_history, get_task
from holdfast.agent.selection import IdleReason
from holdfast.agent.tasks import Collected, Task

__all__ = ["Agent", "Brief", "Collected", "HistoryPage", "IdleReason", "Task", "TaskDetails", "get_history", "get_task"]
