"""What can be proved of a ledger by whoever has its keys: canonical statements, signatures, and one tree over everything."""
