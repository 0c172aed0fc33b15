"""ConfigMap of the core group: settings as text or bytes, for people and tools that expect a Kubernetes API."""

import json
import re
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Iterable, Iterator, Mapping

from fairlead.core.objects import Object, metadata
from fairlead.registry import limits
from fairlead.registry.kind import Change, Column, Kind, Problem
from fairlead.registry.schema import Schema, boolean, mapping, string

# DOC-MERGED kinds/keyed_data
# What ConfigMap and Secret have in common: maps of named pieces, a limit for all of them together, and freezing.


SIZE_LIMIT = limits.DATA_BYTES
"""Bytes of all values together, decoded."""

# Null stands for an empty piece, so that a client may leave a value open.
TEXT: Schema = {**string(longest=limits.DATA), "nullable": True}
BYTES: Schema = {**string(format="byte", longest=limits.DATA), "nullable": True}

IMMUTABLE = boolean(
    "Freeze the data: only metadata can change from then on, and there is no way back but to delete the object. "
    "Defaults to false."
)

_KEY = "[-._a-zA-Z0-9]+"
_key = re.compile(_KEY, re.ASCII)
_KEY_LENGTH = 253


def key_faults(key: str) -> Iterator[str]:
    """Why a key is none: it must be able to be a file's name, and no way out of the file's folder."""
    if len(key) > _KEY_LENGTH:
        yield f"must be no more than {_KEY_LENGTH} bytes"
    if not _key.fullmatch(key):
        yield (
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or "
            f"'KEY_NAME',  or 'key-name', regex used for validation is '{_KEY}')"
        )
    elif key in (".", ".."):
        yield f"must not be '{key}'"
    elif key.startswith(".."):
        yield "must not start with '..'"


def key_problems(field: str, data: Mapping[str, str]) -> Iterable[Problem]:
    return (Problem.invalid(f"{field}[{key}]", key, fault) for key in data for fault in key_faults(key))


def frozen_problems(change: Change, *fields: str) -> Iterable[Problem]:
    """Changes of what an immutable object froze."""
    old, new = change.old, change.new
    if old is None or new is None or not old.get("immutable"):
        return
    why = "field is immutable when `immutable` is set"
    if not new.get("immutable"):
        yield Problem.forbidden("immutable", why)
    for field in fields:
        if (old.get(field) or {}) != (new.get(field) or {}):
            yield Problem.forbidden(field, why)


def decoded_size(text: str) -> int:
    """How many bytes a base64 text stands for."""
    return len(text) * 3 // 4 - text[-2:].count("=")


def pieces(obj: Object, field: str) -> dict[str, str]:
    """The map in `field`, null standing for an empty piece."""
    return {key: "" if value is None else value for key, value in (obj.get(field) or {}).items()}


def put(obj: Object, field: str, data: dict[str, str]) -> None:
    """Sets the map in `field`. Without entries it is left out."""
    if data:
        obj[field] = data
    else:
        obj.pop(field, None)


def default_config_map(change: Change) -> None:
    for field in ("data", "binaryData"):
        put(change.obj, field, pieces(change.obj, field))


def check_config_map(change: Change) -> Iterable[Problem]:
    data, binary = change.obj.get("data") or {}, change.obj.get("binaryData") or {}
    yield from key_problems("data", data)
    yield from key_problems("binaryData", binary)
    for key in sorted(data.keys() & binary.keys()):
        yield Problem.invalid(f"data[{key}]", key, "duplicate of key present in binaryData")
    if sum(len(text.encode()) for text in data.values()) + sum(map(decoded_size, binary.values())) > SIZE_LIMIT:
        yield Problem.too_long("data", SIZE_LIMIT)
    yield from frozen_problems(change, "data", "binaryData")


def _config_map_entries(obj: Object) -> int:
    return len(obj.get("data") or ()) + len(obj.get("binaryData") or ())


CONFIGMAP = Kind(
    name="ConfigMap",
    plural="configmaps",
    namespaced=True,
    group="",
    fields={
        "data": mapping(
            TEXT, "Settings as text by key. Keys are letters, digits, `-`, `_` and `.`.", most=limits.DATA_KEYS
        ),
        "binaryData": mapping(
            BYTES, "Settings as bytes by key, base64-encoded. Keys as in `data`.", most=limits.DATA_KEYS
        ),
        "immutable": IMMUTABLE,
    },
    description="Settings by key. Not for credentials: those belong into a Secret.",
    short_names=("cm",),
    columns=(Column("Data", _config_map_entries, description="Number of keys."),),
    tracks_generation=False,
    builtin=True,
    writes_without_version=True,
    prepare=default_config_map,
    check=check_config_map,
)


# DOC-MERGED kinds/secret
# Secret of the core group: credentials by key. Clusters find their kubeconfigs in Secrets.


OPAQUE = "Opaque"
OWN_TYPES = "service.sh/"
"""How the types of those Secrets begin that the server keeps for itself: hashes, and keys that it signs with."""

_REQUIRED = {
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
}
_JSON = {"kubernetes.io/dockercfg", "kubernetes.io/dockerconfigjson"}
_ACCOUNT_TOKEN, _ACCOUNT_NAME = "kubernetes.io/service-account-token", "kubernetes.io/service-account.name"


def default_secret(change: Change) -> None:
    """`stringData` is a convenience of writing: it goes over `data` and is never stored or shown."""
    new = change.obj
    encoded = {key: b64encode(text.encode()).decode() for key, text in pieces(new, "stringData").items()}
    new.pop("stringData", None)
    put(new, "data", {**pieces(new, "data"), **encoded})
    new["type"] = new.get("type") or OPAQUE


def check_secret(change: Change) -> Iterable[Problem]:
    data = change.obj.get("data") or {}
    yield from key_problems("data", data)
    if sum(map(decoded_size, data.values())) > SIZE_LIMIT:
        yield Problem.too_long("data", SIZE_LIMIT)
    yield from _type_problems(change.obj, data)
    yield from frozen_problems(change, "data")


def _type_problems(obj: Object, data: Mapping[str, str]) -> Iterable[Problem]:
    """What the well-known types promise to those who use them."""
    kind = obj.get("type")
    for key in _REQUIRED.get(kind or "", ()):
        if key not in data:
            yield Problem.required(f"data[{key}]")
        elif kind in _JSON and not _is_json_object(data[key]):
            yield Problem.invalid(f"data[{key}]", "<secret contents redacted>", "must be a JSON object")
    if kind == "kubernetes.io/basic-auth" and not {"username", "password"} & data.keys():
        yield Problem.required("data[username]")
        yield Problem.required("data[password]")
    if kind == "kubernetes.io/ssh-auth" and not data.get("ssh-privatekey"):
        yield Problem.required("data[ssh-privatekey]")
    if kind == _ACCOUNT_TOKEN and not (metadata(obj).get("annotations") or {}).get(_ACCOUNT_NAME):
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
            BYTES, "Credentials by key, base64-encoded. Keys are letters, digits, `-_.`.", most=limits.DATA_KEYS
        ),
        "stringData": mapping(
            TEXT, "Credentials by key as text. Goes over `data` on writing and is never shown.", most=limits.DATA_KEYS
        ),
        "type": string("What the secret is for. Well-known types need certain keys. Stays as it is.", default=OPAQUE),
        "immutable": IMMUTABLE,
    },
    description="Credentials by key, left out of logs.",
    columns=(
        Column("Type", "type", description="What the secret is for."),
        Column("Data", _secret_entries, description="Number of keys."),
    ),
    selectable=("type",),
    immutable=("type",),
    secret=("data", "stringData"),
    is_the_servers=lambda secret: str(secret.get("type", "")).startswith(OWN_TYPES),
    tracks_generation=False,
    builtin=True,
    writes_without_version=True,
    prepare=default_secret,
    check=check_secret,
)
