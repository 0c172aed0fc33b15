"""Syntax of names, labels, annotations and finalizers: Kubernetes' rules and its error messages.

Each function yields the reasons why a string is invalid; nothing if it is valid. Metadata validation and selectors use
them.
"""

import re
from collections.abc import Iterator

MAX_LABEL_LENGTH = 63
MAX_SUBDOMAIN_LENGTH = 253

_NAME_PART = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_VALUE = f"({_NAME_PART})?"

_name_part = re.compile(_NAME_PART, re.ASCII)
_label = re.compile(_LABEL, re.ASCII)
_subdomain = re.compile(_SUBDOMAIN, re.ASCII)
_value = re.compile(_VALUE, re.ASCII)

_ALPHANUMERIC = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
)
_NAME_EXAMPLES = f"(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{_NAME_PART}')"
_VALUE_EXAMPLES = f"(e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '{_VALUE}')"


def dns_subdomain_errors(text: str) -> Iterator[str]:
    """A DNS subdomain: the names of most objects."""
    if len(text) > MAX_SUBDOMAIN_LENGTH:
        yield f"must be no more than {MAX_SUBDOMAIN_LENGTH} characters"
    if not _subdomain.fullmatch(text):
        yield (
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must "
            "start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
            f"'{_SUBDOMAIN}')"
        )


def dns_label_errors(text: str) -> Iterator[str]:
    """A DNS label: the names of namespaces, and of objects that become part of one."""
    if len(text) > MAX_LABEL_LENGTH:
        yield f"must be no more than {MAX_LABEL_LENGTH} characters"
    if not _label.fullmatch(text):
        yield (
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and "
            "end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
            f"'{_LABEL}')"
        )


def qualified_name_errors(text: str) -> Iterator[str]:
    """A name with an optional prefix and '/': the keys of labels and annotations, and finalizers."""
    prefix, slash, name = text.rpartition("/")
    if "/" in prefix:
        yield (
            f"a valid label key {_ALPHANUMERIC} {_NAME_EXAMPLES} with an optional DNS subdomain prefix and '/' "
            "(e.g. 'example.com/MyName')"
        )
        return
    if slash and not prefix:
        yield "prefix part must be non-empty"
    elif slash:
        for fault in dns_subdomain_errors(prefix):
            yield f"prefix part {fault}"
    if not name:
        yield "name part must be non-empty"
    elif len(name) > MAX_LABEL_LENGTH:
        yield f"name part must be no more than {MAX_LABEL_LENGTH} bytes"
    if not _name_part.fullmatch(name):
        yield f"name part {_ALPHANUMERIC} {_NAME_EXAMPLES}"


def label_value_errors(text: str) -> Iterator[str]:
    """The value of a label."""
    if len(text.encode()) > MAX_LABEL_LENGTH:
        yield f"must be no more than {MAX_LABEL_LENGTH} bytes"
    if not _value.fullmatch(text):
        yield (
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must "
            f"start and end with an alphanumeric character {_VALUE_EXAMPLES}"
        )


def path_segment_errors(text: str) -> Iterator[str]:
    """A URL path segment: the names of kinds that do not require DNS names."""
    if text in (".", ".."):
        yield f"may not be '{text}'"
    for mark in "/%":
        if mark in text:
            yield f"may not contain '{mark}'"
