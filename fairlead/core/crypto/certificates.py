"""Creates a self-signed CA and a server certificate if the operator provides none.

`app` calls this before it listens. The CA is valid for ten years and is never replaced silently, because kubeconfigs
contain a copy of it. The server certificate is valid for one year. It is reissued when it is about to expire, lacks a
name or does not match the CA; clients do not notice. Certificates that are not valid yet, because the clock was
ahead when they were issued, are issued again: that of the CA with the same key, so that copies of the earlier one
become valid, too, at their time.

`CertificateFiles` is a certificate and its key, read from files together and checked before they are used.
"""

import ipaddress
import os
import socket
import ssl
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fairlead.core.files import FileProblem, ensure_private_folder, read_file, write_file
from fairlead.core.validators import DNS_NAME

CA_LIFETIME = timedelta(days=3652)
SERVER_CERT_LIFETIME = timedelta(days=365)
RENEW_BEFORE = timedelta(days=30)
CLOCK_SKEW = timedelta(hours=1)
"""Certificates are valid from a little earlier, for clients whose clock is behind."""

LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class Certificates:
    """`ca_file` is the CA that clients must trust; None if their system trusts it already."""

    ca_file: Path | None
    cert_file: Path
    key_file: Path


@dataclass(frozen=True, slots=True)
class CertificateAndKey:
    """A certificate and its private key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def load_certificates(cert_file: Path, key_file: Path, ca_file: Path | None) -> Certificates:
    """Check the files that the operator configured, at startup rather than at the first handshake."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert_file, key_file, password="")
    except ssl.SSLError as error:
        advice = "both must be PEM; the key must have no passphrase and match the first certificate"
        raise FileProblem(f"{cert_file}, {key_file}: unusable certificate or key ({error.reason}); {advice}") from error
    except OSError as error:
        raise FileProblem(f"{cert_file}, {key_file}: {error.strerror}; both must exist and be readable") from error
    if ca_file is not None and not _parse_certificate(read_file(ca_file)):
        raise FileProblem(f"{ca_file}: contains no certificate; use a PEM file with the certificate of the CA")
    return Certificates(ca_file, cert_file, key_file)


def ensure_certificates(folder: Path, names: Iterable[str] = (), now: datetime | None = None) -> Certificates:
    """The certificates in this folder, created or renewed if needed, for this machine's names and the given ones."""
    now = now or datetime.now(UTC)
    ensure_private_folder(folder)
    found = Certificates(folder / "ca.crt", folder / "server.crt", folder / "server.key")
    authority = _ensure_authority(folder / "ca.crt", folder / "ca.key", now)
    wanted = _alternative_names(names)
    server = _load(found.cert_file, found.key_file)
    if server is None or not _is_usable(server.certificate, authority, wanted, now):
        _save(_issue_server_certificate(authority, wanted, now), found.cert_file, found.key_file)
    return found


def _alternative_names(names: Iterable[str]) -> x509.SubjectAlternativeName:
    host = socket.gethostname().lower()
    own = (*LOCAL_NAMES, host) if DNS_NAME.fullmatch(host) else LOCAL_NAMES
    return x509.SubjectAlternativeName([_general_name(name) for name in dict.fromkeys((*own, *names))])


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name.lower())


def _ensure_authority(cert_file: Path, key_file: Path, now: datetime) -> CertificateAndKey:
    pair = _load(cert_file, key_file)
    if pair is None and cert_file.exists():
        # The key is written first, so an interrupted write cannot cause this.
        raise FileProblem(
            f"{key_file}: missing, damaged or not the key of {cert_file.name}; restore it from a backup, or remove the "
            f"folder {cert_file.parent} to create a new CA, which every client must then be configured to trust"
        )
    if pair is None or pair.certificate.not_valid_after_utc - now < RENEW_BEFORE:
        pair = _create_authority(now, ec.generate_private_key(ec.SECP256R1()))
        _save(pair, cert_file, key_file)
    elif pair.certificate.not_valid_before_utc > now:
        pair = _create_authority(now, pair.key)
        _save(pair, cert_file, key_file)
    return pair


def _is_usable(
    certificate: x509.Certificate, authority: CertificateAndKey, wanted: x509.SubjectAlternativeName, now: datetime
) -> bool:
    try:
        certificate.verify_directly_issued_by(authority.certificate)
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, InvalidSignature, x509.ExtensionNotFound):
        return False
    is_valid = certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc - RENEW_BEFORE
    return is_valid and set(names) == set(wanted)


def _create_authority(now: datetime, key: ec.EllipticCurvePrivateKey) -> CertificateAndKey:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Fairlead CA")])
    builder = (
        certificate_builder(name, name, key, now, CA_LIFETIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
    )
    return CertificateAndKey(builder.sign(key, hashes.SHA256()), key)


def _issue_server_certificate(
    authority: CertificateAndKey, names: x509.SubjectAlternativeName, now: datetime
) -> CertificateAndKey:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Fairlead")])
    life = min(SERVER_CERT_LIFETIME, authority.certificate.not_valid_after_utc - now)
    signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    builder = (
        certificate_builder(name, authority.certificate.subject, key, now, life)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(signer, critical=False)
        .add_extension(names, critical=False)
    )
    return CertificateAndKey(builder.sign(authority.key, hashes.SHA256()), key)


def certificate_builder(
    name: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime, lifetime: timedelta
) -> x509.CertificateBuilder:
    """What all of our certificates have: they are valid from now on, also for clocks that are behind."""
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + lifetime)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _key_usage(signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _load(cert_file: Path, key_file: Path) -> CertificateAndKey | None:
    """None if either file is missing or damaged, or if the two do not match."""
    certificate = _parse_certificate(read_file(cert_file))
    key = _parse_key(read_file(key_file))
    if certificate is None or key is None or certificate.public_key() != key.public_key():
        return None
    return CertificateAndKey(certificate, key)


def _parse_certificate(content: bytes | None) -> x509.Certificate | None:
    try:
        return x509.load_pem_x509_certificate(content) if content else None
    except ValueError:
        return None


def _parse_key(content: bytes | None) -> ec.EllipticCurvePrivateKey | None:
    try:
        key = serialization.load_pem_private_key(content, None) if content else None
    except (ValueError, TypeError):
        return None
    return key if isinstance(key, ec.EllipticCurvePrivateKey) else None


def _save(pair: CertificateAndKey, cert_file: Path, key_file: Path) -> None:
    """Write the key first, so that a certificate on disk always has one. `_load` detects a mismatch."""
    key = pair.key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    write_file(key_file, key)
    write_file(cert_file, pair.certificate.public_bytes(serialization.Encoding.PEM), mode=0o644)


MIN_RSA_BITS = 2048
_CURVES = ("secp256r1", "secp384r1")
_ADVICE = f"use RSA with at least {MIN_RSA_BITS} bits, ECDSA with P-256 or P-384, or Ed25519"


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """The content of two PEM files: a certificate with its intermediate certificates, and the key of the first one."""

    cert_file: Path
    key_file: Path
    cert: bytes = field(repr=False)
    key: bytes = field(repr=False)

    @property
    def certificate(self) -> x509.Certificate:
        return x509.load_pem_x509_certificates(self.cert)[0]


def read_certificate_files(cert_file: Path, key_file: Path) -> CertificateFiles:
    """Reads both files. Raises FileProblem if they do not belong together, or if the HTTP server cannot use them."""
    cert = read_file(cert_file)
    key = read_file(key_file)
    for path, content in ((cert_file, cert), (key_file, key)):
        if content is None:
            raise FileProblem(f"{path}: no such file")
    files = CertificateFiles(cert_file, key_file, cert or b"", key or b"")
    unsupported = FileProblem(f"{key_file}: the HTTP server does not support keys of this type; {_ADVICE}")
    try:
        certificate, private_key = files.certificate, serialization.load_pem_private_key(files.key, None)
        is_matching = certificate.public_key() == private_key.public_key()
    except UnsupportedAlgorithm:
        raise unsupported from None
    except (ValueError, TypeError, IndexError):
        raise FileProblem(f"{cert_file}, {key_file}: not PEM, or the key has a passphrase") from None
    if not is_matching:
        raise FileProblem(f"{cert_file}, {key_file}: the key does not match the first certificate")
    if not _is_supported(private_key):
        raise unsupported
    return files


@dataclass(frozen=True, slots=True)
class MemoryCopies:
    """Copies of both files in memory, for programs that only take paths. They are gone when they are closed.

    The files themselves may be replaced while they are read, and a private key should not be copied to a disk.
    """

    descriptors: tuple[int, int]

    @property
    def paths(self) -> tuple[str, str]:
        """The paths of the certificate and the key, for this process only."""
        cert, key = self.descriptors
        return f"/proc/self/fd/{cert}", f"/proc/self/fd/{key}"

    def close(self) -> None:
        for descriptor in self.descriptors:
            os.close(descriptor)

    def __enter__(self) -> "MemoryCopies":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def copy_to_memory(files: CertificateFiles) -> MemoryCopies:
    cert = _memory_file(files.cert)
    try:
        return MemoryCopies((cert, _memory_file(files.key)))
    except BaseException:
        os.close(cert)
        raise


def _memory_file(content: bytes) -> int:
    descriptor = os.memfd_create("fairlead-tls", os.MFD_CLOEXEC)
    with open(descriptor, "wb", closefd=False) as file:
        file.write(content)
    return descriptor


def _is_supported(key: object) -> bool:
    if isinstance(key, ec.EllipticCurvePrivateKey):
        return key.curve.name in _CURVES
    if isinstance(key, rsa.RSAPrivateKey):
        return key.key_size >= MIN_RSA_BITS
    return isinstance(key, ed25519.Ed25519PrivateKey)
