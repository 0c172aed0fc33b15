"""Whom a client trusts: the machine's authorities, the one that it was given, or (on demand) anybody.

`client.py` makes its connections with `trusting`; `fairlead login` shows people `presented_certificate` when its
authority is unknown. What a person then accepts is the server's own certificate, because a server does not send its
authority's. A certificate of a year stands in for an authority of ten, so `--ca-file` is the better way.
"""

import hashlib
import socket
import ssl
from urllib.parse import urlsplit

from fairlead.client.errors import unreachable

PATIENCE = 10.0


def trusting(authority: str = "", insecure: bool = False) -> ssl.SSLContext:
    """A context that trusts the PEM certificates given, else the machine's. Raises ValueError for what is no PEM."""
    if insecure:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return context
    if not authority:
        return ssl.create_default_context()
    try:
        context = ssl.create_default_context(cadata=authority)
    except (ssl.SSLError, ValueError) as error:
        raise ValueError("holds no certificate in PEM") from error
    # What was given is trusted as it is, even if it is a server's certificate and no authority's.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def presented_certificate(url: str) -> str:
    """The certificate that the server shows, as PEM, believed by nobody yet."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    try:
        with (
            socket.create_connection((host, parts.port or 443), PATIENCE) as plain,
            trusting(insecure=True).wrap_socket(plain, server_hostname=host) as connection,
        ):
            return ssl.DER_cert_to_PEM_cert(connection.getpeercert(binary_form=True) or b"")
    except OSError as error:
        raise unreachable(url, error, own_authority=False) from error


def fingerprint(certificate: str) -> str:
    """SHA-256 in the form that `openssl x509 -fingerprint -sha256` prints."""
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(certificate)).digest().hex(":").upper()
