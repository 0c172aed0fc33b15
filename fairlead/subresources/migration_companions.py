"""What moves to another project with a virtual cluster, besides the objects that it owns, and what prevents that.

| object | why |
|---|---|
| app instances that are deployed into it | their target is a virtual cluster of their own project |
| the Secret that `spec.config` of an imported one names | it is looked up in the project of the virtual cluster |

A Secret that other objects name as well cannot move. Nothing moves while Helm runs for one of the objects, nor while
the workloads of the virtual cluster are stopped or started: what was done would be recorded for an object that is gone.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fairlead.core.errors import ApiError, Conflict
from fairlead.core.objects import Object, get_path, metadata, name_of
from fairlead.domain.typed_objects import (
    RELEASE_PARTS,
    SPACE_OBJECTS,
    VIRTUAL_CLUSTER_OBJECTS,
    AppInstance,
    VirtualClusterInstance,
)
from fairlead.kinds.clusters.cluster import CLUSTER
from fairlead.kinds.instances.app_instance import APP_INSTANCE
from fairlead.kinds.instances.remote_instances import VIRTUAL_CLUSTER
from fairlead.registry.codec import decode
from fairlead.registry.kind import Kind
from fairlead.registry.namespace_move import MovedObject
from fairlead.registry.registry import Registry
from fairlead.storage.view.view import Entry

TARGET_FIELD = "spec.target.virtualClusterInstance.name"
SECRETS = "secrets"
SECRET_FIELD = "spec.config.secretName"

MaySee = Callable[[Kind, str, str], bool]
"""Whether the requester may get the object of that kind, namespace and name."""


@dataclass(frozen=True, slots=True)
class MigrationCompanions:
    registry: Registry
    api_group: str

    def find(self, entry: Entry) -> Sequence[Entry]:
        """The objects that move with a virtual cluster."""
        instance = decode(entry)
        namespace = entry.key[2]
        found = [each for each in self._find_apps(entry) if _is_deployed_into(each, instance)]
        secret = self.registry.view.get(("", SECRETS, namespace, config_secret(instance)))
        return [*found, secret] if secret is not None else found

    def _find_apps(self, entry: Entry) -> Iterator[Entry]:
        for each in self.registry.view.entries(self.api_group, APP_INSTANCE.plural, entry.key[2]):
            if each.fields.get(TARGET_FIELD) == entry.key[3]:
                yield each

    def find_obstacles(self, objects: Sequence[MovedObject], may_see: MaySee) -> Iterable[ApiError]:
        """What prevents the move of these objects, of which the first is the virtual cluster."""
        for each in objects:
            if any(attempt.get("outcome") == "Running" for attempt in _iter_attempts(each.obj)):
                reason = "a deployment of it is running; try again when that has ended"
                yield Conflict.of(each.kind.plural, each.kind.group, each.name, reason)
        leading = objects[0]
        transition = VirtualClusterInstance(leading.obj).sleep_transition
        if transition:
            reason = f"it is {transition}; try again when it is asleep or awake"
            yield Conflict.of(leading.kind.plural, leading.kind.group, leading.name, reason)
        name = config_secret(leading.obj)
        if name and any(is_config_secret(each, leading) for each in objects):
            users = list(self._find_other_users(leading.obj, name, may_see))
            if users:
                reason = f"it is also the kubeconfig of {', '.join(users)}; give each a Secret of its own"
                yield Conflict.of(SECRETS, "", name, reason)

    def _find_other_users(self, instance: Object, secret: str, may_see: MaySee) -> Iterator[str]:
        """The other virtual clusters and the clusters that name the Secret."""
        namespace = str(metadata(instance)["namespace"])
        for kind, where in ((VIRTUAL_CLUSTER, namespace), (CLUSTER, "")):
            for entry in self.registry.view.entries(self.api_group, kind.plural, where):
                other = decode(entry)
                is_same = where == namespace and name_of(other) == name_of(instance)
                place = get_path(other, "spec.config.secretNamespace") if kind is CLUSTER else namespace
                if not is_same and place == namespace and config_secret(other) == secret:
                    known = may_see(kind, where, name_of(other))
                    yield f'{kind.name} "{name_of(other)}"' if known else f"another {kind.name}"


def _iter_attempts(obj: Object) -> Iterator[Object]:
    """The last run of Helm for the release of an object, and for each chart and app of its template."""
    yield get_path(obj, "status.lastAttempt") or {}
    for field in (SPACE_OBJECTS, VIRTUAL_CLUSTER_OBJECTS):
        for part in RELEASE_PARTS:
            for each in get_path(obj, f"status.{field}.{part}") or ():
                yield each.get("attempt") or {}


def config_secret(instance: Object) -> str:
    """The Secret with the kubeconfig, if `spec.config` names one."""
    return str(get_path(instance, SECRET_FIELD) or "")


def is_config_secret(moved: MovedObject, instance: MovedObject) -> bool:
    return (moved.kind.group, moved.kind.plural, moved.name) == ("", SECRETS, config_secret(instance.obj))


def adapt_app(app: Object, uids: Mapping[str, str]) -> None:
    """Lets an app know its target by the new uid."""
    status = app.get("status") or {}
    if status.get("targetUID") in uids:
        status["targetUID"] = uids[status["targetUID"]]


def _is_deployed_into(entry: Entry, instance: Object) -> bool:
    """An app that was deployed into a former virtual cluster of the same name is none of this one."""
    return AppInstance(decode(entry)).target_uid in ("", metadata(instance)["uid"])
