"""A virtual cluster moves into another project: `POST projects/<target>/migratevirtualclusterinstance`.

`server/api/actions.py` calls it, and it calls `registry/namespace_move.py`, which does it in one commit. What a migration takes is asked
first, so that a refusal says nothing about what exists: the right to change and delete whatever moves where it is, and
to create it where it goes. A key that reaches one project only cannot have both. Every attempt is in the audit log with
both projects; what happened is in the Events of both.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import structlog

from fairlead.core.call import Target
from fairlead.core.errors import ApiError, BadRequest, Forbidden, Invalid, Problem, qualified
from fairlead.core.objects import Object, metadata
from fairlead.registry.events import record
from fairlead.registry.kind import Kind
from fairlead.registry.namespace_move import Move, Moved, Part, move
from fairlead.registry.registry import Registry
from fairlead.registry.resource import Resource
from fairlead.server.api import query_options
from fairlead.server.api.actions import Asked, Handler, Place

PROJECTS = "projects"
INSTANCES = "virtualclusterinstances"
MIGRATION = "migratevirtualclusterinstance"
SOURCE = "sourceVirtualClusterInstance"

SOURCE_PROJECT, TARGET_PROJECT = "service.sh/source-project", "service.sh/target-project"
"""Annotations in the audit log."""

PROJECT_LABEL = "service.sh/project"
OF_THE_PROJECT = frozenset({"ProjectSecretsSynced"})
"""Conditions that speak of the project an object is in."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Route:
    """Which instance goes from which project to which."""

    name: str
    source: str
    target: str
    prefix: str

    @property
    def origin(self) -> str:
        """The namespace that the instance leaves."""
        return f"{self.prefix}{self.source}"

    @property
    def destination(self) -> str:
        return f"{self.prefix}{self.target}"


class Migration:
    """Moves virtual clusters between projects, whose namespaces begin with `prefix`."""

    def __init__(self, registry: Registry, api_group: str, prefix: str) -> None:
        self._registry = registry
        self._projects = registry.resource(api_group, PROJECTS)
        self._namespaces = registry.resource("", "namespaces")
        self._instances = registry.resource(api_group, INSTANCES)
        self._prefix = prefix

    async def __call__(self, asked: Asked) -> Object:
        route = self._route(asked)
        asked.call.annotations.update({SOURCE_PROJECT: route.source, TARGET_PROJECT: route.target})
        if route.source == route.target:
            raise BadRequest(
                f'"{route.name}" is in project "{route.target}" already; post to the project it shall go to'
            )
        rights = Rights(asked, route)
        rights.demand(Part(self._instances.kind, route.name))
        moved = await move(self._registry, self._move(route, rights), query_options.writing(asked.call, asked.user))
        if not asked.dry_run:
            await self._tell(moved, route, asked)
        metadata(asked.body)["creationTimestamp"] = None
        return asked.body

    def _route(self, asked: Asked) -> Route:
        source = asked.body[SOURCE]
        namespace = source["namespace"]
        if not namespace.startswith(self._prefix) or namespace == self._prefix:
            why = f"must be the namespace of a project: {self._prefix}<project>"
            problem = Problem.invalid(f"{SOURCE}.namespace", namespace, why)
            raise Invalid.of(asked.kind.name, asked.kind.group, asked.name, [problem])
        return Route(source["name"], namespace.removeprefix(self._prefix), asked.name, self._prefix)

    def _move(self, route: Route, rights: "Rights") -> Move:
        alive: tuple[tuple[Resource, str], ...] = (
            (self._projects, route.target),
            (self._projects, route.source),
            (self._namespaces, route.origin),
        )

        def adapt(obj: Object) -> None:
            _settle_in(obj, route)

        return Move(self._instances, route.name, route.origin, route.destination, alive, rights.demand_all, adapt)

    async def _tell(self, moved: Moved, route: Route, asked: Asked) -> None:
        """Events where it was and where it is. It has moved by now, whether or not they can be written."""
        along = f" with {moved.dependants} objects that depend on it" if moved.dependants else ""
        by = f"by {asked.user.name}"
        try:
            await record(self._registry, moved.old, "MigratedAway", f"moved to project {route.target}{along} {by}")
            await record(self._registry, moved.new, "Migrated", f"moved here from project {route.source}{along} {by}")
        except ApiError as error:
            log.warning("no event tells of a migration", instance=route.name, reason=error.message)


@dataclass(frozen=True, slots=True)
class Rights:
    """What the caller must be allowed for an object to move: to change and delete it here, and to create it there."""

    asked: Asked
    route: Route

    def demand_all(self, parts: Sequence[Part]) -> None:
        leading, *others = parts
        self.demand(leading)
        for part in others:
            try:
                self.demand(part)
            except Forbidden:
                raise self._held_back(part.kind) from None

    def demand(self, part: Part) -> None:
        for verb in ("update", "delete"):
            self.asked.call.require(self._target(verb, part.kind, self.route.origin, part.name))
        self.asked.call.require(self._target("create", part.kind, self.route.destination, ""))

    def _target(self, verb: str, kind: Kind, namespace: str, name: str) -> Target:
        return replace(
            self.asked.call.target,
            verb=verb,
            path="",
            group=kind.group,
            version=kind.version,
            resource=kind.plural,
            subresource="",
            namespace=namespace,
            name=name,
        )

    def _held_back(self, kind: Kind) -> Forbidden:
        """Who may delete an instance need not be allowed to read what depends on it, so its name is not told."""
        what, route = qualified(kind.plural, kind.group), self.route
        why = (
            f'{what} depend on it and would move along: User "{self.asked.user.name}" needs update and delete on them '
            f'in the namespace "{route.origin}" and create in the namespace "{route.destination}"'
        )
        return Forbidden.of(INSTANCES, self.asked.kind.group, route.name, why)


def _settle_in(obj: Object, route: Route) -> None:
    """What an object says about its project."""
    labels, status = metadata(obj).get("labels") or {}, obj.get("status")
    if labels.get(PROJECT_LABEL) == route.source:
        labels[PROJECT_LABEL] = route.target
    if isinstance(status, dict) and isinstance(status.get("conditions"), list):
        kept = [each for each in status["conditions"] if each.get("type") not in OF_THE_PROJECT]
        status["conditions"] = kept


def migration_handlers(api_group: str, registry: Registry, prefix: str) -> dict[Place, Handler]:
    return {(api_group, PROJECTS, MIGRATION): Migration(registry, api_group, prefix)}
