"""TLS to connected clusters: whom we trust, who we are, and what went wrong, in words. `dialing.py` calls this."""

import os
import ssl

from fairlead.upstream.access import Access
from fairlead.upstream.errors import Untrusted

_MENDED = "check certificate-authority-data and server in its kubeconfig"
_BAD_PEM = "certificates or key in the cluster's kubeconfig cannot be used; write it anew from the cluster"

_VERIFICATION = {
    10: "the certificate of the cluster has run out; renew it there",
    62: f"the certificate of the cluster is for another name; {_MENDED}, or set tls-server-name",
    64: f"the certificate of the cluster is for another address; {_MENDED}, or set tls-server-name",
}
"""By OpenSSL's numbers: X509_V_ERR_CERT_HAS_EXPIRED, _HOSTNAME_MISMATCH, _IP_ADDRESS_MISMATCH."""


def client_context(access: Access) -> ssl.SSLContext:
    """Takes milliseconds, so it is made once per cluster. Raises Untrusted where the kubeconfig holds no usable PEM."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # Kubeconfigs may trust an intermediate authority, or the server's certificate itself. Go accepts that.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.set_alpn_protocols(["http/1.1"])
    try:
        if access.authority:
            context.load_verify_locations(cadata=access.authority)
        else:
            context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        if access.certificate:
            _load_pair(context, access)
    except (ssl.SSLError, ValueError) as error:
        raise Untrusted(_BAD_PEM) from error
    return context


def _load_pair(context: ssl.SSLContext, access: Access) -> None:
    """OpenSSL reads the pair from a file only; this one is never on a disk."""
    descriptor = os.memfd_create("pair")
    with os.fdopen(descriptor, "wb") as file:
        file.write(f"{access.certificate}\n{access.key}\n".encode())
        file.flush()
        # A passphrase that nobody is asked for: a sealed key fails rather than reading from the terminal.
        context.load_cert_chain(f"/proc/self/fd/{descriptor}", password="")


def untrusted(error: ssl.SSLError) -> Untrusted:
    """What a failed handshake means for whoever connected the cluster."""
    if isinstance(error, ssl.SSLCertVerificationError):
        code = error.verify_code
        return Untrusted(_VERIFICATION.get(code, f"the certificate of the cluster is not trusted; {_MENDED}"))
    return refusal(error) or Untrusted(
        "no TLS with the cluster; see that the server in its kubeconfig is a Kubernetes API server"
    )


def refusal(error: Exception | None) -> Untrusted | None:
    """Whether the other side ended the connection with an alert. Since TLS 1.3 that may come after the handshake."""
    reason = getattr(error, "reason", None) or ""  # an error that OpenSSL has not made has none
    if isinstance(error, ssl.SSLError) and "ALERT" in reason:
        return Untrusted("the cluster refused the TLS connection; check the client certificate in its kubeconfig")
    return None
