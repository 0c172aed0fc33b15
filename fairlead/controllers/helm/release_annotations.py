"""Sets the annotations of an App on all objects of its release, after Helm has deployed them.

Helm has no option for that. So the annotations are applied to each object of the manifest with a server-side apply of
their own, which also removes those that an earlier deployment has set. An annotation that the chart itself sets stays
as the chart has it: Helm would refuse the next upgrade if the field had another owner.
"""

import asyncio

from fairlead.controllers.helm.chart import Release
from fairlead.controllers.helm.release_objects import MAX_MANIFEST_OBJECTS, belongs_to, find_path, title_of
from fairlead.controllers.helm.release_records import ReleaseRecord
from fairlead.controllers.instances.discovery import Discovery
from fairlead.controllers.instances.remote_errors import WARNING, InstanceError
from fairlead.controllers.instances.remote_objects import parse_objects
from fairlead.core.concurrency import LARGE_YAML_BYTES, compute
from fairlead.core.objects import Object, metadata, name_of
from fairlead.upstream.kube_client import KubeApi, get_or_none

CONCURRENT_APPLIES = 4
ANNOTATIONS_NOT_SET = "AnnotationsNotSet"


async def apply_annotations(api: KubeApi, release: Release, record: ReleaseRecord) -> None:
    """Sets the annotations of the release on the objects of a deployed revision, and removes former ones. Raises
    InstanceError, RemoteApiError and UpstreamError."""
    text = record.manifest
    objects = await compute(len(text), parse_objects, text, MAX_MANIFEST_OBJECTS, inline_size=LARGE_YAML_BYTES)
    discovery = Discovery(api)
    semaphore = asyncio.Semaphore(CONCURRENT_APPLIES)

    async def apply(wanted: Object) -> None:
        async with semaphore:
            await _apply_to_object(api, discovery, release, wanted)

    results = await asyncio.gather(*(apply(each) for each in objects), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result


async def _apply_to_object(api: KubeApi, discovery: Discovery, release: Release, wanted: Object) -> None:
    path = await find_path(discovery, release, wanted)
    live = await get_or_none(api, path) if path else None
    if live is None or not belongs_to(release, live):
        message = (
            f"{title_of(wanted)} of the release is not in the cluster, or is not marked as an object of the release, "
            "so it has no annotations of the app; check what else writes to it"
        )
        raise InstanceError(ANNOTATIONS_NOT_SET, message, WARNING)
    # With the uid: without it, an object that is deleted meanwhile would be created with nothing but annotations.
    meta: Object = {"name": name_of(wanted), "uid": metadata(live)["uid"]}
    if annotations := release.added_annotations(wanted):
        meta["annotations"] = annotations
    await api.apply(path, {"apiVersion": wanted["apiVersion"], "kind": wanted["kind"], "metadata": meta})
