"""Holdfast's worker beside the job queues people use today: one run, one machine, handlers that do nothing."""
