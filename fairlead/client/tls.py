"""TLS trust of the client: the system's CA certificates, a configured CA, or (on demand) no verification.

If the server's CA is unknown, `fairlead login` shows the server certificate from `fetch_certificate` for confirmation.
The user then trusts that certificate itself, because servers do not send their CA certificate. It expires after a
year, the CA after ten, so `--ca-file` is the better option.
"""

import hashlib
import socket
import ssl
from urllib.parse import urlsplit

from fairlead.client.errors import connection_error

CONNECT_TIMEOUT = 10.0


def build_ssl_context(authority: str = "", insecure: bool = False) -> ssl.SSLContext:
    """Trusts the given PEM certificates, else the system's. Raises ValueError if there is no PEM certificate."""
    if insecure:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return context
    try:
        context = ssl.create_default_context(cadata=authority or None)
    except (ssl.SSLError, ValueError) as error:
        raise ValueError("contains no PEM certificate") from error
    if authority:
        # Also trust a server certificate that is not a CA certificate.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    # Python 3.13 and newer set it, and refuse certificates without key identifiers, which kubectl accepts.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def fetch_certificate(url: str) -> str:
    """Fetches the server certificate as PEM, without verification."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    try:
        with (
            socket.create_connection((host, parts.port or 443), CONNECT_TIMEOUT) as plain,
            build_ssl_context(insecure=True).wrap_socket(plain, server_hostname=host) as connection,
        ):
            return ssl.DER_cert_to_PEM_cert(connection.getpeercert(binary_form=True) or b"")
    except OSError as error:
        raise connection_error(url, error, has_custom_ca=False) from error


def fingerprint(certificate: str) -> str:
    """SHA-256 in the form that `openssl x509 -fingerprint -sha256` prints."""
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(certificate)).digest().hex(":").upper()
