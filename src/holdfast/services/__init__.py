"""Things that tick: each one file with a `tick()`."""
