"""ConfigMap and Secret of the core group, with validation of keys, total size and immutability.

Clusters refer to Secrets that contain kubeconfigs.
"""

import json
import re
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Iterable, Iterator, Mapping

from fairlead.core.objects import Object, annotations_of
from fairlead.kinds.core.server_objects import is_server_owned
from fairlead.registry import limits
from fairlead.registry.kind import Change, Column, Kind, Problem, Sensitivity
from fairlead.registry.schema import Schema, boolean, mapping, string

MAX_DATA_BYTES = limits.DATA_BYTES
"""Maximum total size of all decoded values, in bytes."""

# Kubernetes accepts null as an empty value.
TEXT: Schema = {**string(max_length=limits.DATA), "nullable": True}
BYTES: Schema = {**string(format="byte", max_length=limits.DATA), "nullable": True}

IMMUTABLE = boolean(
    "If true, the data cannot be updated; only object metadata can be modified. It cannot be reset to false without "
    "deleting the object. Defaults to false."
)

_KEY_REGEX = "[-._a-zA-Z0-9]+"
_KEY_PATTERN = re.compile(_KEY_REGEX, re.ASCII)
_MAX_KEY_LENGTH = 253


def key_errors(key: str) -> Iterator[str]:
    """Validation errors of a data key, as in kube-apiserver. A key must be a safe file name without path traversal."""
    if len(key) > _MAX_KEY_LENGTH:
        yield f"must be no more than {_MAX_KEY_LENGTH} bytes"
    if not _KEY_PATTERN.fullmatch(key):
        yield (
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or "
            f"'KEY_NAME',  or 'key-name', regex used for validation is '{_KEY_REGEX}')"
        )
    elif key in (".", ".."):
        yield f"must not be '{key}'"
    elif key.startswith(".."):
        yield "must not start with '..'"


def key_problems(field: str, data: Mapping[str, str]) -> Iterable[Problem]:
    return (Problem.invalid(f"{field}[{key}]", key, fault) for key in data for fault in key_errors(key))


def immutable_problems(change: Change, *fields: str) -> Iterable[Problem]:
    """Reports changes to the data of an object with `immutable: true`."""
    old, new = change.old, change.new
    if old is None or new is None or not old.get("immutable"):
        return
    reason = "field is immutable when `immutable` is set"
    if not new.get("immutable"):
        yield Problem.forbidden("immutable", reason)
    for field in fields:
        if old.get(field) != new.get(field):
            yield Problem.forbidden(field, reason)


def decoded_size(text: str) -> int:
    """Decoded length of a base64 text, in bytes."""
    return len(text) * 3 // 4 - text[-2:].count("=")


def data_map(obj: Object, field: str) -> dict[str, str]:
    """The map in `field`, with null values replaced by empty strings."""
    return {key: "" if value is None else value for key, value in (obj.get(field) or {}).items()}


def binary_map(obj: Object, field: str) -> dict[str, str]:
    """The map of base64 values in `field`, with null values replaced by empty strings."""
    return {key: _normalize_base64(text) for key, text in data_map(obj, field).items()}


def _normalize_base64(text: str) -> str:
    """The only encoding of the same bytes without line breaks, and with zeros for the bits that padding leaves over."""
    if "\n" in text or "\r" in text:
        text = text.replace("\n", "").replace("\r", "")
    return text[:-4] + b64encode(b64decode(text[-4:])).decode() if text.endswith("=") else text


def set_data_map(change: Change, field: str, data: dict[str, str], *, is_binary: bool) -> None:
    """Sets the map in `field`, or removes the field if the map is empty. As in Kubernetes, an empty map of bytes
    changes an immutable object without data, so it is kept, and then rejected."""
    is_immutable = is_binary and change.old is not None and change.old.get("immutable")
    if data or (is_immutable and change.obj.get(field) is not None):
        change.obj[field] = data
    else:
        change.obj.pop(field, None)


def default_config_map(change: Change) -> None:
    set_data_map(change, "data", data_map(change.obj, "data"), is_binary=False)
    set_data_map(change, "binaryData", binary_map(change.obj, "binaryData"), is_binary=True)


def check_config_map(change: Change) -> Iterable[Problem]:
    data = change.obj.get("data") or {}
    binary = change.obj.get("binaryData") or {}
    yield from key_problems("data", data)
    yield from key_problems("binaryData", binary)
    for key in sorted(data.keys() & binary.keys()):
        yield Problem.invalid(f"data[{key}]", key, "duplicate of key present in binaryData")
    if sum(len(text.encode()) for text in data.values()) + sum(map(decoded_size, binary.values())) > MAX_DATA_BYTES:
        yield Problem.too_long("data", MAX_DATA_BYTES)
    yield from immutable_problems(change, "data", "binaryData")


def _config_map_entries(obj: Object) -> int:
    return len(obj.get("data") or ()) + len(obj.get("binaryData") or ())


CONFIGMAP = Kind(
    name="ConfigMap",
    plural="configmaps",
    namespaced=True,
    group="",
    fields={
        "data": mapping(
            TEXT,
            "Configuration data as text by key. Keys consist of letters, digits, `-`, `_` and `.`.",
            max_properties=limits.DATA_KEYS,
        ),
        "binaryData": mapping(
            BYTES,
            "Base64-encoded binary data by key. Keys must not overlap with those in `data`.",
            max_properties=limits.DATA_KEYS,
        ),
        "immutable": IMMUTABLE,
    },
    description="Configuration data by key. Use a Secret for credentials.",
    short_names=("cm",),
    columns=(Column("Data", _config_map_entries, description="Number of keys."),),
    tracks_generation=False,
    builtin=True,
    allows_unconditional_update=True,
    default=default_config_map,
    check=check_config_map,
    sensitivity=Sensitivity.NORMAL,
)


OPAQUE = "Opaque"

_REQUIRED_KEYS = {
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
}
_JSON_TYPES = {"kubernetes.io/dockercfg", "kubernetes.io/dockerconfigjson"}
_ACCOUNT_TOKEN, _ACCOUNT_NAME = "kubernetes.io/service-account-token", "kubernetes.io/service-account.name"


def default_secret(change: Change) -> None:
    """Merges the write-only `stringData` into `data`, and defaults the type."""
    new = change.obj
    encoded = {key: b64encode(text.encode()).decode() for key, text in data_map(new, "stringData").items()}
    new.pop("stringData", None)
    set_data_map(change, "data", {**binary_map(new, "data"), **encoded}, is_binary=True)
    new["type"] = new.get("type") or OPAQUE


def check_secret(change: Change) -> Iterable[Problem]:
    data = change.obj.get("data") or {}
    yield from key_problems("data", data)
    if sum(map(decoded_size, data.values())) > MAX_DATA_BYTES:
        yield Problem.too_long("data", MAX_DATA_BYTES)
    yield from _type_problems(change.obj, data)
    yield from immutable_problems(change, "data")


def _type_problems(obj: Object, data: Mapping[str, str]) -> Iterable[Problem]:
    """Reports missing or malformed keys of Secrets with a well-known type."""
    kind = obj.get("type")
    for key in _REQUIRED_KEYS.get(kind or "", ()):
        if key not in data:
            yield Problem.required(f"data[{key}]")
        elif kind in _JSON_TYPES and not _is_json_object(data[key]):
            yield Problem.invalid(f"data[{key}]", "<secret contents redacted>", "must be a JSON object")
    if kind == "kubernetes.io/basic-auth" and not {"username", "password"} & data.keys():
        yield Problem.required("data[username]")
        yield Problem.required("data[password]")
    if kind == "kubernetes.io/ssh-auth" and not data.get("ssh-privatekey"):
        yield Problem.required("data[ssh-privatekey]")
    if kind == _ACCOUNT_TOKEN and not annotations_of(obj).get(_ACCOUNT_NAME):
        yield Problem.required(f"metadata.annotations[{_ACCOUNT_NAME}]")


def _is_json_object(text: str) -> bool:
    try:
        return isinstance(json.loads(b64decode(text)), dict)
    except (NotBase64, ValueError, RecursionError):
        return False


def _secret_entries(obj: Object) -> int:
    return len(obj.get("data") or ())


SECRET = Kind(
    name="Secret",
    plural="secrets",
    namespaced=True,
    group="",
    fields={
        "data": mapping(
            BYTES,
            "Base64-encoded secret data by key. Keys consist of letters, digits, `-`, `_` and `.`.",
            max_properties=limits.DATA_KEYS,
        ),
        "stringData": mapping(
            TEXT,
            "Secret data by key as text. Write-only: merged into `data`, whose values it overrides.",
            max_properties=limits.DATA_KEYS,
        ),
        "type": string("Type of the secret. Well-known types require certain keys. Immutable.", default=OPAQUE),
        "immutable": IMMUTABLE,
    },
    description="Secret data by key. The values are redacted in logs.",
    columns=(
        Column("Type", "type", description="Type of the secret."),
        Column("Data", _secret_entries, description="Number of keys."),
    ),
    selectable=("type",),
    immutable=("type",),
    sensitive=("data", "stringData"),
    is_server_owned=is_server_owned,
    tracks_generation=False,
    builtin=True,
    allows_unconditional_update=True,
    default=default_secret,
    check=check_secret,
    sensitivity=Sensitivity.SECRET,
)
