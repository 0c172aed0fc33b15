"""The ConfigMap in which a kube-apiserver publishes how its aggregation layer authenticates: CA, names and headers.

Kubernetes calls it `kube-system/extension-apiserver-authentication`. Its lists are JSON in strings. An empty list of
names means any certificate of the CA to Kubernetes. Here names are required: the CA may also issue other certificates.

`client-ca-file` is not used. It is for users who connect with a certificate of the cluster, past its kube-apiserver.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization

from fairlead.authn.request_headers import RequestHeaderConfig

NAMESPACE, NAME = "kube-system", "extension-apiserver-authentication"
CA_KEY = "requestheader-client-ca-file"
MAX_LIST, MAX_NAME_LENGTH, MAX_CA_BYTES = 64, 1_024, 512 * 1024
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}")


class InvalidHostConfig(Exception):
    """The ConfigMap cannot be used. The message says why, and what to change."""


@dataclass(frozen=True, slots=True)
class HostRequestHeaders:
    """The CAs of front proxies as PEM, and how these name users."""

    authorities: bytes = field(repr=False)
    config: RequestHeaderConfig


def parse_host_config(
    data: Mapping[str, Any], allowed_names: tuple[str, ...] = (), links_users: bool = False
) -> HostRequestHeaders:
    """`data` is that of the ConfigMap. `allowed_names`, if any, apply instead of its own. Raises InvalidHostConfig."""
    authorities = _read_authorities(data)
    names = allowed_names or _read_list(data, "requestheader-allowed-names")
    if not names:
        raise InvalidHostConfig(
            "requestheader-allowed-names is empty, which allows every certificate of the CA; set "
            "--requestheader-allowed-names of the kube-apiserver, or the setting requestheader_allowed_names"
        )
    users = _read_headers(data, "requestheader-username-headers")
    if not users:
        raise InvalidHostConfig(
            "requestheader-username-headers is missing or empty; start the kube-apiserver with "
            "--requestheader-username-headers=X-Remote-User"
        )
    config = RequestHeaderConfig(
        allowed_names=frozenset(names),
        username_headers=users,
        group_headers=_read_headers(data, "requestheader-group-headers"),
        extra_prefixes=_read_headers(data, "requestheader-extra-headers-prefix"),
        uid_headers=_read_headers(data, "requestheader-uid-headers"),
        links_users=links_users,
    )
    return HostRequestHeaders(authorities, config)


def _read_authorities(data: Mapping[str, Any]) -> bytes:
    text = data.get(CA_KEY)
    if not isinstance(text, str) or not text:
        raise InvalidHostConfig(
            f"it has no {CA_KEY}; start the kube-apiserver with --requestheader-client-ca-file and "
            "--proxy-client-cert-file, which its aggregation layer needs"
        )
    content = text.encode()
    try:
        found = x509.load_pem_x509_certificates(content) if len(content) <= MAX_CA_BYTES else []
    except ValueError:
        found = []
    if not found:
        raise InvalidHostConfig(f"{CA_KEY} contains no certificate, or more than {MAX_CA_BYTES} bytes")
    try:
        for each in found:
            each.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        advice = "use RSA, ECDSA or Ed25519"
        raise InvalidHostConfig(f"the key of a CA in {CA_KEY} is not of a type that is supported; {advice}") from None
    return content


def _read_headers(data: Mapping[str, Any], key: str) -> tuple[str, ...]:
    names = _read_list(data, key)
    for name in names:
        if not _HEADER.fullmatch(name):
            raise InvalidHostConfig(f"{key} has a value that is not the name of a header")
    return tuple(name.lower() for name in names)


def _read_list(data: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """A list of strings; empty if there is none."""
    text = data.get(key) or "[]"
    try:
        values = json.loads(text) if isinstance(text, str) and len(text) <= MAX_CA_BYTES else None
    except (ValueError, RecursionError):
        values = None
    if values is None and text == "null":
        return ()
    if not isinstance(values, list) or len(values) > MAX_LIST or not all(map(_is_name, values)):
        raise InvalidHostConfig(f"{key} is not a JSON list of at most {MAX_LIST} strings")
    return tuple(values)


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= MAX_NAME_LENGTH
