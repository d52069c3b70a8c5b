"""diagnose(…): whether a ledger is well, from what was looked at. Pure, like explain."""

from holdfast.core.doctor.checks import check_contents, check_store
from holdfast.core.doctor.model import Diagnosis, HealthFinding, LedgerHealth, Severity, Skew, StoreHealth
from holdfast.core.explain.formatting import to_datetime

__all__ = ["Diagnosis", "HealthFinding", "LedgerHealth", "Severity", "Skew", "StoreHealth", "diagnose"]


def diagnose(ledger_id: str, vitals: StoreHealth, census: LedgerHealth, skew: Skew | None = None) -> Diagnosis:
    """Everything that was looked at, in the order of its room; what is well too, so that one can see that it was."""
    findings = [*check_store(vitals, skew), *check_contents(census)]
    return Diagnosis(
        ledger_id=ledger_id,
        store=vitals.store,
        store_version=vitals.version,
        schema_version=vitals.schema_version,
        now=to_datetime(census.now),
        well=all(finding.severity is not Severity.WARNING for finding in findings),
        findings=findings,
    )
