"""Certificate authorities and certificates for tests, as files."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_LOCAL_NAMES = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(IPv4Address("127.0.0.1"))])

_CA_USAGE = x509.KeyUsage(
    digital_signature=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


@dataclass(frozen=True, slots=True)
class Authority:
    """A CA. `issue` writes NAME.crt and NAME.key into the folder."""

    folder: Path
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey
    has_key_identifiers: bool = True
    """Those of some tools have none. Clients in Python 3.13 and newer refuse them by default; others do not."""

    @property
    def file(self) -> Path:
        return self.folder / "ca.crt"

    def issue(
        self,
        name: str,
        common_name: str = "localhost",
        organizations: tuple[str, ...] = (),
        usage: x509.ObjectIdentifier | None = ExtendedKeyUsageOID.SERVER_AUTH,
        lifetime: timedelta = timedelta(days=1),
    ) -> tuple[Path, Path]:
        key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(_subject(common_name, organizations))
            .issuer_name(self.certificate.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + lifetime)
            .add_extension(_LOCAL_NAMES, critical=False)
        )
        if self.has_key_identifiers:
            builder = builder.add_extension(_identify_issuer(self.key), critical=False)
        if usage is not None:
            builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        cert_file, key_file = self.folder / f"{name}.crt", self.folder / f"{name}.key"
        key_file.write_bytes(_encode_key(key))
        cert_file.write_bytes(builder.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        return cert_file, key_file


def create_authority(
    folder: Path, name: str = "Test CA", issuer: Authority | None = None, has_key_identifiers: bool = True
) -> Authority:
    """A root CA, or an intermediate CA of `issuer`."""
    folder.mkdir(parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC)
    subject = _subject(name, ())
    issuer_key = key if issuer is None else issuer.key
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=2))
        .not_valid_after(now + timedelta(days=2))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    )
    if has_key_identifiers:
        builder = (
            builder.add_extension(_CA_USAGE, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(_identify_issuer(issuer_key), critical=False)
        )
    certificate = builder.sign(issuer_key, hashes.SHA256())
    authority = Authority(folder, certificate, key, has_key_identifiers)
    authority.file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return authority


def _identify_issuer(key: ec.EllipticCurvePrivateKey) -> x509.AuthorityKeyIdentifier:
    return x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key())


def _subject(common_name: str, organizations: tuple[str, ...]) -> x509.Name:
    names = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, each) for each in organizations]
    return x509.Name([*names, *([x509.NameAttribute(NameOID.COMMON_NAME, common_name)] if common_name else [])])


def _encode_key(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
