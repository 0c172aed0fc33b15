"""Texts that came with a request, as far as a log may show them.

Paths, queries and names are the caller's to choose, and people do paste a key where a name should be. So what looks
like a key is never shown, and of a query only the parameters that are known to hold none.
"""

import re
from collections.abc import Mapping, Sequence
from urllib.parse import quote

from fairlead.registry.kind import Kind

MARK = "REDACTED"
"""Stands for what was taken out. No brackets, as it must fit into a URI."""

LONGEST_URI, LONGEST_TEXT = 4_096, 1_024
_CUT = "..."

PARAMETERS = frozenset(
    {
        *("allowWatchBookmarks", "continue", "dryRun", "explain", "fieldManager", "fieldSelector", "fieldValidation"),
        *("force", "gracePeriodSeconds", "hash", "includeObject", "labelSelector", "limit", "orphanDependents"),
        *("pretty", "propagationPolicy", "resourceVersion", "resourceVersionMatch", "sendInitialEvents", "timeout"),
        *("timeoutSeconds", "verbose", "watch"),
    }
)
"""Query parameters whose values are shown. The others may be anything, so only their names are."""

_METADATA_FIELDS = ("metadata.name", "metadata.namespace")
_LONG_WORDS = re.compile(r"[A-Za-z0-9_-]{32,}")
_PLAIN = re.compile(r"[A-Za-z0-9/._~:@!$'()*+,;=-]*")
_TERM = re.compile(r"([^=!]+)(?:==|!=|=)[^=!]*")


def shown(text: str, longest: int = LONGEST_TEXT) -> str:
    """The text without what looks like a key or a token, and not longer than anybody would read.

    Random texts mix cases; names of objects, hashes and uids do not. So nearly every text is done with at a glance.
    """
    if len(text) >= 32 and text != text.lower():
        text = _LONG_WORDS.sub(_judged, text)
    return text if len(text) <= longest else text[:longest] + _CUT


def _judged(match: re.Match[str]) -> str:
    word = match[0]
    return MARK if word != word.lower() and word != word.upper() else word


def request_uri(path: str, query: Mapping[str, list[str]], kinds: Sequence[Kind]) -> str:
    """The URI that was asked for, rebuilt from what was understood of it."""
    path = shown(path if _PLAIN.fullmatch(path) else quote(path, safe="/:@!$'()*+,;=~"), LONGEST_URI)
    if not query:
        return path
    pairs = [_parameter(name, value, kinds) for name, values in query.items() for value in values]
    return f"{path}?{'&'.join(pairs)}"[:LONGEST_URI]


def _parameter(name: str, value: str, kinds: Sequence[Kind]) -> str:
    if name not in PARAMETERS:
        return f"{shown(quote(name, safe=''))}={MARK if value else ''}"
    if name == "fieldSelector" and not _may_be_shown(value, kinds):
        return f"{name}={MARK}"
    return f"{name}={shown(value if value.isalnum() and value.isascii() else quote(value, safe='/:,'), LONGEST_URI)}"


def _may_be_shown(selector: str, kinds: Sequence[Kind]) -> bool:
    """Whether a field selector only names fields that are no secret. What cannot be selected by can still be asked."""
    fields = {*_fields(selector)}
    return bool(kinds) and all(not kind.secret or fields <= {*_METADATA_FIELDS, *kind.selectable} for kind in kinds)


def _fields(selector: str) -> Sequence[str]:
    """Term by term, each looked at from its beginning: strangers choose the text, and looking for terms anywhere in it
    would take time that grows with the square of its length."""
    terms = [_TERM.fullmatch(term) for term in selector.split(",")]
    fields = [term[1] for term in terms if term is not None]
    return fields if len(fields) == len(terms) else [selector]


def address(client: str) -> str:
    """The IP address of `address:port`."""
    return client.rpartition(":")[0].strip("[]")
