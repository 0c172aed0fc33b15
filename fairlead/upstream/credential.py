"""Until when the credential of a kubeconfig is valid, as its token or its client certificate says.

The controllers that renew and report it call this. Nothing is verified here: what the cluster makes of the credential
is seen when it is used. A credential without a known end is one without `expires`.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import jwt
from cryptography import x509

from fairlead.core.objects import get_path
from fairlead.upstream.access import ClusterEndpoint

TOKEN, CERTIFICATE = "token", "certificate"
_ACCOUNT = re.compile(r"system:serviceaccount:([a-z0-9-]{1,63}):([a-z0-9.-]{1,253})")


@dataclass(frozen=True, slots=True)
class ServiceAccount:
    """A service account of the cluster."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class BoundObject:
    """The object of the cluster that a token ends with, in the namespace of its account."""

    kind: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


@dataclass(frozen=True, slots=True)
class Credential:
    """`type` is TOKEN or CERTIFICATE. `account`: whose token it is, if it is one of a service account. `user`: the
    name in the cluster, if the credential says it."""

    type: str
    issued: datetime | None = None
    expires: datetime | None = None
    account: ServiceAccount | None = None
    bound: BoundObject | None = None
    user: str = ""
    groups: tuple[str, ...] = ()
    """Those that a certificate says."""

    @property
    def lifetime(self) -> timedelta | None:
        return self.expires - self.issued if self.issued is not None and self.expires is not None else None


def read_credential(endpoint: ClusterEndpoint) -> Credential:
    """Of a token and a certificate, the one that expires first: a cluster rejects a request with an expired one."""
    token = _read_token(endpoint.token) if endpoint.token else None
    certificate = _read_certificate(endpoint.client_certificate) if endpoint.client_certificate else None
    if token is None or certificate is None:
        return token or certificate or Credential(TOKEN)
    return min((token, certificate), key=lambda each: each.expires or datetime.max.replace(tzinfo=UTC))


def _read_token(token: str) -> Credential:
    """A token that is no JWT says nothing about itself."""
    try:
        claims = jwt.decode(token, options={"verify_signature": False})
    except jwt.PyJWTError:
        return Credential(TOKEN)
    subject = str(claims.get("sub") or "")
    match = _ACCOUNT.fullmatch(subject)
    return Credential(
        type=TOKEN,
        issued=_read_time(claims.get("iat")),
        expires=_read_time(claims.get("exp")),
        account=ServiceAccount(match[1], match[2]) if match else None,
        bound=_read_bound_object(claims.get("kubernetes.io")),
        user=subject if match else "",
    )


def _read_bound_object(claim: Any) -> BoundObject | None:
    """A token of a pod also names the node of the pod."""
    for kind in ("Pod", "Secret", "Node"):
        name, uid = (get_path(claim, f"{kind.lower()}.{field}") for field in ("name", "uid"))
        if isinstance(name, str) and isinstance(uid, str):
            return BoundObject(kind, name, uid)
    return None


def _read_time(value: Any) -> datetime | None:
    """A NumericDate of a JWT."""
    try:
        return _plausible(datetime.fromtimestamp(value, UTC))
    except (TypeError, ValueError, OverflowError, OSError):
        return None


def _plausible(moment: datetime) -> datetime | None:
    """None outside of these years: 9999 stands for no end, and times near either end of the calendar cannot be computed
    with."""
    return moment if 2000 <= moment.year <= 9000 else None


def _read_certificate(pem: str) -> Credential:
    certificate = x509.load_pem_x509_certificates(pem.encode())[0]
    names = certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    groups = certificate.subject.get_attributes_for_oid(x509.NameOID.ORGANIZATION_NAME)
    return Credential(
        type=CERTIFICATE,
        issued=_plausible(certificate.not_valid_before_utc),
        expires=_plausible(certificate.not_valid_after_utc),
        user=str(names[0].value) if names else "",
        groups=tuple(str(each.value) for each in groups),
    )
