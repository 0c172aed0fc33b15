"""Texts that must be an address or a name before they are used as one.

Each function looks at one text and says what is wrong with it, or None. `settings/__init__.py` attaches them to its fields.
"""

import ipaddress
import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from urllib.parse import urlsplit

LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
DNS_NAME = re.compile(rf"{LABEL}(\.{LABEL})*")

_unseen = re.compile("[\x00-\x20\x7f-\xa0\u200b-\u200f\u2028-\u202f\u2060\ufeff]")
"""What browsers and people pass over in an address: a tab within `javascript:` takes nothing away from it."""
_picture = re.compile(r"data:image/(?![a-z0-9.+-]*(?:svg|xml))[a-z0-9][a-z0-9.+-]*[;,]")


def check_ip_address(value: str) -> str | None:
    try:
        ipaddress.ip_address(value)
    except ValueError:
        return "must be an IP address, such as 127.0.0.1, or 0.0.0.0 for all of the machine's"
    return None


def check_network(value: str) -> str | None:
    try:
        ipaddress.ip_network(value)
    except ValueError:
        return "must be a network, such as 10.0.0.0/8 or fd00::/8"
    return None


def check_repository(value: str) -> str | None:
    """Where charts may come from. Credentials have fields of their own."""
    try:
        parts = urlsplit(value)
        good = parts.scheme in ("https", "oci") and bool(parts.hostname) and "@" not in parts.netloc and parts.port != 0
    except ValueError:
        good = False
    return None if good else "must be the https:// or oci:// address of a repository, without a user in it"


def check_no_credentials(value: str) -> str | None:
    """An address of whatever sort, as long as nobody is named in it. Parameters of templates are left alone."""
    if "@" not in value:
        return None
    plain = _unseen.sub("", value)
    # Some take a backslash for a slash, and some do not: neither shall find anybody.
    if any("@" in _authority(each) for each in (plain, plain.replace("\\", "/"))):
        return "must have no user and no password in it: they have fields of their own, which not everybody can read"
    return None


def names_a_place(field: str, value: object) -> bool:
    """Whether a name says where something is, too: charts can be named by the whole address of a registry."""
    return field == "name" and isinstance(value, str) and ("/" in value or "\\" in value)


def _authority(address: str) -> str:
    """What stands between the scheme and the path, however many slashes there are before it."""
    return re.split(r"[/?#]", re.sub(r"^([A-Za-z][A-Za-z0-9+.-]*:)?/*", "", address), maxsplit=1)[0]


def check_icon(value: str) -> str | None:
    """A picture that a browser may load: an https address, the picture itself, or a text without any scheme.

    No SVG as a data URL: it can hold scripts, and nothing short of a browser tells whether it does.
    """
    plain = _unseen.sub("", value).lower()
    scheme = re.match(r"([a-z][a-z0-9+.-]*):", plain)
    if scheme is None or scheme[1] == "https":
        return check_no_credentials(value)
    if _picture.match(plain):
        return None
    return "must be an https:// address or a data:image/ URL of a picture (SVG only as an https:// address)"


_KEY_NAME = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_METADATA_KEY = re.compile(rf"{_KEY_NAME}|{LABEL}(\.{LABEL})*/({_KEY_NAME})?", re.ASCII)
_ROLE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.:_-]{0,252}", re.ASCII)


def check_metadata_key(value: str) -> str | None:
    """A key of labels and annotations, or a whole domain of them."""
    good = _METADATA_KEY.fullmatch(value) and not value.startswith("service.sh/")
    return None if good else "must be the key of a label such as team or example.com/team, or a domain with / behind it"


def check_role_name(value: str) -> str | None:
    return None if _ROLE_NAME.fullmatch(value) else "must be the name of a ClusterRole, such as edit"


def check_host_name(value: str) -> str | None:
    """What a certificate may be made out to."""
    if DNS_NAME.fullmatch(value.removeprefix("*.")) or check_ip_address(value) is None:
        return None
    return "must be a DNS name in lower case or an IP address"


def check_base_url(value: str) -> str | None:
    """A scheme, a host and perhaps a port; nothing else, as paths are ours to append."""
    try:
        parts = urlsplit(value)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        host, port = "", None
    plain = f"https://{bracketed(host)}" + ("" if port is None else f":{port}")
    if value == plain and port != 0 and check_host_name(host) is None and "*" not in host:
        return None
    return "must look like https://fairlead.example.com or https://192.0.2.7:8443, without a path"


def bracketed(host: str) -> str:
    """A host as URLs write it: the colons of an IPv6 address must not be taken for the one before the port."""
    return f"[{host}]" if ":" in host else host


def check_api_group(value: str) -> str | None:
    if DNS_NAME.fullmatch(value) and "." in value and len(value) <= 253:
        return None
    return "must be a DNS name of at least two parts in lower case, such as management.example.com"


def check_namespace_prefix(value: str) -> str | None:
    """Namespaces have at most 63 characters, and the project's name needs its share of them."""
    if re.fullmatch(r"[a-z0-9][a-z0-9-]{0,31}", value):
        return None
    return "must be at most 32 lower case letters, digits and dashes, and not begin with a dash"


# DOC-MERGED core/prefixes
# Whether a text begins with one of many beginnings, without trying each of them.


def outermost(beginnings: Iterable[str]) -> list[str]:
    """In order, without those that begin with another one of them."""
    found: list[str] = []
    for each in sorted(beginnings):
        if not found or not each.startswith(found[-1]):
            found.append(each)
    return found


def begins_with_one(text: str, beginnings: Sequence[str]) -> bool:
    """Whether a text begins with one of the `outermost` beginnings. As none of these begins with another one, the last
    that sorts before the text is the only candidate."""
    index = bisect_right(beginnings, text) - 1
    return index >= 0 and text.startswith(beginnings[index])
