"""The rules of the lifecycle as pure functions: no IO, no clock, no randomness, no threads, no logging."""
