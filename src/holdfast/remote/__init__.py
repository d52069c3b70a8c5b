"""The remote ledger: the ledger's verbs, sent to a Holdfast server over HTTP."""
