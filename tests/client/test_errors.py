"""fairlead.client.errors: messages for failed connections. The HTTP library wraps the original error."""

import socket
import ssl

import pytest

from fairlead.client.errors import CertificateError, Unreachable, connection_error

URL = "https://fairlead.test"


def wrap_error(inner: Exception) -> Exception:
    outer = RuntimeError("outer")
    outer.__cause__ = RuntimeError("middle")
    outer.__cause__.__cause__ = inner
    return outer


def build_certificate_error(code: int) -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError("certificate verify failed")
    error.verify_code = code
    error.verify_message = "some reason"
    return error


@pytest.mark.parametrize(
    ("inner", "text"),
    [
        (ConnectionRefusedError(), "connection refused; check the URL"),
        (socket.gaierror(-2, "Name or service not known"), "no such host; check the URL"),
        (TimeoutError(), "timed out"),
        (ConnectionResetError("reset by peer"), "connection failed"),
    ],
)
def test_a_failed_connection_is_explained(inner: Exception, text: str) -> None:
    error = connection_error(URL, wrap_error(inner), has_custom_ca=False)
    assert type(error) is Unreachable
    assert str(error).startswith(f"{URL}: {text}")


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (10, "has expired; check the clocks"),
        (9, "is not valid yet; check the clocks"),
        (62, "is for another host name; use a host name of the certificate"),
        (64, "is for another host name; use a host name of the certificate"),
        (23, "is invalid (some reason)"),
    ],
)
def test_an_invalid_certificate_is_explained(code: int, text: str) -> None:
    error = connection_error(URL, wrap_error(build_certificate_error(code)), has_custom_ca=True)
    assert isinstance(error, CertificateError)
    assert not error.unknown_authority
    assert f"the server's certificate {text}" in str(error)


@pytest.mark.parametrize("code", [18, 19, 20, 21])
def test_an_unknown_ca_is_reported_with_the_ca_file_flag(code: int) -> None:
    for has_custom_ca in (False, True):
        error = connection_error(URL, wrap_error(build_certificate_error(code)), has_custom_ca=has_custom_ca)
        assert isinstance(error, CertificateError)
        assert error.unknown_authority
        assert "--ca-file" in str(error)
