"""TLS contexts for ports with client certificates, and the certificate of a connection."""

import hashlib
import ssl
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Protocol

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import NameOID

from fairlead.core.call import TlsPeer
from fairlead.core.crypto.certificates import CertificateFiles, copy_to_memory
from fairlead.core.files import FileProblem, read_file
from fairlead.server.http.certificate_watch import sign_files

MAX_CERTIFICATE_BYTES = 64 * 1024
MAX_NAMES, MAX_NAME_LENGTH = 64, 1024
"""Organizations that a certificate may have, and their maximum length. Certificates beyond that are rejected."""


@dataclass(frozen=True, slots=True)
class TrustFiles:
    """The server certificate, and the CAs that client certificates must be issued by, as PEM."""

    server: CertificateFiles
    authorities: bytes = field(repr=False)

    @property
    def authority_certificates(self) -> frozenset[x509.Certificate]:
        return frozenset(x509.load_pem_x509_certificates(self.authorities))


class AuthoritySource(Protocol):
    """Where the CAs of a port come from. `str` names it in messages."""

    @property
    def is_known(self) -> bool:
        """Whether `read` can be called."""

    def read(self) -> bytes:
        """The CAs as PEM. Raises FileProblem."""

    def sign(self) -> tuple[object, ...]:
        """A value that changes when the CAs may have changed."""

    async def wait(self) -> None:
        """Waits until they are known."""


@dataclass(frozen=True, slots=True)
class AuthorityFile:
    """CAs in a PEM file."""

    path: Path
    is_known: ClassVar[bool] = True

    def __str__(self) -> str:
        return str(self.path)

    def read(self) -> bytes:
        return read_authorities(self.path)

    def sign(self) -> tuple[object, ...]:
        return sign_files((self.path,))

    async def wait(self) -> None:
        return None


def read_authorities(ca_file: Path) -> bytes:
    """The CA certificates in a PEM file. Raises FileProblem if there is none."""
    content = read_file(ca_file)
    if content is None:
        raise FileProblem(f"{ca_file}: no such file")
    try:
        found = x509.load_pem_x509_certificates(content)
    except ValueError:
        found = []
    if not found:
        raise FileProblem(f"{ca_file}: contains no certificate; use a PEM file with the certificates of CAs")
    try:
        _public_keys(content)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        advice = "use RSA, ECDSA or Ed25519"
        raise FileProblem(f"{ca_file}: the key of a CA is not of a type that this server supports; {advice}") from None
    return content


def share_authority(one: bytes, other: bytes) -> bool:
    """Whether two PEM files have a CA, or the key of one, in common."""
    return not _public_keys(one).isdisjoint(_public_keys(other))


def _public_keys(authorities: bytes) -> set[bytes]:
    encoding, form = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    found = x509.load_pem_x509_certificates(authorities)
    return {each.public_key().public_bytes(encoding, form) for each in found}


def build_tls_context(files: TrustFiles, is_required: bool) -> ssl.SSLContext:
    """A context that verifies client certificates. With `is_required`, connections without one are refused.

    As in Kubernetes, a certificate with extended key usages must be for clients. Sessions are not resumed, so that
    every connection presents its certificate. Raises FileProblem.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.set_alpn_protocols(["http/1.1"])
    context.num_tickets = 0
    authorities = x509.load_pem_x509_certificates(files.authorities)
    try:
        with copy_to_memory(files.server) as copies:  # OpenSSL only takes paths
            context.load_cert_chain(*copies.paths)
        # Not as PEM, which may have comments that are not ASCII.
        context.load_verify_locations(
            cadata=b"".join(each.public_bytes(serialization.Encoding.DER) for each in authorities)
        )
    except ssl.SSLError as error:
        raise FileProblem(f"{files.server.cert_file}: the certificate or the CAs are not usable ({error})") from None
    context.verify_mode = ssl.CERT_REQUIRED if is_required else ssl.CERT_OPTIONAL
    return context


def read_peer(certificate: bytes, purpose: str) -> TlsPeer | None:
    """The verified certificate (DER) of a client. None if it cannot be used: it has no name, several, or too long ones.

    With several common names, two programs might choose different ones.
    """
    if len(certificate) > MAX_CERTIFICATE_BYTES:
        return None
    try:
        parsed = x509.load_der_x509_certificate(certificate)
        names = _values(parsed.subject, NameOID.COMMON_NAME)
        organizations = _values(parsed.subject, NameOID.ORGANIZATION_NAME)
    except (ValueError, TypeError):
        return None
    texts = (*names, *organizations)
    if len(names) != 1 or len(organizations) > MAX_NAMES or not all(map(_is_usable, texts)):
        return None
    expires = parsed.not_valid_after_utc.timestamp()
    digest = hashlib.sha256(certificate).hexdigest()
    return TlsPeer(purpose, names[0], tuple(organizations), expires, digest)


def _values(subject: x509.Name, kind: x509.ObjectIdentifier) -> list[str]:
    return [str(each.value) for each in subject.get_attributes_for_oid(kind)]


def _is_usable(name: str) -> bool:
    return 0 < len(name) <= MAX_NAME_LENGTH and name.isprintable() and name == name.strip()


def is_issued(certificate: x509.Certificate, authorities: Iterable[x509.Certificate]) -> bool:
    """Whether one of the CAs has issued the certificate itself, without an intermediate CA."""
    return any(_is_issued_by(certificate, each) for each in authorities)


def _is_issued_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return True
