"""A certificate that clients recognise by its fingerprint, so no CA has to vouch for it: that of a runner that listens.

It is created once. A new one has another fingerprint, which the clients must be told.
"""

import hashlib
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from fairlead.core.files import FileProblem, ensure_private_folder, read_file, write_file

LIFETIME = timedelta(days=36525)
"""It is replaced by hand: the fingerprint is what counts."""
FINGERPRINT_PATTERN = r"[0-9a-f]{64}"


@dataclass(frozen=True, slots=True)
class PinnedCertificate:
    context: ssl.SSLContext
    fingerprint: str


def fingerprint_of(certificate: bytes) -> str:
    """SHA-256 of a certificate (DER), in lower-case hexadecimal digits."""
    return hashlib.sha256(certificate).hexdigest()


def load_pinned_certificate(folder: Path) -> PinnedCertificate:
    """The certificate in this folder, created if there is none. Raises FileProblem."""
    path = ensure_private_folder(folder) / "link.pem"
    if not path.exists():
        write_file(path, _create())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0
    try:
        context.load_cert_chain(path)
        certificate = x509.load_pem_x509_certificate(read_file(path) or b"")
    except (OSError, ValueError) as error:
        advice = "restore it, or remove it to create a new one, and set its fingerprint in the Runner"
        raise FileProblem(f"{path}: not a certificate with its key ({error}); {advice}") from None
    return PinnedCertificate(context, fingerprint_of(certificate.public_bytes(serialization.Encoding.DER)))


def build_pinning_context() -> ssl.SSLContext:
    """For clients. It accepts any certificate: the caller compares the fingerprint before it sends anything."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _create() -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Fairlead runner")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + LIFETIME)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return private + certificate.public_bytes(pem)
