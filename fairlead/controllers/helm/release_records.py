"""Reads what Helm has stored about a release in the cluster, to show it and to notice changes by others.

Helm stores each revision in a Secret: JSON, compressed and encoded twice. The content comes from the cluster and is not
trusted: it may have any size and shape. The newest revision says what the last run of Helm has reached, of any
tool: after a failed upgrade it is `failed`, while the one before it still is `deployed`.
"""

import hashlib
import zlib
from base64 import b64decode
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import orjson

from fairlead.controllers.helm.chart import Release
from fairlead.controllers.instances.remote_errors import unexpected_response
from fairlead.controllers.instances.remote_namespace import NAMESPACES_PATH, list_items, url_segment
from fairlead.core.concurrency import compute
from fairlead.core.objects import Object, get_path
from fairlead.kinds.instances.app_instance import MAX_NOTES_LENGTH
from fairlead.upstream.kube_client import KubeApi

MAX_RECORD_BYTES = 32 * 2**20
"""Maximum size of a release after decompression. Secrets have 1 MiB at most."""
DEPLOYED_STATE = "deployed"
_PENDING_STATES = frozenset({"pending-install", "pending-upgrade", "pending-rollback"})
_REMOVED_STATES = frozenset({"uninstalled", "uninstalling"})
_GZIP = 31
_MAX_TEXT_LENGTH = 253


@dataclass(frozen=True, slots=True)
class ReleaseRecord:
    """One revision of a release. `state` is what Helm says of it, such as `deployed` or `failed`. `digest` identifies
    its chart, values and revision. `manifest` are its objects as YAML; they may be secret."""

    revision: int
    state: str
    chart: str = ""
    version: str = ""
    app_version: str = ""
    notes: str = ""
    digest: str = ""
    manifest: str = field(default="", repr=False)

    @property
    def is_deployed(self) -> bool:
        return self.state == DEPLOYED_STATE

    @property
    def is_pending(self) -> bool:
        return self.state in _PENDING_STATES

    @property
    def is_removed(self) -> bool:
        """Whether it was uninstalled, and Helm was told to keep its history."""
        return self.state in _REMOVED_STATES


async def read_revisions(api: KubeApi, release: Release) -> Sequence[ReleaseRecord]:
    """The revisions that no later one has superseded, the newest first: the deployed one, and those that were not
    finished. Raises InstanceError, RemoteApiError and UpstreamError."""
    selector = quote(f"owner=helm,name={release.name},status!=superseded", safe="")
    path = f"{NAMESPACES_PATH}/{url_segment(release.namespace)}/secrets?labelSelector={selector}"
    secrets = list_items(await api.get(path), "items")
    records = []
    for secret in sorted(secrets, key=_revision_of, reverse=True):
        size = len(str(get_path(secret, "data.release") or ""))
        records.append(await compute(size, _parse_record, secret))
    return records


async def read_newest(api: KubeApi, release: Release) -> ReleaseRecord | None:
    """The newest revision; None if there is none. Raises as `read_revisions`."""
    return next(iter(await read_revisions(api, release)), None)


def _revision_of(secret: Object) -> int:
    text = get_path(secret, "metadata.labels.version")
    return int(text) if isinstance(text, str) and text.isascii() and text.isdigit() and len(text) < 10 else 0


def _parse_record(secret: Object) -> ReleaseRecord:
    revision = _revision_of(secret)
    state = _text(get_path(secret, "metadata.labels"), "status")
    try:
        content = orjson.loads(_decompress(b64decode(b64decode(get_path(secret, "data.release")))))
    except (TypeError, ValueError, zlib.error):
        content = None
    if not isinstance(content, dict):
        if state == DEPLOYED_STATE:
            raise unexpected_response("the record of the release cannot be read")
        return ReleaseRecord(revision, state)  # it is not what was deployed, so its content is not needed
    chart = get_path(content, "chart.metadata") or {}
    name = _text(chart, "name")
    version = _text(chart, "version")
    manifest = content.get("manifest")
    parts = [revision, name, version, content.get("config"), manifest]
    digest = hashlib.sha256(orjson.dumps(parts, option=orjson.OPT_SORT_KEYS)).hexdigest()[:32]
    notes = get_path(content, "info.notes")
    shown = _printable(notes)[:MAX_NOTES_LENGTH] if isinstance(notes, str) else ""
    return ReleaseRecord(
        revision=revision,
        state=state,
        chart=name,
        version=version,
        app_version=_text(chart, "appVersion"),
        notes=shown,
        digest=digest,
        manifest=manifest if isinstance(manifest, str) else "",
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
