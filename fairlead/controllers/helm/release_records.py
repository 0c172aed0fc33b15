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
from fairlead.core.body_errors import MAX_DEPTH
from fairlead.core.concurrency import LARGE_JSON_BYTES, compute
from fairlead.core.json import MAX_VALUES_AT_ONCE, encode_sorted
from fairlead.core.json.outlines import outline
from fairlead.core.json.slices import decode_in_slices
from fairlead.core.objects import Object, get_path
from fairlead.kinds.instances.app_instance import MAX_NOTES_LENGTH
from fairlead.upstream.kube_client import KubeApi

MAX_RECORD_BYTES = 32 * 2**20
"""Maximum size of the revisions of a release after decompression, of all that are read together. Secrets have 1 MiB at
most."""
MAX_READ_REVISIONS = 5
"""How many revisions are read, the newest ones. Of others, only the labels are known. Helm keeps three."""
MAX_RECORD_VALUES = 1_000_000
"""Maximum number of JSON values in a revision: each takes far more memory than its text."""
DEPLOYED_STATE = "deployed"
_PENDING_STATES = frozenset({"pending-install", "pending-upgrade", "pending-rollback"})
_REMOVED_STATES = frozenset({"uninstalled", "uninstalling"})
_GZIP = 31
_MAX_TEXT_LENGTH = 253


@dataclass(frozen=True, slots=True)
class ReleaseRecord:
    """One revision of a release. `state` is what Helm says of it, such as `deployed` or `failed`. `digest` identifies
    its chart, values and revision. `manifest` are its objects as YAML; they may be secret. Only revision and state are
    known of one that was not read."""

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
    secrets = sorted(list_items(await api.get(path), "items"), key=_revision_of, reverse=True)
    return await compute(_measure(secrets[:MAX_READ_REVISIONS]), _parse_records, secrets)


def _revision_of(secret: Object) -> int:
    text = get_path(secret, "metadata.labels.version")
    return int(text) if isinstance(text, str) and text.isascii() and text.isdigit() and len(text) < 10 else 0


def _measure(secrets: Sequence[Object]) -> int:
    """How much is to be parsed, in bytes, as far as it matters whether that is done in a thread: a few KiB may
    decompress to many MiB."""
    encoded = sum(len(str(get_path(each, "data.release") or "")) for each in secrets)
    return encoded if encoded > LARGE_JSON_BYTES else sum(len(_read_text(each, LARGE_JSON_BYTES)) for each in secrets)


def _parse_records(secrets: Sequence[Object]) -> Sequence[ReleaseRecord]:
    """The revisions, in the same order. Who may write Secrets in the namespace can write any number of them."""
    records: list[ReleaseRecord] = []
    remaining_bytes = MAX_RECORD_BYTES
    for secret in secrets:
        revision = _revision_of(secret)
        state = _text(get_path(secret, "metadata.labels"), "status")
        text = _read_text(secret, remaining_bytes) if len(records) < MAX_READ_REVISIONS else b""
        content = _decode(text) if 0 < len(text) <= remaining_bytes else None
        if content is not None:
            remaining_bytes -= len(text)
            records.append(_build_record(revision, state, content))
        elif not records and state == DEPLOYED_STATE:
            raise unexpected_response("the record of the release cannot be read")
        else:
            records.append(ReleaseRecord(revision, state))  # it is not what is deployed now
    return records


def _build_record(revision: int, state: str, content: Object) -> ReleaseRecord:
    chart = get_path(content, "chart.metadata") or {}
    name = _text(chart, "name")
    version = _text(chart, "version")
    manifest = content.get("manifest")
    parts = [revision, name, version, content.get("config"), manifest]
    digest = hashlib.sha256(encode_sorted(parts)).hexdigest()[:32]
    notes = get_path(content, "info.notes")
    shown = _printable(notes, MAX_NOTES_LENGTH) if isinstance(notes, str) else ""
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


def _read_text(secret: Object, max_bytes: int) -> bytes:
    """The JSON text of a revision, empty if it cannot be read; if it is larger than `max_bytes`, one byte more than
    that. Helm does not compress releases of its first versions."""
    try:
        content = b64decode(b64decode(get_path(secret, "data.release")))
        if not content.startswith(b"\x1f\x8b"):
            return content[: max_bytes + 1]
        return zlib.decompressobj(wbits=_GZIP).decompress(content, max_bytes + 1)
    except (TypeError, ValueError, zlib.error):
        return b""


def _decode(text: bytes) -> Object | None:
    """The content of a revision; None if it is not valid. Large ones are decoded in slices: a call into C code blocks
    the event loop until it returns."""
    try:
        found = outline(text)
        if found.depth > MAX_DEPTH or found.values > MAX_RECORD_VALUES:
            return None
        content = decode_in_slices(text) if found.values > MAX_VALUES_AT_ONCE else orjson.loads(text)
    except ValueError:
        return None
    return content if isinstance(content, dict) else None


def _text(source: Any, field: str) -> str:
    value = source.get(field) if isinstance(source, dict) else None
    return _printable(value, _MAX_TEXT_LENGTH) if isinstance(value, str) else ""


def _printable(text: str, max_length: int) -> str:
    """Without control characters, which a terminal would interpret. Only the beginning of a long text is looked at."""
    considered = text[: 2 * max_length]
    return "".join(each for each in considered if each.isprintable() or each in "\n\t")[:max_length]
