"""Durable state. `base` defines the contract. `sqlite` and `postgres` implement it and do not import each other."""
