"""Diagnose whether a ledger is healthy, from facts that the caller has read. `diagnose` is pure, like `explain`."""

from holdfast.core.doctor.checks import check_contents, check_store
from holdfast.core.doctor.model import Diagnosis, HealthFinding, LedgerHealth, Severity, Skew, StoreHealth
from holdfast.core.explain.formatting import to_datetime

__all__ = ["Diagnosis", "HealthFinding", "LedgerHealth", "Severity", "Skew", "StoreHealth", "diagnose"]


def diagnose(ledger_id: str, store: StoreHealth, health: LedgerHealth, skew: Skew | None = None) -> Diagnosis:
    """Return the findings of all checks in a fixed order, including those that found no problem."""
    findings = [*check_store(store, skew), *check_contents(health)]
    return Diagnosis(
        ledger_id=ledger_id,
        store=store.store,
        store_version=store.version,
        schema_version=store.schema_version,
        now=to_datetime(health.now),
        well=all(finding.severity is not Severity.WARNING for finding in findings),
        findings=findings,
    )
