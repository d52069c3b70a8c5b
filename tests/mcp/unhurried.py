"""`python -m tests.mcp.unhurried`: the program, with unlimited time for a call that meets a lock, and for its end."""

from holdfast.ledger import commit
from holdfast.mcp import sessions
from holdfast.program import main

if __name__ == "__main__":
    commit.PAUSES = (0.0,) * 10_000
    sessions.SHUTDOWN_S = 600.0
    main()
