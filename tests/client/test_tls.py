"""fairlead.client.tls: trusted certificates, and fingerprints to compare."""

import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes

from fairlead.client import Client, Unreachable
from fairlead.client.tls import build_ssl_context, fetch_certificate, fingerprint
from fairlead.core.crypto.certificates import Certificates
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


def test_a_refused_connection_raises_unreachable() -> None:
    with pytest.raises(Unreachable, match="connection refused"):
        fetch_certificate("https://127.0.0.1:1")


def test_text_without_a_certificate_is_rejected_as_ca() -> None:
    with pytest.raises(ValueError, match="no PEM certificate"):
        build_ssl_context("hello")
