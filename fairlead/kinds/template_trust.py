"""Whose a template is: an administrator's, or somebody's who could otherwise not do in a cluster what it asks for.

The annotation `service.sh/trusted` says so; `admission/template_trust.py` is the only writer of it. What an instance
was rendered from is remembered in its status (`templateTrust`), because the template may change afterwards. Pure.
"""

from fairlead.core.objects import Object, dig, metadata

TRUST_ANNOTATION = "service.sh/trusted"
TRUE, FALSE = "true", "false"

TRUSTED, CONFINED, UNMARKED = "Trusted", "Confined", "Unmarked"
"""An administrator's; anybody's; stored before there was a mark, so that nobody can tell."""
LEVELS = (TRUSTED, CONFINED, UNMARKED)

DEFINITIONS = ("template", "parameters", "versions")
"""The fields of a template's spec that decide what is made in a cluster."""


def find_trust(instance: Object, template: Object | None) -> str:
    """How far what the instance asks for is to be trusted. What is written out in place never is."""
    if template is None or not dig(instance, "spec.templateRef.name"):
        return CONFINED
    mark = (metadata(template).get("annotations") or {}).get(TRUST_ANNOTATION)
    if mark is None:
        return UNMARKED
    return TRUSTED if mark == TRUE else CONFINED
