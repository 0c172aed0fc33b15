"""Requests a new credential from a cluster, with the one that is to be replaced, and tries it. Used by
`credentials.py`.

The token of a service account is renewed by the TokenRequest API of the cluster, for the same account, which needs the
right to create tokens for itself. The new token lives as long as the old one, but at least a day, so that the cluster
is not lost by an outage of hours.

A client certificate is renewed by the CSR API: the server requests one for the same subject from the signer of client
certificates, with a new key, approves the request itself, and waits for the certificate. The key is in the memory of
this process until it is stored. Rights are checked first, so that no requests are left without approval.

A token that is bound to an object, such as a pod, is replaced by one that is bound to the same, and ends with it too.

The clock of the cluster may differ from that of this server. A credential that was just issued is renewed after half of
its life has passed here, whatever times it has: by those, it could be due at once, again and again, or too late.

Messages end up in conditions. They have no text from the cluster.
"""

import asyncio
from base64 import b64decode, b64encode
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from fairlead.controllers.clusters.rights import REVIEWS_PATH, Right
from fairlead.core.objects import Object, get_path
from fairlead.upstream.credential import CERTIFICATE, TOKEN, Credential, ServiceAccount
from fairlead.upstream.errors import UpstreamError
from fairlead.upstream.kube_client import KubeClient, RemoteApiError

ROLE_COMMAND = "fairlead cluster role renewal"
WHO_AM_I_PATH = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
CERTIFICATES_GROUP = "certificates.k8s.io"
CSR_PATH = f"/apis/{CERTIFICATES_GROUP}/v1/certificatesigningrequests"
SIGNER = "kubernetes.io/kube-apiserver-client"
UNSIGNED_GROUP = "system:masters"
"""The signer signs no certificates for this group."""
POLL_SECONDS, MAX_POLLS = 1.0, 30
FORBIDDEN, FAILED, CLOCKS_DIFFER = "RenewalForbidden", "RenewalFailed", "ClocksDiffer"
MIN_LIFETIME = timedelta(days=1)
_WITHOUT_REVIEW = (403, 404, 405)
"""Responses of clusters that do not tell who a request is from."""

CredentialFields = dict[str, str]
"""Fields of the user in a kubeconfig."""


class RenewalError(Exception):
    """The cluster gives no credential that works. `reason` is that of the condition."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


def reason_not_renewable(credential: Credential) -> str:
    """Why it cannot be renewed, whatever rights it has; empty if it can."""
    if credential.lifetime is None or credential.lifetime <= timedelta():
        return "it does not say for how long it is valid"
    if credential.type == TOKEN and credential.account is None:
        return "it is not the token of a service account"
    if credential.type == CERTIFICATE and UNSIGNED_GROUP in credential.groups:
        return f"clusters sign no certificates for the group {UNSIGNED_GROUP}"
    return ""


def renewal_time(credential: Credential, now: datetime) -> datetime:
    """When a credential is to be renewed that was not issued just now: at half of its life by its own times, but not
    later than half a life from now. Only for those that can be renewed."""
    assert credential.issued is not None and credential.lifetime is not None
    return min(credential.issued, now) + credential.lifetime / 2


def next_renewal_time(credential: Credential, now: datetime) -> datetime:
    """When a credential is to be renewed that was issued just now, by the clock of this server."""
    assert credential.expires is not None and credential.lifetime is not None
    margin = credential.lifetime / 10
    return now + max(margin, min(credential.lifetime / 2, credential.expires - now - margin))


def find_clock_problem(credential: Credential, now: datetime) -> RenewalError | None:
    """Whether the times of a credential that was issued just now are far from those of this server."""
    assert credential.issued is not None and credential.lifetime is not None
    difference = credential.issued - now
    if abs(difference) <= credential.lifetime / 4:
        return None
    hours = abs(difference) / timedelta(hours=1)
    message = (
        f"it was renewed, but the clock of the cluster is {hours:.1f} hours "
        f"{'ahead of' if difference > timedelta() else 'behind'} that of this server; correct the one that is wrong"
    )
    return RenewalError(CLOCKS_DIFFER, message)


def find_postponed_renewal(old: Credential, new: Credential, now: datetime) -> datetime | None:
    """When to ask again, if the cluster gives only credentials now that end before the old one; None to switch to the
    new one. Raises RenewalError if the new one cannot be used."""
    if reason := reason_not_renewable(new):
        raise RenewalError(FAILED, f"the cluster's new credential cannot be used: {reason}; the old one stays in use")
    assert old.expires is not None and new.expires is not None and new.lifetime is not None
    if new.expires > old.expires:
        return None
    assert new.issued is not None
    until = now + (old.expires - new.issued) - new.lifetime / 2  # both times are of the clock of the cluster
    if until <= now:
        message = "the cluster's new credential does not last longer than the old one, which stays in use"
        raise RenewalError(FAILED, message)
    return until


async def check_rights(client: KubeClient, credential: Credential) -> None:
    """Raises RenewalError if the cluster says that a right is missing. What it does not say is seen when it is used."""
    for right in _needed_rights(credential):
        try:
            review = await client.create(REVIEWS_PATH, right.review())
        except (UpstreamError, RemoteApiError):
            return
        if get_path(review, "status.allowed") is False:
            raise _missing_right(credential)


async def request_credential(client: KubeClient, credential: Credential, certificate: str) -> CredentialFields:
    """`certificate` is the stored client certificate, if there is one. Raises RenewalError."""
    try:
        if credential.type == TOKEN:
            return await _request_token(client, credential)
        await check_rights(client, credential)
        return await _request_certificate(client, credential, certificate)
    except RemoteApiError as error:
        raise _refusal(error, credential) from error
    except UpstreamError as error:
        raise RenewalError(FAILED, f"the cluster cannot be asked for a new credential: {error.message}") from error


async def try_credential(client: KubeClient, credential: Credential) -> None:
    """`client` uses the new credential. Raises RenewalError unless the cluster takes it for the same user."""
    try:
        user = await _fetch_user(client)
    except RemoteApiError as error:
        message = f"the new credential does not work: the cluster answers it with HTTP status {error.status}"
        raise RenewalError(FAILED, f"{message}; the old one stays in use") from error
    except UpstreamError as error:
        message = f"the new credential could not be tried: {error.message}"
        raise RenewalError(FAILED, f"{message}; the old one stays in use") from error
    if user is not None and user != credential.user:
        raise RenewalError(FAILED, "the new credential is for another user of the cluster; the old one stays in use")


async def _fetch_user(client: KubeClient) -> str | None:
    """None if the cluster accepts the credential, but does not tell whose it is."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    try:
        review = await client.create(WHO_AM_I_PATH, body)
    except RemoteApiError as error:
        if error.status not in _WITHOUT_REVIEW:
            raise
        await client.get("/version")
        return None
    return str(get_path(review, "status.userInfo.username") or "")


def _needed_rights(credential: Credential) -> tuple[Right, ...]:
    account = credential.account
    if account is not None:
        return (Right("create", "serviceaccounts", "", "token", account.namespace, account.name),)
    return (
        Right("create", "certificatesigningrequests", CERTIFICATES_GROUP),
        Right("get", "certificatesigningrequests", CERTIFICATES_GROUP),
        Right("update", "certificatesigningrequests", CERTIFICATES_GROUP, "approval"),
        Right("approve", "signers", CERTIFICATES_GROUP, name=SIGNER),
    )


def _missing_right(credential: Credential) -> RenewalError:
    if credential.account is not None:
        message = (
            f"the service account {credential.account} may not create tokens for itself; grant `create` on "
            f"serviceaccounts/token: `{ROLE_COMMAND}` prints a suitable role"
        )
        return RenewalError(FORBIDDEN, message)
    message = (
        "the user of the client certificate may not request and approve certificates; grant `create` and `get` on "
        "certificatesigningrequests, `update` on certificatesigningrequests/approval, and `approve` on the signer "
        f"{SIGNER}, all in {CERTIFICATES_GROUP}; or store the token of a service account instead"
    )
    return RenewalError(FORBIDDEN, message)


def _refusal(error: RemoteApiError, credential: Credential) -> RenewalError:
    if error.status == 403:
        return _missing_right(credential)
    if credential.bound is not None and error.status in (401, 404, 409):
        message = (
            f"the cluster gives no other token for the {credential.bound}, which the stored one is bound to and ends "
            f"with (HTTP status {error.status}): it may be gone; store a token that is bound to no object"
        )
        return RenewalError(FAILED, message)
    if error.status == 401:
        return RenewalError(FAILED, "the cluster rejects the stored credential; store a valid one in the Secret")
    if error.status == 404 and credential.account is not None:
        return RenewalError(FAILED, f"the service account {credential.account} does not exist in the cluster any more")
    if error.status == 404:
        return RenewalError(FAILED, f"the cluster does not serve {CERTIFICATES_GROUP}; use the token of an account")
    return RenewalError(FAILED, f"the cluster answers the request for a new credential with HTTP status {error.status}")


async def _request_token(client: KubeClient, credential: Credential) -> CredentialFields:
    account = credential.account
    assert account is not None
    spec: Object = {"expirationSeconds": _wanted_seconds(credential)}
    if (bound := credential.bound) is not None:
        spec["boundObjectRef"] = {"kind": bound.kind, "apiVersion": "v1", "name": bound.name, "uid": bound.uid}
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    answer = await client.create(_token_path(account), body)
    token = get_path(answer, "status.token")
    if not isinstance(token, str) or not token:
        raise RenewalError(FAILED, "the cluster's answer to the request for a new token has no token")
    return {"token": token}


def _token_path(account: ServiceAccount) -> str:
    return f"/api/v1/namespaces/{quote(account.namespace)}/serviceaccounts/{quote(account.name)}/token"


def _wanted_seconds(credential: Credential) -> int:
    return int(max(credential.lifetime or MIN_LIFETIME, MIN_LIFETIME).total_seconds())


async def _request_certificate(client: KubeClient, credential: Credential, certificate: str) -> CredentialFields:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.load_pem_x509_certificate(certificate.encode()).subject
    request = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, SHA256())
    body = {
        "apiVersion": f"{CERTIFICATES_GROUP}/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"generateName": "fairlead-"},
        "spec": {
            "request": b64encode(request.public_bytes(Encoding.PEM)).decode(),
            "signerName": SIGNER,
            "usages": ["client auth"],
            "expirationSeconds": _wanted_seconds(credential),
        },
    }
    created = await client.create(CSR_PATH, body)
    path = f"{CSR_PATH}/{quote(str(get_path(created, 'metadata.name')), safe='')}"
    approved = {
        "type": "Approved",
        "status": "True",
        "reason": "RenewedByFairlead",
        "message": "renews the client certificate that has made this request",
    }
    await client.replace(f"{path}/approval", {**created, "status": {"conditions": [approved]}})
    signed = await _wait_signed(client, path)
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return {"client-certificate-data": signed, "client-key-data": b64encode(private).decode()}


async def _wait_signed(client: KubeClient, path: str) -> str:
    """The certificate, in base64."""
    for _ in range(MAX_POLLS):
        status = (await client.get(path)).get("status") or {}
        if any(each.get("type") in ("Denied", "Failed") for each in status.get("conditions") or ()):
            raise RenewalError(FAILED, "the cluster refuses to sign a new client certificate; see the request there")
        if certificate := status.get("certificate"):
            return _single_line(certificate)
        await asyncio.sleep(POLL_SECONDS)
    message = f"the cluster has not signed the new client certificate within {MAX_POLLS * POLL_SECONDS:.0f} seconds"
    raise RenewalError(FAILED, f"{message}; check its controller manager")


def _single_line(certificate: Any) -> str:
    try:
        return b64encode(b64decode(certificate, validate=True)).decode()
    except (ValueError, TypeError):
        raise RenewalError(FAILED, "the cluster's new client certificate is not valid base64") from None
