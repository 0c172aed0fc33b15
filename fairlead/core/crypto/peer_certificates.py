"""Certificates by which processes of one installation recognise each other: a CA, and a certificate for each process.

The names in them are no host names. A process is named `<identity>.fairlead.internal`, wherever it listens, so a
connection to an address that another process has taken over meanwhile fails.
"""

import ssl
import tempfile
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fairlead.core.crypto.certificates import certificate_builder

_SUFFIX = ".fairlead.internal"


class InvalidPeerAuthority(ValueError):
    """The certificate or the key of the CA cannot be used."""


@dataclass(frozen=True, slots=True)
class PeerAuthority:
    """The certificate of the CA and its private key, as PEM."""

    certificate: str
    key: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class PeerContexts:
    """TLS for both ends of a connection. Each presents its certificate, and requires one of the same CA."""

    server: ssl.SSLContext
    client: ssl.SSLContext


def peer_name(identity: str) -> str:
    """The name in the certificate of a process."""
    return identity + _SUFFIX


def create_peer_authority(now: datetime, lifetime: timedelta) -> PeerAuthority:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Fairlead replicas")])
    certificate = (
        certificate_builder(name, name, key, now, lifetime)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    return PeerAuthority(_encode_certificate(certificate), _encode_key(key))


def build_peer_contexts(
    authority: PeerAuthority, identity: str, now: datetime, lifetime: timedelta, folder: Path
) -> PeerContexts:
    """Contexts with a new certificate for this process. Its key is in `folder` for the moment of loading it, because
    Python loads keys from files only. Raises InvalidPeerAuthority."""
    chain = _issue_leaf(authority, identity, now, lifetime)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".replica-", suffix=".pem") as file:  # mode 0600
        file.write(chain.encode())
        file.flush()
        for context in (server, client):
            context.load_cert_chain(file.name)
            context.load_verify_locations(cadata=authority.certificate)
            context.verify_mode = ssl.CERT_REQUIRED
            context.minimum_version = ssl.TLSVersion.TLSv1_3
    server.num_tickets = 0  # connections are not resumed
    return PeerContexts(server, client)


def _issue_leaf(authority: PeerAuthority, identity: str, now: datetime, lifetime: timedelta) -> str:
    try:
        issuer = x509.load_pem_x509_certificate(authority.certificate.encode())
        issuer_key = serialization.load_pem_private_key(authority.key.encode(), None)
    except (ValueError, TypeError) as error:
        raise InvalidPeerAuthority(str(error)) from None
    if not isinstance(issuer_key, ec.EllipticCurvePrivateKey) or issuer.public_key() != issuer_key.public_key():
        raise InvalidPeerAuthority("the key does not belong to the certificate")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Fairlead")])
    purposes = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    certificate = (
        certificate_builder(name, issuer.subject, key, now, lifetime)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(peer_name(identity))]), critical=False)
        .sign(issuer_key, hashes.SHA256())
    )
    return _encode_key(key) + _encode_certificate(certificate)


def _encode_certificate(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _encode_key(key: ec.EllipticCurvePrivateKey) -> str:
    formats = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return key.private_bytes(*formats, serialization.NoEncryption()).decode()
