"""Users and teams as responses show them: names and display fields, nothing else of the object."""

from fairlead.authn.principals import TEAMS
from fairlead.core.objects import Object
from fairlead.core.user import TEAM_GROUP_PREFIX

_DISPLAY_FIELDS = ("displayName", "icon", "username", "email", "subject")


def principal_info(plural: str, name: str, obj: Object | None) -> Object:
    """The user or team of that name; with its display fields if it has an object."""
    spec = (obj or {}).get("spec") or {}
    subject = f"{TEAM_GROUP_PREFIX}{name}" if plural == TEAMS else name
    shown = {field: spec[field] for field in _DISPLAY_FIELDS if spec.get(field)}
    return {"name": name, "username": name, "subject": subject, **shown}
