"""The remote ledger: the ledger's verbs, sent to a Holdfast server over HTTP."""

from holdfast.remote.ledger import RemoteLedger
from holdfast.remote.transport import Transport

__all__ = ["RemoteLedger", "Transport"]
