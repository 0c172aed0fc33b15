"""Resolves the environment of a workspace: picks the version, and decides whether a change of it applies. Pure.

As with templates, a reference with a version follows the environment. One without is applied when the workspace is
created, when it names another environment, and together with its template (`spec.templateRef.syncOnce`); a workspace
without a stored template, which has no such request, follows it, too.
"""

from dataclasses import dataclass

from fairlead.core.objects import Object, get_path
from fairlead.domain.template_resolution import DefinitionSource, ResolutionError, find_version, is_auto_synced

ENVIRONMENT = DefinitionSource("environment template", "spec.environmentRef")
NOT_FOUND = "EnvironmentNotFound"


@dataclass(frozen=True, slots=True)
class EnvironmentResolution:
    """`applied` is what the runner gets, in the form of `status.environment`."""

    applied: Object
    is_outdated: bool = False
    """The environment has changed since it was applied."""
    newest_version: str = ""
    """A newer version than the one in use; empty if there is none."""


def resolve_environment(workspace: Object, environment: Object | None) -> EnvironmentResolution | None:
    """`environment` is the object that the workspace names. None if it names none. Raises ResolutionError."""
    name = get_path(workspace, "spec.environmentRef.name") or ""
    if not name:
        return None
    if environment is None:
        raise ResolutionError(NOT_FOUND, f'there is no environment template "{name}"; create it, or name another')
    definition = find_version(workspace, environment, ENVIRONMENT)
    found = {"name": name, "version": definition.version, "inline": definition.template.get("inline") or ""}
    newer = definition.newest_version if definition.version != definition.newest_version else ""
    applied = get_path(workspace, "status.environment")
    if applied is not None and applied != found and _stays(workspace, applied):
        return EnvironmentResolution(applied, is_outdated=True)
    return EnvironmentResolution(found, newest_version=newer)


def _stays(workspace: Object, applied: Object) -> bool:
    """Whether what was applied is of the same reference, and changes apply only on request."""
    reference = get_path(workspace, "spec.environmentRef") or {}
    is_same = applied.get("name") == reference.get("name") and not applied.get("version")
    is_requested = get_path(workspace, "spec.templateRef.syncOnce") is True
    return is_same and not reference.get("version") and not is_auto_synced(workspace) and not is_requested
