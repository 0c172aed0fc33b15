"""Renews the stored credentials of clusters that are dialled, and reports those that expire.

A credential is renewed at half of its life, with itself, and only in its own cluster (`renewal.py`). The status has the
time of that: the times in a credential are of the clock of the cluster. The new one is tried before it replaces the old
one in the Secret, with a compare-and-swap against the kubeconfig that it was made from: of two writers, one wins, and
the other's credential is not used. If the process ends between the request and the write, the stored one is still
valid, and the next leader asks again. Everything that connects to the cluster follows the Secret as it does when a
person changes it.

The condition `CredentialExpires` exists while a person has to act: a credential that is not renewed expires soon, or
renewing fails. `status.credentialExpiry` has the facts.

Not renewed: what the kubelet renews (`spec.local`), what comes from a file (`kubeconfig_files.py`), what has the
annotation below, and credentials without an account or without a known end. Clusters with an agent have no stored
credential.
"""

from base64 import b64decode, b64encode
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from fairlead.controllers.clusters.clusters import ClusterIndex
from fairlead.controllers.clusters.kubeconfig_files import kubeconfig_file
from fairlead.controllers.clusters.renewal import (
    CLOCKS_DIFFER,
    FAILED,
    RenewalError,
    check_rights,
    find_clock_problem,
    find_postponed_renewal,
    next_renewal_time,
    reason_not_renewable,
    renewal_time,
    request_credential,
    try_credential,
)
from fairlead.core.clock import parse_rfc3339, timestamp
from fairlead.core.errors import ApiError, NotFound
from fairlead.core.json import decode as decode_json
from fairlead.core.objects import Object, get_path, metadata, name_of
from fairlead.registry.codec import decode
from fairlead.registry.conditions import (
    TRUE,
    condition,
    find_condition,
    record_event,
    with_condition,
    without_conditions,
)
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import server_write_options
from fairlead.storage.contract import Key
from fairlead.storage.view.view import Entry
from fairlead.upstream.access import ClusterEndpoint
from fairlead.upstream.clusters import (
    CLUSTERS,
    KubeconfigRef,
    NotConnected,
    UpstreamRegistry,
    cluster_transport_ref,
    kubeconfig_digest,
)
from fairlead.upstream.credential import Credential, read_credential
from fairlead.upstream.kube_client import KubeClient
from fairlead.upstream.kubeconfig import InvalidKubeconfig, parse_kubeconfig, with_user_fields

CREDENTIAL_EXPIRES = "CredentialExpires"
FACTS_FIELD = "credentialExpiry"
RENEWAL_ANNOTATION, RENEWAL_DISABLED = "service.sh/credential-renewal", "disabled"
"""On a Cluster: the server does not replace its credential."""
UNLIMITED, VALID, EXPIRING, EXPIRED = "Unlimited", "Valid", "Expiring", "Expired"
"""`status.credentialExpiry.state`."""
EXPIRES_SOON = "ExpiresSoon"
WARNING_TIME = timedelta(days=14)
"""How long before its end a credential is reported that is not renewed."""
LOCAL_SHARE = 10
"""The kubelet renews a token at four fifths of its life: one with less than a tenth left was not renewed."""
CHECK_SECONDS = 3600.0
"""Interval at which a failed renewal is tried again, and rights are checked. Shorter if there is less time left."""
MIN_RETRY_SECONDS = 60.0
MAX_WAIT_SECONDS = 6 * 3600.0
"""The wall clock is read again then: it may have been corrected."""
VIEW_SECONDS = 1.0
"""Until the view has a Secret that was written."""
REQUEST_SECONDS = 15.0
OVERWRITTEN = RenewalError(
    "RenewalOverwritten",
    "it was renewed, but another writer has stored the old one again; let only one of them write the Secret: set the "
    f"annotation {RENEWAL_ANNOTATION}={RENEWAL_DISABLED} of the Cluster if another program renews it",
)


@dataclass(frozen=True, slots=True)
class Expiry:
    """The condition: reason and message."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class _Stored:
    """The kubeconfig of a cluster as it is in the Secret, and the credential in it."""

    ref: KubeconfigRef
    revision: int
    kubeconfig: bytes
    endpoint: ClusterEndpoint
    credential: Credential
    follows_file: bool

    @property
    def digest(self) -> str:
        return kubeconfig_digest(self.kubeconfig)


@dataclass(slots=True)
class _Progress:
    """What is known about renewing one stored credential. It is lost with the process, which costs one attempt."""

    digest: str
    next_attempt: datetime
    due: datetime
    """When half of its life is over, by the clock of this server."""
    problem: RenewalError | None = None
    failures: int = 0
    """Attempts in a row that have failed for a reason that may pass."""
    replaced: str = ""
    """Digest of the kubeconfig that the last one of ours has replaced."""
    written: int = 0
    """Revision of that write."""


class ClusterCredentialController:
    name, workers = "cluster-credentials", 50

    def __init__(
        self,
        registry: Registry,
        api_group: str,
        system_namespace: str,
        upstreams: UpstreamRegistry,
        *,
        follows_files: bool = False,
    ) -> None:
        """`follows_files`: whether this server has a folder with kubeconfigs that Secrets follow."""
        self.watches = ((api_group, CLUSTERS), ("", "secrets"))
        self._registry = registry
        self._clusters = registry.resource(api_group, CLUSTERS)
        self._secrets = registry.resource("", "secrets")
        self._system_namespace = system_namespace
        self._upstreams = upstreams
        self._follows_files = follows_files
        self._index = ClusterIndex()
        self._progress: dict[Key, _Progress] = {}

    def keys_for(self, key: Key, entry: Entry | None) -> Iterable[Key]:
        """The cluster itself; for a secret, the clusters that name it."""
        if key[1] != CLUSTERS:
            return tuple(self._index.by_secret.get((key[2], key[3]), ()))
        ref = cluster_transport_ref(decode(entry), self._system_namespace) if entry is not None else None
        self._index.update(key, (ref.namespace, ref.name) if ref is not None else None, "")
        return (key,)

    async def reconcile(self, key: Key) -> float | None:
        entry = self._clusters.get_cached("", key[3])
        cluster = decode(entry) if entry is not None else None
        if cluster is None or "deletionTimestamp" in metadata(cluster):
            self._progress.pop(key, None)
            return None
        stored = self._read_stored(cluster)
        if stored is None:
            self._progress.pop(key, None)
            await self._write_status(cluster, {}, None)
            return None
        reason_against = self._reason_against_renewal(cluster, stored)
        progress = None if reason_against else self._progress_of(key, cluster, stored)
        if progress is not None and stored.revision < progress.written:
            return VIEW_SECONDS
        now = self._registry.clock.now()
        if (
            progress is not None
            and progress.next_attempt <= now
            and await self._attempt(key, cluster, stored, progress)
        ):
            return VIEW_SECONDS
        now = self._registry.clock.now()
        problem = progress.problem if progress is not None and progress.failures != 1 else None
        expiry = _find_expiry(cluster, stored.credential, problem, reason_against, now)
        await self._write_status(cluster, _describe(stored.credential, expiry, progress), expiry)
        return _seconds_until_next(stored.credential, progress, now)

    def _read_stored(self, cluster: Object) -> _Stored | None:
        """None without a kubeconfig that can be used: the controller of clusters reports that."""
        ref = cluster_transport_ref(cluster, self._system_namespace)
        if not isinstance(ref, KubeconfigRef):
            return None
        entry = self._secrets.get_cached(ref.namespace, ref.name)
        if entry is None:
            return None
        try:
            kubeconfig = self._upstreams.read_kubeconfig(ref)
            endpoint = self._upstreams.load_endpoint(ref)
        except NotConnected:
            return None
        follows_file = self._follows_files and bool(kubeconfig_file(decode(entry)))
        return _Stored(ref, entry.revision, kubeconfig, endpoint, read_credential(endpoint), follows_file)

    def _reason_against_renewal(self, cluster: Object, stored: _Stored) -> str:
        """Why the server does not renew the credential; empty if it does."""
        if get_path(cluster, "spec.local"):
            return "the kubelet renews it"
        if (metadata(cluster).get("annotations") or {}).get(RENEWAL_ANNOTATION) == RENEWAL_DISABLED:
            return f"the annotation {RENEWAL_ANNOTATION} of the Cluster disables that"
        if stored.follows_file and stored.ref.namespace == self._system_namespace:
            return "its Secret follows a file; renew it there"
        return reason_not_renewable(stored.credential)

    def _progress_of(self, key: Key, cluster: Object, stored: _Stored) -> _Progress:
        progress = self._progress.get(key)
        if progress is not None and (progress.digest == stored.digest or stored.revision < progress.written):
            return progress
        replaced = progress.replaced if progress is not None else ""
        problem = OVERWRITTEN if replaced == stored.digest else None
        now = self._registry.clock.now()
        # The rights are checked now, if there is not much time left.
        due = _recorded_renewal(cluster, stored.credential, now) or renewal_time(stored.credential, now)
        first = now if is_soon(stored.credential, now) else due
        found = self._progress[key] = _Progress(stored.digest, max(first, now), due, problem, replaced=replaced)
        return found

    async def _attempt(self, key: Key, cluster: Object, stored: _Stored, progress: _Progress) -> bool:
        """Renews the credential if half of its life is over; before that, the rights are checked. Returns whether a new
        one is stored."""
        credential = stored.credential
        now = self._registry.clock.now()
        progress.next_attempt = now + _retry_delay(credential, now)
        if progress.replaced == stored.digest:  # another one would be overwritten, too
            return False
        try:
            client = KubeClient(self._upstreams.system_upstream(name_of(cluster)), REQUEST_SECONDS)
            if progress.due > now:
                progress.next_attempt = min(progress.next_attempt, progress.due)
                await check_rights(client, credential)
                progress.problem, progress.failures = None, 0
                return False
            return await self._renew(key, cluster, stored, client)
        except RenewalError as error:
            problem = error
        except InvalidKubeconfig as error:
            message = f"the cluster's new credential cannot be used: {error}; the old one stays in use"
            problem = RenewalError(FAILED, message)
        except NotConnected as error:
            problem = RenewalError(FAILED, error.message)
        except ApiError as error:
            problem = RenewalError(FAILED, f"the new credential cannot be stored: {error.message}")
        progress.problem = problem
        progress.failures = progress.failures + 1 if problem.reason == FAILED else 0
        if progress.failures == 1:  # it may pass: it is not reported before it has failed again
            progress.next_attempt = now + timedelta(seconds=MIN_RETRY_SECONDS)
        return False

    async def _renew(self, key: Key, cluster: Object, stored: _Stored, client: KubeClient) -> bool:
        """Raises RenewalError, InvalidKubeconfig, NotConnected and ApiError."""
        fields = await request_credential(client, stored.credential, stored.endpoint.client_certificate)
        kubeconfig = with_user_fields(stored.kubeconfig, fields)
        renewed = read_credential(parse_kubeconfig(kubeconfig))
        until = find_postponed_renewal(stored.credential, renewed, self._registry.clock.now())
        progress = self._progress[key]
        if until is not None:
            progress.next_attempt = progress.due = until
            progress.problem, progress.failures = None, 0
            return False
        trial = self._upstreams.open_trial_upstream(stored.ref, kubeconfig)
        try:
            await try_credential(KubeClient(trial, REQUEST_SECONDS), stored.credential)
        finally:
            await trial.close()
        revision = await self._store(stored, kubeconfig)
        if not revision:  # another writer has stored another one meanwhile
            return False
        now = self._registry.clock.now()
        due = next_renewal_time(renewed, now)
        self._progress[key] = _Progress(
            digest=kubeconfig_digest(kubeconfig),
            next_attempt=due,
            due=due,
            problem=find_clock_problem(renewed, now),
            replaced=stored.digest,
            written=revision,
        )
        message = f"the stored {renewed.type} was renewed; it expires at {_format(renewed.expires)}"
        await record_event(self._registry, cluster, "CredentialRenewed", message)
        return True

    async def _store(self, stored: _Stored, kubeconfig: bytes) -> int:
        """Returns the revision of the write; 0 if the Secret no longer had the kubeconfig that was renewed."""
        is_same = False

        def edit(secret: Object) -> Object:
            nonlocal is_same
            data = secret.get("data") or {}
            is_same = b64decode(data.get(stored.ref.key) or "") == stored.kubeconfig
            if not is_same:
                return secret
            return {**secret, "data": {**data, stored.ref.key: b64encode(kubeconfig).decode()}}

        body = await self._secrets.modify(stored.ref.namespace, stored.ref.name, edit, server_write_options())
        return int(get_path(decode_json(body), "metadata.resourceVersion")) if is_same else 0

    async def _write_status(self, cluster: Object, facts: Object, expiry: Expiry | None) -> None:
        """Writes the facts and the condition if they have changed, and an Event about a new reason."""
        now = timestamp(self._registry.clock.now())
        before = find_condition(cluster.get("status"), CREDENTIAL_EXPIRES) or {}

        def edit(current: Object) -> Object:
            if metadata(current)["uid"] != metadata(cluster)["uid"]:
                return current
            status = current.get("status") or {}
            others = {name: value for name, value in status.items() if name != FACTS_FIELD}
            after = {**others, FACTS_FIELD: facts} if facts else others
            if expiry is None:
                after = without_conditions(after, CREDENTIAL_EXPIRES)
            else:
                found = condition(CREDENTIAL_EXPIRES, TRUE, expiry.reason, expiry.message)
                after = with_condition(after, found, now, metadata(current).get("generation"))
            return {**current, "status": after} if after != status else current

        if edit(cluster) is cluster:
            return
        with suppress(NotFound):  # it was deleted meanwhile
            await self._clusters.modify("", name_of(cluster), edit, server_write_options("status"))
            if expiry is not None and expiry.reason != before.get("reason"):
                await record_event(self._registry, cluster, expiry.reason, expiry.message, type="Warning")


def is_soon(credential: Credential, now: datetime) -> bool:
    return credential.expires is not None and credential.expires - now <= WARNING_TIME


def _find_expiry(
    cluster: Object, credential: Credential, problem: RenewalError | None, reason_against: str, now: datetime
) -> Expiry | None:
    """What a person has to do something about, if anything."""
    if credential.expires is None:
        return None
    end = f"the {credential.type} in the kubeconfig expires at {_format(credential.expires)}"
    advice = (
        f"store a new one in the Secret, or let an agent dial out: `fairlead cluster add {name_of(cluster)} --agent`"
    )
    if credential.expires <= now:
        cause = problem.message if problem is not None else reason_against
        return Expiry(
            EXPIRED,
            f"the {credential.type} in the kubeconfig has expired at {_format(credential.expires)}"
            f"{f' ({cause})' if cause else ''}; {advice}",
        )
    if problem is not None:
        verb = "" if problem.reason in (OVERWRITTEN.reason, CLOCKS_DIFFER) else "cannot be renewed: "
        return Expiry(problem.reason, f"{end}; {verb}{problem.message}")
    is_late = is_soon(credential, now)
    if get_path(cluster, "spec.local") and credential.lifetime is not None:
        is_late = credential.expires - now < credential.lifetime / LOCAL_SHARE
    if reason_against and is_late:
        return Expiry(EXPIRES_SOON, f"{end}, and the server does not renew it: {reason_against}; {advice}")
    return None


def _recorded_renewal(cluster: Object, credential: Credential, now: datetime) -> datetime | None:
    """When this credential is to be renewed, as an earlier process has written it into the status."""
    facts = get_path(cluster, f"status.{FACTS_FIELD}") or {}
    due = parse_rfc3339(facts.get("renewalTimestamp"))
    if due is None or credential.expires is None or facts.get("expirationTimestamp") != timestamp(credential.expires):
        return None
    return min(due, now + credential.lifetime / 2) if credential.lifetime is not None else None


def _describe(credential: Credential, expiry: Expiry | None, progress: _Progress | None) -> Object:
    """`status.credentialExpiry`."""
    if credential.expires is None:
        return {"type": credential.type, "state": UNLIMITED}
    state = VALID if expiry is None else EXPIRED if expiry.reason == EXPIRED else EXPIRING
    facts = {"type": credential.type, "state": state, "expirationTimestamp": timestamp(credential.expires)}
    return {**facts, "renewalTimestamp": timestamp(progress.due)} if progress is not None else facts


def _retry_delay(credential: Credential, now: datetime) -> timedelta:
    left = (credential.expires - now).total_seconds() if credential.expires is not None else 0.0
    if left <= 0:  # it does not work any more, unless the clock is wrong
        return timedelta(seconds=CHECK_SECONDS)
    return timedelta(seconds=min(CHECK_SECONDS, max(MIN_RETRY_SECONDS, left / 10)))


def _seconds_until_next(credential: Credential, progress: _Progress | None, now: datetime) -> float | None:
    """Until the next attempt, or until something else is to be reported."""
    if credential.expires is None:
        return None
    moments = [credential.expires - WARNING_TIME, credential.expires]
    if credential.lifetime is not None:
        moments.append(credential.expires - credential.lifetime / LOCAL_SHARE)
    if progress is not None:
        moments.append(progress.next_attempt)
    left = [(each - now).total_seconds() for each in moments if each > now]
    return min([*left, MAX_WAIT_SECONDS]) + 1 if left else None


def _format(moment: datetime | None) -> str:
    return timestamp(moment) if moment is not None else "no known time"
