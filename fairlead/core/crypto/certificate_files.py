"""A certificate and its key, read from files together and checked before they are used."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from fairlead.core.files import FileProblem, read_file

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
