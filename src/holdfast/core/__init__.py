"""The rules. Pure: no IO, no clock, no randomness, no threads, no logging."""
