"""Certificates of the fake cluster: one authority per process, which issues server and client certificates."""

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

DAY = timedelta(days=1)
PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


@dataclass(frozen=True, slots=True)
class PemPair:
    certificate: str
    key: str


@dataclass(frozen=True, slots=True)
class CertificateAuthority:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    def issue(
        self, *names: str, common_name: str = "fake cluster", days: int = 2, key: PrivateKey | None = None
    ) -> PemPair:
        """Issues a certificate for these names and addresses. With negative `days` it expired that long ago."""
        key = key or ec.generate_private_key(ec.SECP256R1())
        builder = _start_certificate(common_name, key, days).issuer_name(self.certificate.subject)
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName([_parse_name(each) for each in names]), False)
        signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        certificate = builder.add_extension(signer, False).sign(self.key, hashes.SHA256())
        private_key = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return PemPair(certificate.public_bytes(serialization.Encoding.PEM).decode(), private_key.decode())


@cache
def get_authority(common_name: str = "fake cluster CA") -> CertificateAuthority:
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _start_certificate(common_name, key, 2)
    usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
    certificate = (
        builder.issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)]))
        .add_extension(x509.BasicConstraints(True, None), True)
        .add_extension(usage, True)
        .sign(key, hashes.SHA256())
    )
    return CertificateAuthority(certificate, key)


def _start_certificate(common_name: str, key: PrivateKey, days: int) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - 10 * DAY)
        .not_valid_after(now + days * DAY)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
    )


def _parse_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
