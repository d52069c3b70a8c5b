"""A terminal signals a whole group, and a wrapper passes on what it got: one wish that arrives twice."""

ECHO_SECONDS = 0.2
"""What comes so soon after a signal is its echo."""
