"""Durable state. `base` is the contract; `sqlite` and `postgres` keep it; neither knows the other."""
