"""Reads what Helm has stored about a release in the cluster, to show it and to notice changes by others.

Helm stores each revision in a Secret: JSON, compressed and encoded twice. The content comes from the cluster and is not
trusted: it may have any size and shape.
"""

import asyncio
import hashlib
import zlib
from base64 import b64decode
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import orjson

from fairlead.controllers.apps.targets import AppTarget
from fairlead.controllers.helm.chart import Release
from fairlead.controllers.instances.remote_errors import (
    ERROR,
    OWNER_FORBIDDEN,
    InstanceError,
    translate_errors,
    unexpected_response,
)
from fairlead.controllers.instances.remote_namespace import NAMESPACES_PATH, list_items, url_segment
from fairlead.core.concurrency import compute
from fairlead.core.objects import Object, get_path
from fairlead.kinds.instances.app_instance import MAX_NOTES_LENGTH
from fairlead.upstream.kube_client import KubeApi

MAX_RECORD_BYTES = 32 * 2**20
"""Maximum size of a release after decompression. Secrets have 1 MiB at most."""
ROLE_INSUFFICIENT = "RoleInsufficient"
BINDING_RETRY_SECONDS = (0.1, 0.4, 1.5, 3.0, 5.0)
"""Retry delays until a RoleBinding that was just created takes effect."""
_GZIP = 31
_MAX_TEXT_LENGTH = 253


@dataclass(frozen=True, slots=True)
class ReleaseRecord:
    """The deployed revision of a release. `digest` identifies its chart, values and revision."""

    revision: int
    chart: str
    version: str
    app_version: str
    notes: str
    digest: str


async def read_deployed_release(target: AppTarget, release: Release, role: str) -> ReleaseRecord | None:
    """The deployed revision; None if there is none. A cluster takes a moment to notice the RoleBinding that was just
    created, so a missing permission is not reported at once. Raises InstanceError."""
    user, delays = release.impersonate_user, iter(BINDING_RETRY_SECONDS)
    while True:
        try:
            with translate_errors(target.release_target.name, "read the release", user):
                return await read_release(target.api(user), release)
        except InstanceError as error:
            if error.reason != OWNER_FORBIDDEN:
                raise
            delay = next(delays, None)
        if delay is None:
            message = (
                f'the app is deployed with the role "{role}" in namespace "{target.namespace}" only, which does not '
                f'permit to read Secrets there; check that role in cluster "{target.cluster}", or set another one in '
                "the setting chart_role"
            )
            raise InstanceError(ROLE_INSUFFICIENT, message, ERROR)
        await asyncio.sleep(delay)


async def read_release(api: KubeApi, release: Release) -> ReleaseRecord | None:
    """The deployed revision; None if there is none. Raises InstanceError, RemoteApiError and UpstreamError."""
    selector = quote(f"owner=helm,name={release.name},status=deployed", safe="")
    path = f"{NAMESPACES_PATH}/{url_segment(release.namespace)}/secrets?labelSelector={selector}"
    secrets = list_items(await api.get(path), "items")
    if not secrets:
        return None
    newest = max(secrets, key=_revision_of)
    size = len(str(get_path(newest, "data.release") or ""))
    return await compute(size, _parse_record, newest)


def _revision_of(secret: Object) -> int:
    text = get_path(secret, "metadata.labels.version")
    return int(text) if isinstance(text, str) and text.isascii() and text.isdigit() and len(text) < 10 else 0


def _parse_record(secret: Object) -> ReleaseRecord:
    try:
        content = orjson.loads(_decompress(b64decode(b64decode(get_path(secret, "data.release")))))
    except (TypeError, ValueError, zlib.error):
        content = None
    if not isinstance(content, dict):
        raise unexpected_response("the record of the release cannot be read")
    chart = get_path(content, "chart.metadata") or {}
    revision = _revision_of(secret)
    name = _text(chart, "name")
    version = _text(chart, "version")
    parts = [revision, name, version, content.get("config"), content.get("manifest")]
    digest = hashlib.sha256(orjson.dumps(parts, option=orjson.OPT_SORT_KEYS)).hexdigest()[:32]
    notes = get_path(content, "info.notes")
    shown = _printable(notes)[:MAX_NOTES_LENGTH] if isinstance(notes, str) else ""
    return ReleaseRecord(
        revision=revision,
        chart=name,
        version=version,
        app_version=_text(chart, "appVersion"),
        notes=shown,
        digest=digest,
    )


def _decompress(content: bytes) -> bytes:
    """Helm does not compress releases of its first versions."""
    if not content.startswith(b"\x1f\x8b"):
        return content
    decompressor = zlib.decompressobj(wbits=_GZIP)
    result = decompressor.decompress(content, MAX_RECORD_BYTES)
    if decompressor.unconsumed_tail:
        raise ValueError("too large")
    return result


def _text(source: Any, field: str) -> str:
    value = source.get(field) if isinstance(source, dict) else None
    return _printable(value)[:_MAX_TEXT_LENGTH] if isinstance(value, str) else ""


def _printable(text: str) -> str:
    """Without control characters, which a terminal would interpret."""
    return "".join(each for each in text if each.isprintable() or each in "\n\t")
