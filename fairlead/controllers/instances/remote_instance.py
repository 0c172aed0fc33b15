"""What the controllers of spaces and virtual clusters read from the registry about an instance, and write to it.

Only instances of projects in clusters that are connected for real, with a kubeconfig, are their matter: everything else
they leave as it is. They write the conditions that are about the cluster, and in the same write what follows from them:
`standing` works that out, here as in `templates.py`.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress

from fairlead.controllers.helm.helm import WAITING
from fairlead.controllers.instances.prerequisites import CLUSTERS, PROJECTS, Setting, Surroundings
from fairlead.controllers.instances.remote_errors import ERROR, INFO, Trouble, troubles
from fairlead.controllers.instances.remote_namespace import DELETING, Place
from fairlead.controllers.instances.status import RESOLVED, record_transition, standing
from fairlead.controllers.runtime.backoff import RETRY, Backoff, Where, jittered
from fairlead.controllers.runtime.loop import Requeue
from fairlead.core.clock import timestamp
from fairlead.core.errors import NotFound
from fairlead.core.objects import Object, add_finalizer, copied, dig, has_finalizer, metadata, name_of, remove_finalizer
from fairlead.domain.password_parameters import conceal_conditions
from fairlead.domain.template_resolution import TEMPLATES
from fairlead.kinds.instances.fields import READY
from fairlead.registry.codec import decode
from fairlead.registry.conditions import FALSE, TRUE, condition, find_condition, is_true, with_conditions
from fairlead.registry.events import record
from fairlead.registry.names import label_faults
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import by_the_server
from fairlead.storage.contract import Key
from fairlead.storage.view.view import Entry

ABANDON = "service.sh/abandon"
"""Annotation of an instance whose deletion should wait for its cluster no longer."""


TRY_AGAIN_SECONDS = 10.0
"""How often at most a change in a cluster ends the wait of an instance after a failure."""


class ConnectedInstances:
    """The instances of one plural. `finalizer` is what holds them until the cluster is cleaned up."""

    def __init__(self, registry: Registry, setting: Setting, plural: str, finalizer: str) -> None:
        self.registry = registry
        self._setting = setting
        self._surroundings = Surroundings(registry, setting)
        self._plural = plural
        self._finalizer = finalizer
        self._resource = registry.resource(setting.api_group, plural)
        self._backoff = Backoff(registry.clock)
        self._tried_again: dict[Where, float] = {}
        """When the wait after a failure was last ended by a change in a cluster."""
        self._seen: dict[tuple[str, str], object] = {}
        """What was last known of each cluster and project, as far as it matters to instances."""

    @property
    def watches(self) -> Sequence[tuple[str, str]]:
        return tuple((self._setting.api_group, plural) for plural in (self._plural, CLUSTERS, PROJECTS))

    def concerned(self, key: Key, entry: Entry | None) -> Iterable[Key]:
        """An instance itself. A cluster or a project concerns its instances when it has changed in what they go by:
        clusters are probed all the time, and projects are counted in."""
        if key[1] == self._plural:
            return (key,)
        news = _gist(key[1], decode(entry)) if entry is not None else None
        if news == self._seen.get((key[1], key[3])):
            return ()
        if news is None:
            del self._seen[key[1], key[3]]
        else:
            self._seen[key[1], key[3]] = news
        if key[1] == PROJECTS:
            return [each.key for each in self._entries(f"{self._setting.prefix}{key[3]}")]
        return [each.key for each in self._entries() if each.fields.get("spec.clusterRef.cluster") == key[3]]

    def _entries(self, namespace: str = "") -> list[Entry]:
        return self.registry.view.entries(self._setting.api_group, self._plural, namespace)

    def see(self, key: Key) -> Object | None:
        """The instance, unless it is gone or to be left alone."""
        entry = self._resource.peek(key[2], key[3])
        instance = decode(entry) if entry is not None else None
        if instance is None:
            self._backoff.forget((key[2], key[3]))
            self._tried_again.pop((key[2], key[3]), None)
        return None if dig(instance, "status.ignoreReconciliation") else instance

    def project(self, instance: Object) -> Object | None:
        return self._surroundings.project(instance)

    def project_name(self, instance: Object) -> str:
        return self._surroundings.project_name(instance)

    def cluster(self, instance: Object) -> Object | None:
        """The cluster that the instance names, if there is one."""
        return self._surroundings.cluster(instance)

    def can_be_made(self, instance: Object) -> bool:
        """Whether there is nothing in the way of making it. It is looked at again when that has changed."""
        return self._surroundings.can_be_made(instance)

    def wait(self, instance: Object) -> float:
        """Seconds until it is tried again to make it what it should be; 0 when that is due."""
        return self._backoff.wait(_where(instance), self._attempt(instance))

    def failed(self, instance: Object, trouble: Trouble) -> float:
        """Takes note that it could not be made. Returns the seconds until the next try."""
        return self._backoff.failed(_where(instance), self._attempt(instance), trouble)

    def start_over(self, instance: Object) -> None:
        """What has failed before does not matter any more."""
        self._backoff.forget(_where(instance))

    def trying_again(self, requeue: Requeue) -> Requeue:
        """Ends the wait after a failure when something has changed in the cluster, since that may be what it has been
        waiting for; but for a cluster that changes all the time only now and then."""

        def try_again(key: Key, seconds: float) -> None:
            where, now = (key[2], key[3]), self.registry.clock.monotonic()
            pause = max(0.0, self._tried_again.get(where, -TRY_AGAIN_SECONDS) + TRY_AGAIN_SECONDS - now)
            if self._backoff.shorten(where, pause):
                self._tried_again[where] = now + pause
            requeue(key, seconds)

        return try_again

    def _attempt(self, instance: Object) -> object:
        """All that decides what becomes of trying to make it."""
        meta, rendered = metadata(instance), dig(instance, f"status.{TEMPLATES[self._plural][1]}")
        around = ((PROJECTS, self.project(instance)), (CLUSTERS, self.cluster(instance)))
        gists = [_gist(plural, each) for plural, each in around if each is not None]
        return meta["uid"], meta.get("generation"), rendered, gists

    def holds(self, instance: Object) -> bool:
        """Whether something in a cluster may have been made for it."""
        return has_finalizer(instance, self._finalizer)

    async def settle(self, instance: Object, place: Callable[[Object], Object]) -> Object:
        """Writes down where the instance is, `clusterRef` as `place` says, and that it holds something there: before
        anything is made, so that nothing is ever left behind. Returns the instance as it is then. Raises Trouble."""
        cluster = self.cluster(instance)
        if not self.holds(instance) and dig(cluster, "spec.unusable"):
            advice = "choose another, or set its spec.unusable to false"
            why = f'cluster "{name_of(cluster or {})}" takes nothing new; {advice}'
            raise Trouble("ClusterUnusable", why, ERROR)

        def settled(current: Object) -> Object:
            new = copied(current)
            new["spec"]["clusterRef"] = _usable(place(new))
            return add_finalizer(new, self._finalizer)

        if settled(instance) == instance:
            return instance
        key = metadata(instance)["namespace"], name_of(instance)
        await self._resource.modify(*key, settled, by_the_server())
        return decode(await self._resource.get(*key))

    async def hold(self, instance: Object) -> None:
        """Sets the finalizer, where anything is to be made of which nobody writes down the place. Raises NotFound."""

        def held(current: Object) -> Object:
            is_same = metadata(current)["uid"] == metadata(instance)["uid"]
            return add_finalizer(current, self._finalizer) if is_same else current

        if not self.holds(instance):
            await self._resource.modify(metadata(instance)["namespace"], name_of(instance), held, by_the_server())

    async def tell(self, instance: Object, conditions: Sequence[Object], **fields: object) -> None:
        """Writes conditions that were found out for `instance` as it was then, and fields of the status."""
        now = timestamp(self.registry.clock.now())
        before: Object = {}

        def told(current: Object) -> Object:
            nonlocal before
            before = current
            return {**current, "status": self._status(current, instance, conditions, fields, now)}

        namespace, name = metadata(instance)["namespace"], name_of(instance)
        entry = self._resource.peek(namespace, name)
        if entry is None or told(current := decode(entry)) == current:
            return
        with suppress(NotFound):  # it went meanwhile
            await self._resource.modify(namespace, name, told, by_the_server("status"))
            await record_transition(self.registry, before, told(before)["status"])

    def _status(
        self, current: Object, instance: Object, conditions: Sequence[Object], fields: Object, now: str
    ) -> Object:
        status = current.get("status") or {}
        if metadata(current)["uid"] != metadata(instance)["uid"] or status.get("ignoreReconciliation"):
            return status
        # What was made of another rendering of the template is remembered, but says nothing about this one.
        rendered = TEMPLATES[self._plural][1]
        is_same = status.get(rendered) == dig(instance, f"status.{rendered}")
        generation = metadata(instance).get("generation", 1)
        told = conceal_conditions(instance, conditions) if is_same else ()
        status = with_conditions({**status, **fields}, told, now, generation)
        return standing(current, status, self._surroundings.obstacle(current), now)

    async def let_go(self, instance: Object, left_behind: str = "") -> None:
        """Takes the finalizer off. What is left behind in a cluster is told in an Event."""
        if left_behind:
            await record(self.registry, instance, "Abandoned", left_behind, type="Warning")

        def free(current: Object) -> Object:
            return remove_finalizer(current, self._finalizer)

        with suppress(NotFound):
            await self._resource.modify(metadata(instance)["namespace"], name_of(instance), free, by_the_server())


def _where(instance: Object) -> Where:
    return metadata(instance)["namespace"], name_of(instance)


def _usable(ref: Object) -> Object:
    for fault in label_faults(ref["namespace"]):
        why = f"spec.clusterRef.namespace {fault}; delete this instance and make one with another"
        raise Trouble("BadNamespace", why, ERROR)
    return ref


def is_placed(instance: Object) -> bool:
    """Whether it says where it is, in words that can be used. Only then anything can have been made for it."""
    namespace = dig(instance, "spec.clusterRef.namespace") or ""
    return bool(dig(instance, "spec.clusterRef.cluster")) and not any(label_faults(namespace))


def _gist(plural: str, obj: Object) -> object:
    """What instances go by. Of a cluster its reachability counts, and which one it is; of both what they ask for."""
    meta = metadata(obj)
    if plural == PROJECTS:
        return meta["uid"], meta.get("generation")
    known = tuple(dig(obj, f"status.{field}") for field in ("online", "phase", "clusterUID"))
    return meta["uid"], meta.get("generation"), *known


def is_resolved(instance: Object) -> bool:
    """Whether its template was resolved for what it asks for now, and it is known whose that is."""
    resolved = find_condition(instance.get("status"), RESOLVED) or {}
    is_current = resolved.get("observedGeneration") == metadata(instance).get("generation", 1)
    return is_current and resolved.get("status") == TRUE and bool(dig(instance, "status.templateTrust"))


def is_abandoned(instance: Object) -> bool:
    return (metadata(instance).get("annotations") or {}).get(ABANDON) == "true"


# DOC-MERGED controllers/removing
# The end of an instance in a cluster: what was made for it there goes first, then the instance itself.
#
# The same for spaces and virtual clusters, which hand in how their things are taken down. A cluster that is out of reach
# is said in the conditions, and can be given up on: by deleting it, or by an annotation of the instance.


POLL, TURN = 2.0, 5.0
"""Seconds until the next look: at one whose namespace is going, and at one that waits for a turn with helm."""

TakeDown = Callable[[Object, Place], Awaitable[Trouble | None]]
"""Takes down what stands in a place. Returns what that waits for; None when all of it is gone. Raises Trouble."""


class Removing:
    """`synced` and `ready` are the conditions that tell how it gets on."""

    def __init__(self, instances: ConnectedInstances, take_down: TakeDown, synced: str, ready: str) -> None:
        self._instances = instances
        self._take_down = take_down
        self._synced = synced
        self._ready = ready

    async def remove(self, instance: Object, place_of: Callable[[Object], Place]) -> float | None:
        """Gets on with it. Returns the seconds after which to look again; None when the instance is let go."""
        if not is_placed(instance):
            await self._instances.let_go(instance)
            return None
        place = place_of(instance)
        where = f'namespace "{place.namespace}" in cluster "{place.cluster}"'
        if is_abandoned(instance) or self._instances.cluster(instance) is None:
            await self._instances.let_go(instance, f"{where} was not removed; if it is still there, delete it yourself")
            return None
        # Before anything is taken away: nobody is told that it can be used while it is not there any more.
        if is_true(instance.get("status"), READY):
            await self._instances.tell(instance, (self._waiting(Trouble(DELETING, "", INFO), where),), online=False)
        try:
            with troubles(place.cluster, f"delete {where}"):
                remaining = await self._take_down(instance, place)
        except Trouble as trouble:
            await self._instances.tell(instance, self._stuck(trouble, where), online=False)
            return jittered(TURN if trouble.reason == WAITING else RETRY)
        if remaining is None:
            await self._instances.let_go(instance)
            return None
        await self._instances.tell(instance, (self._waiting(remaining, where),), online=False)
        return POLL

    def _waiting(self, remaining: Trouble, where: str) -> Object:
        said = f": {remaining.message}" if remaining.message else ""
        return condition(self._ready, FALSE, remaining.reason, f"waits until {where} is gone{said}", remaining.severity)

    def _stuck(self, trouble: Trouble, what: str) -> Sequence[Object]:
        """The conditions of one whose deletion does not get on."""
        way_out = f"annotate this with {ABANDON}=true to let it go and leave {what} behind"
        told = Trouble(trouble.reason, f"{what} cannot be removed: {trouble.message}; or {way_out}", trouble.severity)
        waits = condition(self._ready, FALSE, DELETING, f"waits until {what} can be removed", INFO)
        return told.as_condition(self._synced), waits
