"""Findings of the doctors, as lines and as JSON."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairlead.core.machine import Finding


def describe_finding(finding: "Finding") -> list[str]:
    lines = [f"{_state(finding):8} {finding.subject}" + (f": {finding.problem}" if finding.problem else "")]
    return [*lines, f"         fix: {finding.remedy}"] if finding.problem and finding.remedy else lines


def encode_finding(finding: "Finding") -> dict[str, Any]:
    detail = {"problem": finding.problem, "remedy": finding.remedy} if finding.problem else {}
    return {"subject": finding.subject, "state": _state(finding).lower(), **detail}


def _state(finding: "Finding") -> str:
    return "ok" if not finding.problem else "PROBLEM" if finding.is_fatal else "warning"
