"""Handlers and the workers that run them."""

from holdfast.worker.app import App, worker_of
from holdfast.worker.context import AsyncContext, BatchContext, Context
from holdfast.worker.worker import Worker

__all__ = ["App", "AsyncContext", "BatchContext", "Context", "Worker", "worker_of"]
