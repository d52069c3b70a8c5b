"""Handlers and the workers that run them."""

from holdfast.worker.app import App, worker_of
from holdfast.worker.context import AsyncContext, Context
from holdfast.worker.worker import Worker

__all__ = ["App", "AsyncContext", "Context", "Worker", "worker_of"]
