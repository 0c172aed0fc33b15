"""What a kubeconfig holds in the way of credentials and authorities, checked; `kubeconfig.py` calls this.

Each function returns what it found, empty where there is nothing, and what is wrong with it, never quoting it.
"""

import re
from base64 import b64decode
from typing import Any

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from fairlead.core.objects import Object

# What may stand in a header. A line break would let a token write headers of its own.
_TOKEN = re.compile(r"[!-~]+")


def token(user: Object) -> tuple[str, str | None]:
    value = user.get("token")
    if value in (None, ""):
        return "", None
    if not isinstance(value, str) or not _TOKEN.fullmatch(value.strip()):
        return "", "user: token must be one line of text without blanks; copy it again"
    return value.strip(), None


def authority(cluster: Object) -> tuple[str, str | None]:
    """The certificates that the cluster's is trusted by, or nothing for the machine's own."""
    text, problem = _pem(cluster, "cluster", "certificate-authority-data")
    if problem or not text:
        return "", problem
    if not _certificates(text):
        return "", "cluster: certificate-authority-data holds no certificate in PEM; export the CA again"
    return text, None


def certificate_and_key(user: Object) -> tuple[tuple[str, str], str | None]:
    certificate, problem = _pem(user, "user", "client-certificate-data")
    key, other_problem = _pem(user, "user", "client-key-data")
    if problem := problem or other_problem:
        return ("", ""), problem
    if not certificate and not key:
        return ("", ""), None
    if not certificate or not key:
        return ("", ""), "user: client-certificate-data and client-key-data belong together; give both, or use a token"
    if problem := _pair_problem(certificate, key):
        return ("", ""), f"user: {problem}"
    return (certificate, key), None


def _pair_problem(certificate: str, key: str) -> str | None:
    certificates = _certificates(certificate)
    if not certificates:
        return "client-certificate-data holds no certificate in PEM; export it again"
    try:
        private = load_pem_private_key(key.encode(), None).public_key()
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return "client-key-data holds no key in PEM without a passphrase; export it again"
    try:
        public = certificates[0].public_key()
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return "client-certificate-data is for a key of a sort that is not known here; make one with RSA or ECDSA"
    if public != private:
        return "client-key-data is not the key of client-certificate-data; export both again"
    return None


def _certificates(text: str) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(text.encode())
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return []


def _pem(holder: Object, part: str, field: str) -> tuple[str, str | None]:
    value: Any = holder.get(field)
    if value in (None, ""):
        return "", None
    try:
        # Line breaks are usual where people have pasted it.
        return b64decode("".join(value.split()), validate=True).decode("ascii"), None
    except (ValueError, AttributeError):
        return "", f"{part}: {field} is not base64 of a PEM file; export it again"
