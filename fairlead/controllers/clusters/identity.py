"""Records in a connected cluster which installation of Fairlead uses which prefix of user names there.

Users act in a cluster under their names with the prefix of the setting `cluster_identity_prefix`. Two installations
with the same prefix would share these names: the rights of a user of one would be those of the user of that name in the
other, and so for administrators. So each records itself in the ConfigMap `fairlead-identities` of the namespace
`kube-system`, under a key for its prefix. The first one wins; for the other one, the cluster has failed, until it has a
prefix of its own, or an administrator declares with an annotation that both mean the same users.

A record of this installation for another prefix is of a former setting, and is removed. What another one has recorded
is never changed. A cluster without ConfigMaps, or a credential that may not write this one, leaves a second
installation unnoticed; a probe says so.
"""

import asyncio
import hashlib
from dataclasses import dataclass
from typing import Any, Final

import orjson

from fairlead.controllers.clusters.probe import PROBE_TIMEOUT, ROLE_COMMAND, HttpResult, send_request
from fairlead.controllers.clusters.status import Probe
from fairlead.core.objects import Object, get_path
from fairlead.upstream.errors import UpstreamError
from fairlead.upstream.upstream import Upstream

CONFIG_MAP: Final = "fairlead-identities"
CONFIG_MAPS_PATH: Final = "/api/v1/namespaces/kube-system/configmaps"
CONFIG_MAP_PATH: Final = f"{CONFIG_MAPS_PATH}/{CONFIG_MAP}"
IDENTITY_PROBE: Final = "installation"
MAX_ATTEMPTS: Final = 3
"""How often a write is tried that others precede."""
MAX_TEXT_LENGTH: Final = 256
"""How much of an id or URL in a record of another installation is kept."""
_NOT_FOUND, _CONFLICT = 404, 409


@dataclass(frozen=True, slots=True)
class Installation:
    """This installation: the uid of its system namespace, its URL, and the prefix of its users in clusters."""

    id: str
    url: str
    prefix: str


@dataclass(frozen=True, slots=True)
class IdentityClaim:
    """The result of recording this installation: the id and URL of another one that has the prefix, if there is one."""

    probes: tuple[Probe, ...] = ()
    other: str = ""
    other_url: str = ""


async def claim_identity(upstream: Upstream, own: Installation, now: str) -> IdentityClaim | None:
    """Records this installation. None if the cluster did not answer: then nothing is known."""
    try:
        async with asyncio.timeout(PROBE_TIMEOUT):
            for _ in range(MAX_ATTEMPTS):
                claim = await _try_claim(upstream, own, now)
                if claim is not None:
                    return claim
    except (UpstreamError, TimeoutError):
        return None
    return None


async def release_identity(upstream: Upstream, own: Installation) -> None:
    """Removes the records of this installation, as far as that is possible. Raises UpstreamError."""
    for _ in range(MAX_ATTEMPTS):
        found = await send_request(upstream, "GET", CONFIG_MAP_PATH)
        if found.status != 200 or not isinstance(found.body, dict):
            return
        records = _read_records(found.body)
        others = {key: text for key, text in records.items() if _installation_of(text) != own.id}
        if others == records:
            return
        answer = await _write(upstream, found.body, others)
        if answer.status != _CONFLICT:
            return


async def _try_claim(upstream: Upstream, own: Installation, now: str) -> IdentityClaim | None:
    """None if another write came first."""
    found = await send_request(upstream, "GET", CONFIG_MAP_PATH)
    if found.status not in (200, _NOT_FOUND) or (found.status == 200 and not isinstance(found.body, dict)):
        return _unrecorded(found.status)
    records = _read_records(found.body) if found.status == 200 else {}
    key = _record_key(own.prefix)
    holder = _read_record(records.get(key, ""))
    if holder.get("installation") not in (None, own.id):
        return IdentityClaim(
            (Probe(IDENTITY_PROBE, False, "another installation uses the same prefix; see the condition Ready"),),
            other=_bounded(holder["installation"]),
            other_url=_bounded(holder.get("url")),
        )
    wanted = {each: text for each, text in records.items() if _installation_of(text) != own.id}
    is_same = (holder.get("installation"), holder.get("url")) == (own.id, own.url)
    wanted[key] = records[key] if is_same else _build_record(own, str(holder.get("since") or now))
    if wanted == records:
        return _recorded(own)
    if found.status == _NOT_FOUND:
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": CONFIG_MAP}, "data": wanted}
        answer = await send_request(upstream, "POST", CONFIG_MAPS_PATH, body)
    else:
        answer = await _write(upstream, found.body, wanted)
    if answer.status in (200, 201):
        return _recorded(own)
    return None if answer.status == _CONFLICT else _unrecorded(answer.status)


async def _write(upstream: Upstream, current: Object, records: dict[str, str]) -> HttpResult:
    """Replaces the records, unless they have changed since they were read: the resourceVersion stays in the body."""
    return await send_request(upstream, "PUT", CONFIG_MAP_PATH, {**current, "data": records})


def _recorded(own: Installation) -> IdentityClaim:
    message = f'this installation is recorded in the cluster, with the prefix "{own.prefix}" of its users'
    return IdentityClaim((Probe(IDENTITY_PROBE, True, message),))


def _unrecorded(status: int) -> IdentityClaim:
    if status == _NOT_FOUND:  # no ConfigMaps, so not a whole Kubernetes
        return IdentityClaim()
    message = (
        f'the ConfigMap "{CONFIG_MAP}" in the namespace kube-system cannot be written (HTTP status {status}), so '
        "another installation of Fairlead with the same prefix of users is not noticed; grant that: "
        f"`{ROLE_COMMAND} gateways` prints a suitable role"
    )
    return IdentityClaim((Probe(IDENTITY_PROBE, False, message, "Warning"),))


def _record_key(prefix: str) -> str:
    """A prefix may have characters that keys of a ConfigMap may not."""
    return hashlib.sha256(prefix.encode()).hexdigest()[:16]


def _build_record(own: Installation, since: str) -> str:
    record = {"installation": own.id, "prefix": own.prefix, "url": own.url, "since": since}
    return orjson.dumps(record).decode()


def _read_records(config_map: Object) -> dict[str, str]:
    data = get_path(config_map, "data")
    return {str(key): text for key, text in data.items() if isinstance(text, str)} if isinstance(data, dict) else {}


def _read_record(text: str) -> dict[str, Any]:
    """Empty for anything that is not a record: it is replaced."""
    try:
        record = orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}
    return record if isinstance(record, dict) and isinstance(record.get("installation"), str) else {}


def _installation_of(text: str) -> str:
    return str(_read_record(text).get("installation") or "")


def _bounded(text: object) -> str:
    """A text that another installation has written, for messages and the status."""
    printable = "".join(each for each in str(text or "") if each.isprintable())
    return printable[:MAX_TEXT_LENGTH]
