"""diagnose(…): whether a ledger is well, from what was looked at. Pure, like explain."""

from holdfast.core.doctor.shapes import Census, Diagnosis, Finding, Severity, Skew, Vitals
from holdfast.core.doctor.stores import of_store
from holdfast.core.doctor.stuck import of_contents
from holdfast.core.explain.words import moment

__all__ = ["Census", "Diagnosis", "Finding", "Severity", "Skew", "Vitals", "diagnose"]


def diagnose(ledger_id: str, vitals: Vitals, census: Census, skew: Skew | None = None) -> Diagnosis:
    """Everything that was looked at, in the order of its room; what is well too, so that one can see that it was."""
    findings = [*of_store(vitals, skew), *of_contents(census)]
    return Diagnosis(
        ledger_id=ledger_id,
        store=vitals.store,
        store_version=vitals.version,
        schema_version=vitals.schema_version,
        now=moment(census.now),
        well=all(finding.severity is not Severity.WARNING for finding in findings),
        findings=findings,
    )
