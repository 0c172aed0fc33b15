"""Secret of the core group: credentials by key. Clusters find their kubeconfigs in Secrets."""

import json
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Iterable, Mapping

from fairlead.core.objects import Object, metadata
from fairlead.kinds.keyed_data import (
    BYTES,
    IMMUTABLE,
    SIZE_LIMIT,
    TEXT,
    decoded_size,
    frozen_problems,
    key_problems,
    pieces,
    put,
)
from fairlead.registry import limits
from fairlead.registry.kind import Change, Column, Kind, Problem
from fairlead.registry.schema import mapping, string

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


def prepare(change: Change) -> None:
    """`stringData` is a convenience of writing: it goes over `data` and is never stored or shown."""
    new = change.obj
    encoded = {key: b64encode(text.encode()).decode() for key, text in pieces(new, "stringData").items()}
    new.pop("stringData", None)
    put(new, "data", {**pieces(new, "data"), **encoded})
    new["type"] = new.get("type") or OPAQUE


def check(change: Change) -> Iterable[Problem]:
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


def _count(obj: Object) -> int:
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
        Column("Data", _count, description="Number of keys."),
    ),
    selectable=("type",),
    immutable=("type",),
    secret=("data", "stringData"),
    is_the_servers=lambda secret: str(secret.get("type", "")).startswith(OWN_TYPES),
    tracks_generation=False,
    builtin=True,
    writes_without_version=True,
    prepare=prepare,
    check=check,
)
