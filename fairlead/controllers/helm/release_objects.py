"""Compares the objects of a release with the cluster, and deletes what a failed deployment has left there.

Helm does neither: it takes its own record for what the cluster has, and after a failed upgrade it forgets the objects
that only the failed revision has.

An object is compared by a server-side apply of its manifest that is not stored (`dryRun`): the cluster itself says what
the object would be then, with its defaults and its admission. What differs from the live object was changed. Fields
that others have added are not noticed, as Helm does not remove them either.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from fairlead.controllers.helm.chart import Release
from fairlead.controllers.helm.release_records import ReleaseRecord
from fairlead.controllers.instances.discovery import Discovery
from fairlead.controllers.instances.remote_errors import InstanceError, is_about_object
from fairlead.controllers.instances.remote_namespace import uid_precondition
from fairlead.controllers.instances.remote_objects import parse_objects
from fairlead.core.concurrency import LARGE_YAML_BYTES, compute
from fairlead.core.objects import Object, get_path, metadata, name_of
from fairlead.upstream.kube_client import NOT_FOUND, KubeApi, RemoteApiError, delete_if_exists, get_or_none

MAX_COMPARED_OBJECTS = 200
"""Of one release; the rest is not compared."""
MAX_MANIFEST_OBJECTS = 5_000
"""A manifest with more objects is not compared at all."""
CONCURRENT_COMPARISONS = 4
MAX_LISTED_OBJECTS = 5
RELEASE_NAME, RELEASE_NAMESPACE = "meta.helm.sh/release-name", "meta.helm.sh/release-namespace"
"""Annotations by which Helm marks the objects of a release."""
_SLEEP_PREFIX = "sleepmode.service.sh/"
_KEEP_POLICY = "helm.sh/resource-policy"
_SET_BY_CLUSTER = frozenset({"managedFields", "resourceVersion", "generation", "creationTimestamp", "uid", "selfLink"})
_UNAUTHORIZED = 401
_TOO_MANY = 429
_SERVER_ERROR = 500
ObjectIdentity = tuple[str, str, str, str]
"""Group, kind, namespace and name."""


@dataclass(frozen=True, slots=True)
class Differences:
    """Titles of objects of a release, such as `Deployment "web"`: those that were changed, and those that are missing.
    Their content is not stored: it may be secret."""

    changed: Sequence[str] = ()
    missing: Sequence[str] = ()
    compared: int = 0
    """How many objects were compared."""
    unchecked: int = 0
    """How many objects were not compared, as they are too many, or the cluster does not permit or serve that."""
    is_unreadable: bool = False
    """Whether the objects of the release are not known."""

    def __bool__(self) -> bool:
        return bool(self.changed or self.missing)

    @property
    def is_unknown(self) -> bool:
        """Whether nothing was compared, although the release has objects."""
        return self.is_unreadable or (self.unchecked > 0 and not self.compared)

    def describe_unchecked(self) -> str:
        """What was not compared, and why; empty if everything was."""
        if self.is_unreadable:
            return (
                f"its manifest cannot be read, or has more than {MAX_MANIFEST_OBJECTS} objects, so it was not compared"
            )
        if not self.unchecked:
            return ""
        total = self.compared + self.unchecked
        limit = f"; at most {MAX_COMPARED_OBJECTS} are" if total > MAX_COMPARED_OBJECTS else ""
        return (
            f"{self.unchecked} of {total} objects were not compared, as the cluster does not serve their kind or "
            f"refuses a dry run{limit}"
        )

    def describe(self) -> str:
        parts = []
        for verb, titles in (("changed", self.changed), ("missing", self.missing)):
            if titles:
                more = len(titles) - MAX_LISTED_OBJECTS
                listed = ", ".join(titles[:MAX_LISTED_OBJECTS])
                parts.append(f"{verb} in the cluster: {listed}" + (f" and {more} more" if more > 0 else ""))
        return "; ".join(parts)


async def find_differences(api: KubeApi, release: Release, record: ReleaseRecord) -> Differences:
    """Compares each object of a deployed revision with the cluster. Raises RemoteApiError and UpstreamError."""
    objects = await _parse_manifest(record)
    if objects is None:
        return Differences(is_unreadable=True)
    compared = objects[:MAX_COMPARED_OBJECTS]
    discovery = Discovery(api)
    semaphore = asyncio.Semaphore(CONCURRENT_COMPARISONS)

    async def compare(each: Object) -> str:
        async with semaphore:
            return await _compare_object(api, discovery, release, each)

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(compare(each)) for each in compared]
    except ExceptionGroup as errors:  # the other comparisons are cancelled
        raise errors.exceptions[0] from None
    results = [each.result() for each in tasks]
    titles = [title_of(each) for each in compared]
    found = list(zip(titles, results, strict=True))
    return Differences(
        changed=[title for title, result in found if result == _CHANGED],
        missing=[title for title, result in found if result == _MISSING],
        compared=len(compared) - results.count(_UNCHECKED),
        unchecked=len(objects) - len(compared) + results.count(_UNCHECKED),
    )


_SAME, _CHANGED, _MISSING, _UNCHECKED = "same", "changed", "missing", "unchecked"


async def _compare_object(api: KubeApi, discovery: Discovery, release: Release, wanted: Object) -> str:
    """Raises RemoteApiError and UpstreamError if the cluster cannot answer now."""
    try:
        path = await find_path(discovery, release, wanted)
        live = await get_or_none(api, path) if path else None
    except InstanceError:
        return _UNCHECKED
    except RemoteApiError as error:
        if _may_succeed_later(error):
            raise
        return _UNCHECKED  # it may not be read
    if live is None:
        return _MISSING if path else _UNCHECKED
    try:
        applied = await api.check_apply(path, _annotated(release, wanted))
    except RemoteApiError as error:
        if _may_succeed_later(error):
            raise
        # Deleted meanwhile; or the cluster does not permit it, or refuses the object with a dry run.
        return _MISSING if error.status == NOT_FOUND else _UNCHECKED
    if _is_asleep(live):
        return _SAME
    ignored = _scaled_fields(live)
    return _SAME if _comparable(live, ignored) == _comparable(applied, ignored) else _CHANGED


def _may_succeed_later(error: RemoteApiError) -> bool:
    """Whether the error is about the cluster or the credential, and neither about the object nor a permission."""
    is_temporary = error.status in (_UNAUTHORIZED, _TOO_MANY) or error.status >= _SERVER_ERROR
    return is_temporary and not is_about_object(error)


def _annotated(release: Release, wanted: Object) -> Object:
    """With the annotations of the App, which Helm does not know."""
    added = release.added_annotations(wanted)
    if not added:
        return wanted
    meta = metadata(wanted)
    return {**wanted, "metadata": {**meta, "annotations": {**(meta.get("annotations") or {}), **added}}}


def _comparable(obj: Object, ignored: Iterable[str]) -> Object:
    """Without what the cluster sets itself."""
    meta = {name: value for name, value in metadata(obj).items() if name not in _SET_BY_CLUSTER}
    rest = {name: value for name, value in obj.items() if name not in ("metadata", "status", "apiVersion", "kind")}
    if isinstance(rest.get("spec"), dict):
        rest["spec"] = {name: value for name, value in rest["spec"].items() if name not in ignored}
    return {**rest, "metadata": meta}


def _is_asleep(live: Object) -> bool:
    """Whether it is scaled down while its space or virtual cluster sleeps, which its annotations say."""
    annotations = get_path(live, "metadata.annotations")
    return isinstance(annotations, dict) and any(str(each).startswith(_SLEEP_PREFIX) for each in annotations)


def _scaled_fields(live: Object) -> Sequence[str]:
    """The replicas, if they were set through the subresource `scale`: by an autoscaler, which owns them then."""
    for each in _managers(live):
        owns_replicas = isinstance(get_path(each, "fieldsV1.f:spec"), dict) and "f:replicas" in get_path(
            each, "fieldsV1.f:spec"
        )
        if each.get("subresource") == "scale" and owns_replicas:
            return ("replicas",)
    return ()


def _managers(obj: Object) -> Iterable[dict[str, Any]]:
    found = get_path(obj, "metadata.managedFields")
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else ()


async def delete_leftovers(
    api: KubeApi, release: Release, deployed: ReleaseRecord, unfinished: Sequence[ReleaseRecord]
) -> None:
    """Deletes the objects that unfinished revisions have, and the deployed one has not, if Helm has marked them as
    those of this release. Nothing if the objects of the deployed one are not known: all would be deleted. Raises
    RemoteApiError and UpstreamError."""
    wanted = await _parse_manifest(deployed)
    if wanted is None:
        return
    retained = {_identity(release, each) for each in wanted}
    leftovers: dict[ObjectIdentity, Object] = {}
    for record in unfinished:
        for each in await _parse_manifest(record) or ():
            if _identity(release, each) not in retained:
                leftovers[_identity(release, each)] = each
    discovery = Discovery(api)
    for each in leftovers.values():
        try:
            path = await find_path(discovery, release, each)
        except InstanceError:
            continue
        existing = await get_or_none(api, path) if path else None
        if existing is not None and belongs_to(release, existing) and not _is_retained(existing):
            await delete_if_exists(api, path, uid_precondition(existing))


def belongs_to(release: Release, existing: Object) -> bool:
    """Whether Helm has marked an object as one of the release. What the record of a release says is not enough: users
    who may write Secrets in its namespace can change that."""
    annotations = get_path(existing, "metadata.annotations")
    if not isinstance(annotations, dict):
        return False
    return (annotations.get(RELEASE_NAME), annotations.get(RELEASE_NAMESPACE)) == (release.name, release.namespace)


def _is_retained(existing: Object) -> bool:
    annotations = get_path(existing, "metadata.annotations")
    return isinstance(annotations, dict) and annotations.get(_KEEP_POLICY) == "keep"


async def _parse_manifest(record: ReleaseRecord) -> Sequence[Object] | None:
    """The objects of a revision; None if they cannot be read, or are too many."""
    text = record.manifest
    try:
        return await compute(len(text), parse_objects, text, MAX_MANIFEST_OBJECTS, inline_size=LARGE_YAML_BYTES)
    except InstanceError:
        return None


async def find_path(discovery: Discovery, release: Release, obj: Object) -> str:
    """Empty if the cluster does not serve its kind."""
    served = await discovery.find(obj["apiVersion"], obj["kind"])
    return served.path(name_of(obj), _namespace_of(release, obj)) if served is not None else ""


def _namespace_of(release: Release, obj: Object) -> str:
    return str(get_path(obj, "metadata.namespace") or release.namespace)


def _identity(release: Release, obj: Object) -> ObjectIdentity:
    group = obj["apiVersion"].rpartition("/")[0]
    return group, obj["kind"], _namespace_of(release, obj), name_of(obj)


def title_of(obj: Object) -> str:
    return f'{obj["kind"]} "{name_of(obj)}"'
