"""fairlead.client.tls: trusted certificates, and fingerprints to compare."""

import ssl
from contextlib import suppress
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes

from fairlead.client import Client, Unreachable
from fairlead.client.tls import build_ssl_context, fetch_certificate, fingerprint
from fairlead.core.crypto.certificates import Certificates
from tests.harness.certificates import create_authority
from tests.harness.fake_server import KEY, FakeServer


def test_the_presented_certificate_is_the_servers_own(fake: FakeServer, certificates: Certificates) -> None:
    certificate = fetch_certificate(fake.url)
    expected = x509.load_pem_x509_certificate(certificates.cert_file.read_bytes())
    assert x509.load_pem_x509_certificate(certificate.encode()) == expected
    assert fingerprint(certificate).replace(":", "").lower() == expected.fingerprint(hashes.SHA256()).hex()


def test_an_accepted_certificate_is_trusted_without_its_ca(fake: FakeServer) -> None:
    fake.on_self()
    with Client(fake.url, KEY, authority=fetch_certificate(fake.url)) as client:
        assert client.whoami()["user"]["name"] == "alice"


def test_host_names_are_always_verified(certificates: Certificates) -> None:
    context = build_ssl_context(Path(certificates.cert_file).read_text())
    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED


def shake_hands(client_context: ssl.SSLContext, server_context: ssl.SSLContext) -> None:
    """A handshake in memory. Raises SSLError if one side refuses the other."""
    to_client = ssl.MemoryBIO()
    to_server = ssl.MemoryBIO()
    client = client_context.wrap_bio(to_client, to_server, server_hostname="localhost")
    server = server_context.wrap_bio(to_server, to_client, server_side=True)
    for side in (client, server, client, server):
        with suppress(ssl.SSLWantReadError):
            side.do_handshake()
    assert client.version() == server.version() == "TLSv1.3"


@pytest.mark.parametrize("has_key_identifiers", [True, False])
def test_every_python_accepts_the_certificates_that_kubectl_accepts(tmp_path: Path, has_key_identifiers: bool) -> None:
    """Those without key identifiers are refused by the default context of Python 3.13 and newer."""
    authority = create_authority(tmp_path, has_key_identifiers=has_key_identifiers)
    server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_context.load_cert_chain(*authority.issue("server"))
    shake_hands(build_ssl_context(authority.file.read_text()), server_context)
    other = create_authority(tmp_path / "other")
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(build_ssl_context(other.file.read_text()), server_context)


def test_a_refused_connection_raises_unreachable() -> None:
    with pytest.raises(Unreachable, match="connection refused"):
        fetch_certificate("https://127.0.0.1:1")


def test_text_without_a_certificate_is_rejected_as_ca() -> None:
    with pytest.raises(ValueError, match="no PEM certificate"):
        build_ssl_context("hello")
