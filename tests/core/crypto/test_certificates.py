"""Tests of `core/crypto/certificates.py`: generated certificates, checked with TLS handshakes and openssl."""

import socket
import ssl
import stat
import subprocess
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from fairlead.core.crypto.certificates import Certificates, ensure_certificates, load_certificates
from fairlead.core.files import FileProblem


def run_handshake(certificates: Certificates, name: str) -> str | None:
    """Runs a TLS handshake for this name and returns the TLS version. Raises the error of a strict client."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificates.cert_file, certificates.key_file)
    client = ssl.create_default_context(cafile=str(certificates.ca_file))
    client.verify_flags |= ssl.VerifyFlags.VERIFY_X509_STRICT
    ours, theirs = socket.socketpair()

    def accept_connection() -> None:
        try:
            server.wrap_socket(theirs, server_side=True).close()
        except OSError:
            theirs.close()

    answering = threading.Thread(target=accept_connection)
    answering.start()
    try:
        with client.wrap_socket(ours, server_hostname=name) as connection:
            return connection.version()
    finally:
        ours.close()
        answering.join()


def read_files(certificates: Certificates) -> tuple[bytes, ...]:
    folder = certificates.cert_file.parent
    return tuple((folder / name).read_bytes() for name in ("ca.crt", "ca.key", "server.crt", "server.key"))


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "::1", "fairlead.example.com", "192.0.2.7", "a.b.test"])
def test_a_client_that_trusts_the_authority_accepts_every_name(tmp_path: Path, name: str) -> None:
    certificates = ensure_certificates(tmp_path / "tls", ["fairlead.example.com", "192.0.2.7", "*.b.test"])
    assert run_handshake(certificates, name) == "TLSv1.3"


def test_a_client_rejects_a_name_that_is_not_in_the_certificate(tmp_path: Path) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match=r"other\.example\.com"):
        run_handshake(ensure_certificates(tmp_path / "tls"), "other.example.com")


def test_a_client_that_trusts_another_authority_rejects_the_certificate(tmp_path: Path) -> None:
    mine, other = ensure_certificates(tmp_path / "mine"), ensure_certificates(tmp_path / "other")
    with pytest.raises(ssl.SSLCertVerificationError):
        run_handshake(Certificates(other.ca_file, mine.cert_file, mine.key_file), "localhost")


def test_openssl_accepts_the_chain_for_a_server(tmp_path: Path, component: Callable[[str], Path]) -> None:
    certificates = ensure_certificates(tmp_path / "tls")
    command = [str(component("openssl")), "verify", "-x509_strict", "-purpose", "sslserver", "-CAfile"]
    files = [str(certificates.ca_file), str(certificates.cert_file)]
    result = subprocess.run([*command, *files], capture_output=True, text=True, check=False)
    assert result.stdout == f"{certificates.cert_file}: OK\n", result.stderr


def test_constraints_and_usage_are_critical_and_keys_are_identified(tmp_path: Path) -> None:
    ensure_certificates(tmp_path / "tls")
    authority, server = (
        x509.load_pem_x509_certificate((tmp_path / "tls" / name).read_bytes()).extensions
        for name in ("ca.crt", "server.crt")
    )
    for extensions, is_authority in ((authority, True), (server, False)):
        constraints = extensions.get_extension_for_class(x509.BasicConstraints)
        usage = extensions.get_extension_for_class(x509.KeyUsage)
        assert constraints.critical and usage.critical
        assert constraints.value.ca == usage.value.key_cert_sign == is_authority
        assert usage.value.digital_signature != is_authority
    signer = server.get_extension_for_class(x509.AuthorityKeyIdentifier).value
    assert signer.key_identifier == authority.get_extension_for_class(x509.SubjectKeyIdentifier).value.digest
    assert server.get_extension_for_class(x509.SubjectKeyIdentifier).value.digest != signer.key_identifier


def test_only_the_owner_can_read_the_keys(tmp_path: Path) -> None:
    certificates = ensure_certificates(tmp_path / "tls")
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "tls").iterdir()}
    assert modes == {"ca.crt": 0o644, "ca.key": 0o600, "server.crt": 0o644, "server.key": 0o600}
    assert stat.S_IMODE(certificates.key_file.parent.stat().st_mode) == 0o700


def test_valid_certificates_are_reused(tmp_path: Path) -> None:
    first = read_files(ensure_certificates(tmp_path / "tls", ["a.test"]))
    assert read_files(ensure_certificates(tmp_path / "tls", ["a.test"])) == first


def test_another_name_gets_a_new_certificate_of_the_same_authority(tmp_path: Path) -> None:
    first = read_files(ensure_certificates(tmp_path / "tls", ["a.test"]))
    certificates = ensure_certificates(tmp_path / "tls", ["b.test"])
    assert read_files(certificates)[:2] == first[:2]
    assert run_handshake(certificates, "b.test")
    with pytest.raises(ssl.SSLCertVerificationError):
        run_handshake(certificates, "a.test")


@pytest.mark.parametrize(("days", "renewed"), [(334, False), (336, True), (366, True)])
def test_the_certificate_is_renewed_in_its_last_thirty_days(tmp_path: Path, days: int, renewed: bool) -> None:
    start = datetime.now(UTC)
    first = read_files(ensure_certificates(tmp_path / "tls", now=start))
    later = read_files(ensure_certificates(tmp_path / "tls", now=start + timedelta(days=days)))
    assert later[:2] == first[:2]
    assert (later[2:] != first[2:]) == renewed


def test_an_expiring_authority_is_replaced(tmp_path: Path) -> None:
    ensure_certificates(tmp_path / "tls", now=datetime.now(UTC) - timedelta(days=3640))
    assert run_handshake(ensure_certificates(tmp_path / "tls"), "localhost")


def test_certificates_of_a_clock_that_was_ahead_are_issued_again_with_the_key_of_the_authority(tmp_path: Path) -> None:
    ahead = datetime.now(UTC) + timedelta(days=200)
    before = read_files(ensure_certificates(tmp_path / "tls", now=ahead))
    certificates = ensure_certificates(tmp_path / "tls")
    after = read_files(certificates)
    assert run_handshake(certificates, "localhost") == "TLSv1.3"
    assert [old == new for old, new in zip(before, after, strict=True)] == [False, True, False, False]
    ensure_certificates(tmp_path / "tls")
    assert read_files(certificates) == after


def test_a_server_certificate_of_a_clock_that_was_ahead_is_issued_again(tmp_path: Path) -> None:
    ensure_certificates(tmp_path / "tls")
    ensure_certificates(tmp_path / "tls", ["other.example.com"], now=datetime.now(UTC) + timedelta(days=200))
    certificates = ensure_certificates(tmp_path / "tls", ["other.example.com"])
    assert run_handshake(certificates, "other.example.com") == "TLSv1.3"


@pytest.mark.parametrize("name", ["server.crt", "server.key"])
@pytest.mark.parametrize("damage", [None, b"", b"garbage"])
def test_a_missing_or_damaged_server_file_is_created_again(tmp_path: Path, name: str, damage: bytes | None) -> None:
    ensure_certificates(tmp_path / "tls")
    (tmp_path / "tls" / name).unlink()
    if damage is not None:
        (tmp_path / "tls" / name).write_bytes(damage)
    assert run_handshake(ensure_certificates(tmp_path / "tls"), "localhost")


@pytest.mark.parametrize("name", ["server.crt", "server.key"])
def test_a_server_file_that_does_not_match_is_created_again(tmp_path: Path, name: str) -> None:
    ensure_certificates(tmp_path / "tls")
    ensure_certificates(tmp_path / "other")
    (tmp_path / "tls" / name).write_bytes((tmp_path / "other" / name).read_bytes())
    assert run_handshake(ensure_certificates(tmp_path / "tls"), "localhost")


def test_an_authority_without_its_key_is_never_replaced_silently(tmp_path: Path) -> None:
    ensure_certificates(tmp_path / "tls")
    (tmp_path / "tls" / "ca.key").unlink()
    with pytest.raises(FileProblem, match=r"ca\.key: missing, .*; restore it from a backup, or remove the folder"):
        ensure_certificates(tmp_path / "tls")


def test_a_start_interrupted_before_the_first_certificate_is_completed(tmp_path: Path) -> None:
    ensure_certificates(tmp_path / "tls")
    for name in ("ca.crt", "server.crt", "server.key"):
        (tmp_path / "tls" / name).unlink()
    assert run_handshake(ensure_certificates(tmp_path / "tls"), "localhost")


def test_provided_files_are_used_unchanged(tmp_path: Path) -> None:
    certificates = ensure_certificates(tmp_path / "tls")
    assert load_certificates(certificates.cert_file, certificates.key_file, certificates.ca_file) == certificates
    assert load_certificates(certificates.cert_file, certificates.key_file, None).ca_file is None


def test_unusable_provided_files_are_rejected_at_the_start(tmp_path: Path) -> None:
    one, other = ensure_certificates(tmp_path / "one"), ensure_certificates(tmp_path / "other")
    with pytest.raises(FileProblem, match="unusable certificate or key"):
        load_certificates(one.cert_file, other.key_file, None)
    with pytest.raises(FileProblem, match="No such file or directory"):
        load_certificates(one.cert_file, tmp_path / "none", None)
    with pytest.raises(FileProblem, match="contains no certificate"):
        load_certificates(one.cert_file, one.key_file, one.key_file)
