"""Canaries for the redaction tests: a secret value, objects of every kind with it, and a search for it in a log."""

import base64
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import orjson

from fairlead.core import yaml
from fairlead.core.call import Call, Reply
from fairlead.core.objects import LAST_APPLIED, Object
from fairlead.kinds import KINDS
from fairlead.registry.kind import Action, Catalog, Kind, Sensitivity
from fairlead.registry.schema import array, integer, mapping, obj, open_object, string

CANARY = "canary/5b1f+0c7e?not&to be=logged"
KEY = "fairlead_9uQx0Jr2mVwZ8kTtY4cLbN6aHsDfGgEeRpOiUyWqMzX"
ROTATION = Kind(
    name="VaultRotation",
    plural="vaultrotations",
    namespaced=False,
    fields={},
    description="",
    persisted=False,
    sensitivity=Sensitivity.NORMAL,
)
VAULT = Kind(
    name="Vault",
    plural="vaults",
    namespaced=True,
    fields={
        "spec": obj(
            "",
            key=string(),
            size=integer(),
            title=string(),
            own=open_object(),
            doors=array(obj(password=string(), label=string())),
            codes=mapping(string(format="password")),
        ),
        "status": obj("", token=string()),
    },
    description="Has credentials in every type of field.",
    sensitive=("spec.key", "spec.doors.password"),
    write_only=("spec.key",),
    status_subresource=True,
    actions=(Action("rotate", ("create",), ROTATION),),
    sensitivity=Sensitivity.NORMAL,
)
CATALOG = Catalog((*KINDS, VAULT))
SECRET_KINDS = [kind for kind in CATALOG.kinds if kind.sensitive]


def list_encodings(secret: str) -> Iterator[bytes]:
    plain = secret.encode()
    yield plain
    yield quote(secret, safe="").encode()
    yield quote(secret).encode()
    yield plain.hex().encode()
    yield orjson.dumps(secret).strip(b'"')
    for padding in range(3):  # base64 depends on the offset modulo three
        shifted = base64.b64encode(b"\0" * padding + plain)
        yield shifted[4:-4]
        yield shifted[4:-4].replace(b"+", b"-").replace(b"/", b"_")


def assert_no_canary(log: bytes) -> None:
    assert log
    for secret in (CANARY, KEY):
        for encoding in list_encodings(secret):
            assert encoding not in log, (encoding, log)


def build_nested(path: str, value: Any) -> Object:
    """An object with the value at a dotted path."""
    for step in reversed(path.split(".")):
        value = {step: value}
    nested: Object = value
    return nested


def encode_base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def build_objects_with_canary(kind: Kind) -> Iterator[Object]:
    """Objects of the kind with the canary in every field that could hold a credential."""
    type_meta = {"apiVersion": kind.api_version, "kind": kind.name}
    for value in (
        CANARY,
        KEY,
        encode_base64(CANARY),
        {"a": CANARY},
        [CANARY],
        [{"key": CANARY}],
        {"a": {"b": [CANARY]}},
    ):
        for path in kind.sensitive:
            parent, _, last = path.rpartition(".")
            yield {**type_meta, "metadata": {"name": "a"}, **build_nested(path, value)}
            if parent:
                yield {**type_meta, "metadata": {"name": "a"}, **build_nested(parent, [{last: value}, {last: value}])}
                yield {**type_meta, "metadata": {"name": "a"}, **build_nested(parent, value)}
        for name in ("spec", "status", "data", "unknown", "Spec"):
            if name not in kind.fields:
                yield {**type_meta, "metadata": {"name": "a"}, name: value}
        yield {**type_meta, "metadata": {"name": "a"}, "spec": {"unknown": value}}
        yield {**type_meta, "metadata": {"name": "a", "unknown": value}}
    manifest = orjson.dumps({**type_meta, **build_nested(kind.sensitive[0], CANARY)}).decode()
    managed = [{"manager": CANARY, "fieldsV1": {f"f:{CANARY}": {}}}]
    yield {**type_meta, "metadata": {"name": "a", "managedFields": managed}}
    double_encoded = orjson.dumps(manifest).decode()
    for text in (manifest, f"  {manifest}", double_encoded, f"password: {CANARY}", f"a\n{CANARY}", "x" * 300 + CANARY):
        yield {**type_meta, "metadata": {"name": "a", "annotations": {LAST_APPLIED: text, "other": text}}}


async def echo_body(call: Call) -> Reply:
    """Replies with the body of the request, in the media type of the Accept header."""
    body = await call.read_body()
    if call.headers.get("content-type", "") == "application/yaml":
        body = orjson.dumps(yaml.decode(body)[0])
    content_type = call.headers.get("accept", "application/json") or "application/json"
    if content_type == "application/yaml":
        body = yaml.encode(orjson.loads(body))
    return Reply(201 if call.method == "POST" else 200, body, content_type)
