"""The HTTP server: a ledger for workers, robots and people that do not reach its database."""
