"""Cookies at the host name of a port: those of the server, and those of the program that listens there.

A page may set a cookie for the whole domain, which browsers then send to the other workspaces as well. So a cookie
that the program sets is stored a second time, as `__Host-fairlead-c.NAME`: browsers accept such a name only from this
exact host. Only these copies are passed on to the program, so it gets no cookie that another workspace has set. The
original is there for the scripts of the page. A cookie that a script has set is not passed on.
"""

import re
from collections.abc import Iterable, Iterator, Sequence

PREFIX = "__Host-fairlead"
SESSION_COOKIE = f"{PREFIX}_port"
NONCE_COOKIE = f"{PREFIX}_nonce"
COPY_PREFIX = f"{PREFIX}-c."
MAX_COOKIES = 200
MAX_SET_COOKIES = 100
MAX_COOKIE_BYTES = 4096
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}")
_VALUE = re.compile(r"[!-:<-~ ]*")
_COPIED_ATTRIBUTES = frozenset({"expires", "max-age", "samesite"})


def parse_cookies(headers: Sequence[str]) -> list[tuple[str, str]]:
    """Names and values. HTTP/2 may split cookies over several headers."""
    pairs = [pair.strip(" \t").partition("=") for header in headers for pair in header.split(";")]
    return [(name, value) for name, mark, value in pairs[:MAX_COOKIES] if mark]


def find_cookie(cookies: Iterable[tuple[str, str]], name: str) -> str:
    """The value of the cookie that was sent exactly once; otherwise empty."""
    values = [value for each, value in cookies if each == name]
    return values[0] if len(values) == 1 else ""


def forwarded_cookies(cookies: Iterable[tuple[str, str]]) -> str:
    """The Cookie header for the program; empty for none."""
    copies = ((name.removeprefix(COPY_PREFIX), value) for name, value in cookies if name.startswith(COPY_PREFIX))
    return "; ".join(f"{name}={value}" for name, value in copies)


def rewrite_set_cookies(headers: Iterable[str]) -> Iterator[str]:
    """The Set-Cookie headers for the browser, from those of the program. What is not a cookie is dropped."""
    for count, header in enumerate(headers):
        if count >= MAX_SET_COOKIES:
            return
        yield from _rewrite(header)


def _rewrite(header: str) -> Iterator[str]:
    first, *attributes = (part.strip(" \t") for part in header.split(";"))
    name, mark, value = first.partition("=")
    if not mark or not _NAME.fullmatch(name) or not _VALUE.fullmatch(value) or len(header) > MAX_COOKIE_BYTES:
        return
    if name.lower().startswith(PREFIX.lower()):
        return
    names = {attribute.partition("=")[0].strip().lower() for attribute in attributes}
    copied = [each for each in attributes if each.partition("=")[0].strip().lower() in _COPIED_ATTRIBUTES]
    copied = [each for each in copied if _VALUE.fullmatch(each)]
    yield "; ".join((f"{COPY_PREFIX}{name}={value}", "Path=/", *copied, "HttpOnly", "Secure"))
    if "httponly" not in names:
        path = next(
            (each for each in attributes if each.lower().startswith("path=") and _VALUE.fullmatch(each)), "Path=/"
        )
        yield "; ".join((f"{name}={value}", path, *copied, "Secure"))


def set_cookie(name: str, value: str, seconds: int) -> str:
    """Lax, so that a link to the port works. Which pages may send requests is checked by other headers."""
    return f"{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; Secure; SameSite=Lax"
