"""Verifying what a ledger exported, offline: nothing here opens a ledger, reads a clock or asks a network."""

from holdfast.verify.checking import verify_file
from holdfast.verify.findings import Finding, Verdict
from holdfast.verify.heads import Wishes, read_anchor
from holdfast.verify.leaves import Level
from holdfast.verify.trusted import Trusted, parse_trusted

__all__ = ["Finding", "Level", "Trusted", "Verdict", "Wishes", "parse_trusted", "read_anchor", "verify_file"]
