"""The verbs of `Ledger`, one file for each group."""
