"""Reasons that conditions, phases and Events had in earlier versions.

Stored objects contain them until they are reconciled again. Code that compares a stored reason passes it to
`current_reason` first, so that an upgrade changes no decision and records no Event.
"""

from collections.abc import Mapping

FORMER_REASONS: Mapping[str, str] = {
    "AccessTaken": "AccessConflict",
    "BadChart": "InvalidChart",
    "BadKubeconfig": "InvalidKubeconfig",
    "BadNamespace": "InvalidNamespace",
    "BindingTaken": "BindingConflict",
    "Blocked": "AddressNotAllowed",
    "BoundOtherwise": "ForeignBinding",
    "Broken": "ProtocolError",
    "Busy": "ClusterLimitExceeded",
    "LeftAlone": "ManagedExternally",
    "NamespacePattern": "InvalidNamespacePattern",
    "NamespaceTaken": "NamespaceConflict",
    "NoChart": "ChartNotSet",
    "NoConfig": "KubeconfigNotSet",
    "OddAnswer": "UnexpectedResponse",
    "Reached": "Reachable",
    "Refused": "Rejected",
    "SecretTaken": "SecretConflict",
    "TargetNotServed": "TargetNotSupported",
    "TemplateObjects": "InvalidTemplateObjects",
    "Untrusted": "CertificateNotTrusted",
    "WaitingForTurn": "WaitingForHelmSlot",
}
"""Former reasons, with the current ones. docs/upgrades.md has the same table."""


def current_reason(reason: str | None) -> str | None:
    return FORMER_REASONS.get(reason, reason) if reason else reason
