"""What a process keeps up while it runs: periodic services, duties that one process of many has, and leases of jobs."""
