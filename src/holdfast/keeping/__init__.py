"""What a process keeps up while it runs: periodic services, duties that one process of many has, and leases of jobs.

It also has the signals that stop a process, and the heartbeats that a supervised process sends.
"""
