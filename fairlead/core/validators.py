"""Validators for addresses, URLs and names, prefix matching, and sizes in bytes as people write them: `4Gi`, `500M`.

Each `check_*` function returns what is wrong with a value, or None. `settings` attaches them to its fields.
"""

import ipaddress
import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from urllib.parse import urlsplit

LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
DNS_NAME = re.compile(rf"{LABEL}(\.{LABEL})*")

_INVISIBLE = re.compile("[\x00-\x20\x7f-\xa0\u200b-\u200f\u2028-\u202f\u2060\ufeff]")
"""Characters that browsers and readers ignore in a URL: `javascript:` with a tab in it still works."""
_IMAGE_DATA_URL = re.compile(r"data:image/(?![a-z0-9.+-]*(?:svg|xml))[a-z0-9][a-z0-9.+-]*[;,]")


def check_ip_address(value: str) -> str | None:
    try:
        ipaddress.ip_address(value)
    except ValueError:
        return "must be an IP address, such as 127.0.0.1, or 0.0.0.0 for all addresses of this machine"
    return None


def check_network(value: str) -> str | None:
    try:
        ipaddress.ip_network(value)
    except ValueError:
        return "must be a network, such as 10.0.0.0/8 or fd00::/8"
    return None


def check_host_and_port(value: str) -> str | None:
    host, separator, port = value.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    is_host = check_host_name(bare) is None and "*" not in host and host == format_host(bare)
    if not separator or not is_host or not port.isdecimal() or not 0 < int(port) < 65536:
        return "must be a lowercase host name or an address with a port, such as proxy.example.com:3128"
    return None


def check_chart_repository(value: str) -> str | None:
    """The URL of a chart repository. Credentials belong into their own fields."""
    try:
        parts = urlsplit(value)
        good = parts.scheme in ("https", "oci") and bool(parts.hostname) and "@" not in parts.netloc and parts.port != 0
    except ValueError:
        good = False
    return None if good else "must be the https:// or oci:// address of a repository, without a user in it"


def check_no_credentials(value: str) -> str | None:
    """Any URL or reference without user info. Template parameters are left alone."""
    if "@" not in value:
        return None
    plain = _INVISIBLE.sub("", value)
    # Some clients treat a backslash as a slash, so check both readings.
    if any("@" in _authority(each) for each in (plain, plain.replace("\\", "/"))):
        return "must not contain a user or password: use the fields for credentials, which have restricted access"
    return None


def is_registry_address(field: str, value: object) -> bool:
    """Whether a chart name is a full registry address."""
    return field == "name" and isinstance(value, str) and ("/" in value or "\\" in value)


def _authority(address: str) -> str:
    """The authority of a URL, whatever the number of slashes before it."""
    return re.split(r"[/?#]", re.sub(r"^([A-Za-z][A-Za-z0-9+.-]*:)?/*", "", address), maxsplit=1)[0]


def check_icon(value: str) -> str | None:
    """An icon that a browser may load: an https URL, an image data URL, or a text without a scheme.

    SVG data URLs are rejected, because SVG can contain scripts.
    """
    plain = _INVISIBLE.sub("", value).lower()
    scheme = re.match(r"([a-z][a-z0-9+.-]*):", plain)
    if scheme is None or scheme[1] == "https":
        return check_no_credentials(value)
    if _IMAGE_DATA_URL.match(plain):
        return None
    return "must be an https:// address or a data:image/ URL of a picture (SVG only as an https:// address)"


_KEY_NAME = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_METADATA_KEY = re.compile(rf"{_KEY_NAME}|{LABEL}(\.{LABEL})*/({_KEY_NAME})?", re.ASCII)
_ROLE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.:_-]{0,252}", re.ASCII)


def check_metadata_key(value: str) -> str | None:
    """A label or annotation key, or a key prefix such as `example.com/`."""
    good = _METADATA_KEY.fullmatch(value) and not value.startswith("service.sh/")
    return None if good else "must be the key of a label such as team or example.com/team, or a domain with / behind it"


def check_role_name(value: str) -> str | None:
    return None if _ROLE_NAME.fullmatch(value) else "must be the name of a ClusterRole, such as edit"


def check_host_name(value: str) -> str | None:
    """A DNS name, possibly with a wildcard, or an IP address, for use in a certificate."""
    if DNS_NAME.fullmatch(value.removeprefix("*.")) or check_ip_address(value) is None:
        return None
    return "must be a DNS name in lower case or an IP address"


def check_base_url(value: str) -> str | None:
    """An https URL with a host, an optional port and no path."""
    try:
        parts = urlsplit(value)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        host, port = "", None
    plain = f"https://{format_host(host)}" + ("" if port is None else f":{port}")
    if value == plain and port != 0 and check_host_name(host) is None and "*" not in host:
        return None
    return "must look like https://fairlead.example.com or https://192.0.2.7:8443, without a path"


def format_host(host: str) -> str:
    """A host for use in a URL: IPv6 addresses are put in brackets."""
    return f"[{host}]" if ":" in host else host


def check_object_name(value: str) -> str | None:
    """The name of an object, or nothing."""
    if not value or (DNS_NAME.fullmatch(value) and len(value) <= 63):
        return None
    return "must be a name in lower case, such as local, with at most 63 characters"


def check_api_group(value: str) -> str | None:
    if DNS_NAME.fullmatch(value) and "." in value and len(value) <= 253:
        return None
    return "must be a DNS name of at least two parts in lower case, such as management.example.com"


def check_namespace_prefix(value: str) -> str | None:
    """Namespace names have at most 63 characters, and the project's name needs some of them."""
    if re.fullmatch(r"[a-z0-9][a-z0-9-]{0,31}", value):
        return None
    return "must be at most 32 lower case letters, digits and dashes, and not begin with a dash"


def minimal_prefixes(prefixes: Iterable[str]) -> list[str]:
    """The sorted prefixes, without those that are covered by a shorter one."""
    found: list[str] = []
    for each in sorted(prefixes):
        if not found or not each.startswith(found[-1]):
            found.append(each)
    return found


def starts_with_any(text: str, prefixes: Sequence[str]) -> bool:
    """Whether a text starts with one of the `minimal_prefixes`. No prefix covers another, so the last one that sorts
    before the text is the only candidate."""
    index = bisect_right(prefixes, text) - 1
    return index >= 0 and text.startswith(prefixes[index])


_UNITS = {
    **{"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12},
    **{"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40},
}
_SIZE = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,18})?)(Ki|Mi|Gi|Ti|k|M|G|T)?")


def parse_size(text: str) -> int | None:
    """The number of bytes; None if the text is not a size."""
    match = _SIZE.fullmatch(text)
    return int(float(match[1]) * _UNITS[match[2] or ""]) if match else None


def format_size(size: int) -> str:
    """With the largest unit that divides it: `32Gi`, `1536Mi`."""
    for unit in ("Ti", "Gi", "Mi", "Ki"):
        if size and size % _UNITS[unit] == 0:
            return f"{size // _UNITS[unit]}{unit}"
    return str(size)
