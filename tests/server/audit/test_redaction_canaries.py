"""T-28: with everything recorded that can be, no credential is in the log, wherever a client or the server put it.

What stands behind the stages answers with whatever it was sent, as a careless server might.
"""

import base64
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import orjson
import pytest

from fairlead.core import yaml
from fairlead.core.call import Call, Reply
from fairlead.core.errors import BadRequest, Invalid, Problem
from fairlead.core.objects import LAST_APPLIED, Object
from fairlead.kinds import KINDS
from fairlead.kinds.access.access_key import OWNED_ACCESS_KEY
from fairlead.kinds.access.users import USER
from fairlead.kinds.core.config_data import CONFIGMAP, SECRET
from fairlead.registry.kind import Action, Catalog, Kind, Sensitivity
from fairlead.registry.schema import array, integer, mapping, obj, open_object, string
from fairlead.server.audit.policy import METADATA, REQUEST, REQUEST_RESPONSE, Policy, PolicyRule
from tests.harness.audit import MOUNT, answers, open_audit, place

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
    description="Has credentials in every sort of place.",
    sensitive=("spec.key", "spec.doors.password"),
    write_only=("spec.key",),
    status_subresource=True,
    actions=(Action("rotate", ("create",), ROTATION),),
    sensitivity=Sensitivity.NORMAL,
)
CATALOG = Catalog((*KINDS, VAULT))
SECRET_KINDS = [kind for kind in CATALOG.kinds if kind.sensitive]


def spellings(secret: str) -> Iterator[bytes]:
    plain = secret.encode()
    yield plain
    yield quote(secret, safe="").encode()
    yield quote(secret).encode()
    yield plain.hex().encode()
    yield orjson.dumps(secret).strip(b'"')
    for padding in range(3):  # base64 looks different for each place in a group of three
        encoded = base64.b64encode(b"\0" * padding + plain)
        yield encoded[4:-4]
        yield encoded[4:-4].replace(b"+", b"-").replace(b"/", b"_")


def assert_no_canary(log: bytes) -> None:
    assert log
    for secret in (CANARY, KEY):
        for spelling in spellings(secret):
            assert spelling not in log, (spelling, log)


def planted(path: str, value: Any) -> Object:
    """An object with the value at a dotted path; a step may turn out to be a list."""
    for step in reversed(path.split(".")):
        value = {step: value}
    found: Object = value
    return found


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def infected(kind: Kind) -> Iterator[Object]:
    """Objects of the kind with the canary in every place that could hold a credential."""
    head = {"apiVersion": kind.api_version, "kind": kind.name}
    for value in (CANARY, KEY, encoded(CANARY), {"a": CANARY}, [CANARY], [{"key": CANARY}], {"a": {"b": [CANARY]}}):
        for path in kind.sensitive:
            parent, _, last = path.rpartition(".")
            yield {**head, "metadata": {"name": "a"}, **planted(path, value)}
            if parent:
                yield {**head, "metadata": {"name": "a"}, **planted(parent, [{last: value}, {last: value}])}
                yield {**head, "metadata": {"name": "a"}, **planted(parent, value)}
        for name in ("spec", "status", "data", "unknown", "Spec"):
            if name not in kind.fields:
                yield {**head, "metadata": {"name": "a"}, name: value}
        yield {**head, "metadata": {"name": "a"}, "spec": {"unknown": value}}
        yield {**head, "metadata": {"name": "a", "unknown": value}}
    whole = orjson.dumps({**head, **planted(kind.sensitive[0], CANARY)}).decode()
    managed = [{"manager": CANARY, "fieldsV1": {f"f:{CANARY}": {}}}]
    yield {**head, "metadata": {"name": "a", "managedFields": managed}}
    nested = orjson.dumps(whole).decode()
    for text in (whole, f"  {whole}", nested, f"password: {CANARY}", f"a\n{CANARY}", "x" * 300 + CANARY):
        yield {**head, "metadata": {"name": "a", "annotations": {LAST_APPLIED: text, "other": text}}}


async def echo(call: Call) -> Reply:
    """Answers with what it was sent, in the form that was asked for."""
    body = await call.read_body()
    if call.headers.get("content-type", "") == "application/yaml":
        body = orjson.dumps(yaml.decode(body)[0])
    content_type = call.headers.get("accept", "application/json") or "application/json"
    if content_type == "application/yaml":
        body = yaml.encode(orjson.loads(body))
    return Reply(201 if call.method == "POST" else 200, body, content_type)


@pytest.mark.parametrize("kind", SECRET_KINDS, ids=lambda kind: kind.name)
async def test_t_28_no_canary_in_objects_that_are_sent_and_answered(kind: Kind) -> None:
    async with open_audit(echo, Policy((PolicyRule(REQUEST_RESPONSE),)), catalog=CATALOG) as desk:
        for body in infected(kind):
            for method, name in (("POST", ""), ("PUT", "a")):
                await desk(method, place(kind, name), body)
            text = yaml.encode(body)
            headers = {"content-type": "application/yaml", "accept": "application/yaml"}
            await desk("POST", place(kind), text, headers=headers)
    assert_no_canary(desk.notebook.data)
    for event in desk.completed():
        assert event["requestObject"]["kind"] == event["responseObject"]["kind"] == kind.name


async def test_t_28_what_is_a_password_by_its_format_or_its_name_needs_no_other_mention() -> None:
    body = {"kind": "Vault", "spec": {"codes": {"a": CANARY}, "title": "mine"}, "status": {"token": CANARY}}
    async with open_audit(echo, Policy((PolicyRule(REQUEST_RESPONSE),)), catalog=CATALOG) as desk:
        await desk("PUT", place(VAULT, "a"), body)
    assert_no_canary(desk.notebook.data)
    assert desk.completed()[0]["requestObject"]["spec"] == {"codes": {"a": "<redacted>"}, "title": "mine"}


PATCHES = {
    "application/merge-patch+json": "merge",
    "application/strategic-merge-patch+json": "strategic merge",
    "application/apply-patch+yaml": "apply",
}


@pytest.mark.parametrize("kind", SECRET_KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("media_type", PATCHES)
async def test_t_28_no_canary_in_patches(kind: Kind, media_type: str) -> None:
    async with open_audit(echo, Policy((PolicyRule(REQUEST_RESPONSE),)), catalog=CATALOG) as desk:
        for body in infected(kind):
            await desk("PATCH", place(kind, "a"), body, headers={"content-type": media_type})
        directives = {"$patch": CANARY, "$setElementOrder/spec": [CANARY], "$retainKeys": [CANARY]}
        await desk("PATCH", place(kind, "a"), {**directives, "spec": directives}, headers={"content-type": media_type})
        await desk("PATCH", place(kind, "a"), [CANARY, {"spec": CANARY}], headers={"content-type": media_type})
    assert_no_canary(desk.notebook.data)
    assert all("requestObject" in event for event in desk.completed())


@pytest.mark.parametrize("kind", SECRET_KINDS, ids=lambda kind: kind.name)
async def test_t_28_no_canary_in_the_operations_of_a_json_patch(kind: Kind) -> None:
    operations: list[Any] = [
        {"op": "replace", "path": "", "value": planted(kind.sensitive[0], CANARY)},
        {"op": "add", "path": "/metadata/managedFields", "value": [CANARY]},
        {"op": CANARY.encode().hex(), "path": {"a": CANARY}, "from": [CANARY], CANARY: CANARY, "value": CANARY},
        {"op": "test", "path": "/metadata/name", "value": CANARY},
        CANARY,
    ]
    operations += [
        {"op": "replace", "path": "/" + path.replace(".", "/"), "value": value}
        for path in kind.sensitive
        for value in (CANARY, {"a": CANARY}, encoded(CANARY), KEY)
    ]
    del operations[2]["op"]
    async with open_audit(
        answers(200, {"kind": kind.name}), Policy((PolicyRule(REQUEST_RESPONSE),)), catalog=CATALOG
    ) as desk:
        await desk("PATCH", place(kind, "a"), operations, headers={"content-type": "application/json-patch+json"})
    assert_no_canary(desk.notebook.data)
    (event,) = desk.completed()
    assert event["requestObject"][0] == {"op": "replace", "path": "", "value": "<redacted>"}


@pytest.mark.parametrize("kind", SECRET_KINDS, ids=lambda kind: kind.name)
async def test_t_28_no_canary_in_lists_tables_and_metadata(kind: Kind) -> None:
    async with open_audit(echo, Policy((PolicyRule(REQUEST_RESPONSE),)), catalog=CATALOG) as desk:
        bodies = list(infected(kind))
        rows = [{"cells": [CANARY], "object": body} for body in bodies]
        partial = [{**body, "kind": "PartialObjectMetadata"} for body in bodies]
        for answer in (
            {"kind": kind.list_kind, "items": bodies},
            {"kind": "Table", "rows": rows},
            {"kind": "Table", "rows": [{"cells": [CANARY], "object": body} for body in partial]},
            {"kind": "PartialObjectMetadataList", "items": partial},
            partial[0],
        ):
            await desk("GET", place(kind), answer)
    assert_no_canary(desk.notebook.data)
    assert all("responseObject" in event for event in desk.completed())


@pytest.mark.parametrize("level", [METADATA, REQUEST, REQUEST_RESPONSE])
async def test_t_28_no_canary_in_refusals_that_quote_it(level: int) -> None:
    async def invalid(call: Call) -> Reply:
        await call.read_body()
        raise Invalid.of("Vault", "g", "a", [Problem.invalid("spec.key", CANARY, "is too short")])

    async def malformed(call: Call) -> Reply:
        raise BadRequest(f"what is {CANARY}?")

    for serve in (invalid, malformed):
        async with open_audit(serve, Policy((PolicyRule(level),)), catalog=CATALOG) as desk:
            await desk("POST", place(VAULT), planted("spec.key", CANARY))
            await desk("POST", place(USER, "alice", "profile"), {"password": CANARY})
            await desk("POST", "/auth/password/login", {"password": CANARY})
        assert_no_canary(desk.notebook.data)
        assert len(desk.completed()) == 3
        if serve is invalid:
            causes = desk.completed()[0]["responseStatus"]["details"]["causes"]
            assert causes == [{"reason": "FieldValueInvalid", "field": "spec.key"}]


async def test_t_28_no_canary_from_query_strings() -> None:
    names = ("access_token", "token", "key", "password", "code", "state", "id_token", "X-Amz-Signature", "whatever")
    async with open_audit(answers(200, {}), catalog=CATALOG) as desk:
        for path in (place(VAULT), "/auth/callback", f"{MOUNT}/version", "/nowhere"):
            for name in names:
                await desk("GET", path, query=f"{name}={quote(CANARY)}&limit=5&{name}={KEY}")
            await desk("GET", path, query=f"{KEY}&limit=5")
            await desk("GET", path, query=f"continue={KEY}&limit=5&labelSelector=a%3D{KEY}")
            await desk("GET", path, query=f"fieldSelector=spec.key%3D{quote(CANARY)}&limit=5")
            await desk("GET", path, query=f"fieldSelector={quote(CANARY, safe='')}&limit=5")
    assert_no_canary(desk.notebook.data)
    assert all("limit=5" in event["requestURI"] for event in desk.events)
    assert "access_token=REDACTED" in desk.events[0]["requestURI"]


async def test_what_may_be_selected_by_is_shown() -> None:
    async with open_audit(answers(200, {}), catalog=CATALOG) as desk:
        await desk("GET", place(SECRET), query="fieldSelector=type%3Da,metadata.name!%3Db&labelSelector=c+in+(d)")
        await desk("GET", place(CONFIGMAP), query="fieldSelector=whatever%3Da")
    first, second = (event["requestURI"].partition("?")[2] for event in desk.events)
    assert first == "fieldSelector=type%3Da,metadata.name%21%3Db&labelSelector=c%20in%20%28d%29"
    assert second == "fieldSelector=whatever%3Da"


async def test_t_28_no_key_from_paths_names_and_headers() -> None:
    async with open_audit(answers(404, {"kind": "Status", "message": f'"{KEY}" not found'})) as desk:
        for path in (f"/{KEY}", f"/import/{KEY}.yaml", place(SECRET, KEY), place(SECRET, "a", KEY)):
            await desk("GET", path, headers={"user-agent": f"tool {KEY}"})
        for length in range(1_000, 1_050):  # wherever a long text is cut
            await desk("GET", f"/{'a/' * (length * 4)}{KEY}", headers={"user-agent": f"{'a ' * (length // 2)}{KEY}"})
        await desk("GET", f"{MOUNT}/api/v1/namespaces/{KEY}/{KEY}")
        await desk("GET", f"{MOUNT}/apis/{KEY}/{KEY}/{KEY}/{KEY}")
    assert_no_canary(desk.notebook.data)
    assert KEY[:20].encode() not in desk.notebook.data
    assert desk.events[2]["objectRef"]["name"] == "REDACTED"
    assert desk.events[2]["responseStatus"]["message"] == '"REDACTED" not found'


@pytest.mark.parametrize(
    "text",
    [
        "/kubernetes/management/apis/management.service.sh/v1/namespaces/service-p-demo/virtualclusterinstances/a-b-c",
        "0d4e6c3a-7f7e-4c57-9c1e-3a8f8a0e5b11",
        "a-name-that-is-long-because-generators-make-such-names-7d9f8c6b5d",
        "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0.0.0 Safari/537.36",
        "kubectl/v1.33.1 (linux/amd64) kubernetes/7c48c2bd72b9bf5c44d21d7338cc7bea77d0ad2a",
    ],
)
async def test_ordinary_texts_are_shown_as_they_are(text: str) -> None:
    async with open_audit(answers(200, {})) as desk:
        await desk("GET", "/version", headers={"user-agent": text})
    assert desk.events[0]["userAgent"] == text


async def test_t_28_a_key_that_is_shown_once_is_not_shown_in_the_log() -> None:
    answer = {"kind": "Vault", "metadata": {"name": "a"}, "spec": {"key": KEY, "title": "mine"}}
    async with open_audit(answers(201, answer), Policy((PolicyRule(REQUEST_RESPONSE),)), catalog=CATALOG) as desk:
        await desk("POST", place(VAULT), {"spec": {"title": "mine"}})
        await desk("POST", place(VAULT, "a", "rotate"), {"spec": {}})
    assert_no_canary(desk.notebook.data)
    for event in desk.completed():
        assert event["responseObject"]["spec"] == {"key": "<redacted>", "title": "mine"}


async def test_an_access_key_keeps_everything_but_its_credentials() -> None:
    spec = {"displayName": "mine", "user": "alice", "key": KEY, "ttl": 60, "scope": {"projects": [{"project": "p"}]}}
    answer = {"kind": "OwnedAccessKey", "apiVersion": OWNED_ACCESS_KEY.api_version, "metadata": {"name": "a"}}
    async with open_audit(answers(201, {**answer, "spec": spec}), Policy((PolicyRule(REQUEST_RESPONSE),))) as desk:
        await desk("POST", place(OWNED_ACCESS_KEY), {**answer, "spec": spec})
    (event,) = desk.completed()
    assert event["requestObject"]["spec"] == event["responseObject"]["spec"] == {**spec, "key": "<redacted>"}
    assert event["objectRef"]["name"] == "a"


async def test_a_body_of_another_kind_than_the_path_says_is_left_out() -> None:
    body = {"apiVersion": "v1", "kind": "Secret", "stringData": {"a": CANARY}}
    async with open_audit(echo, Policy((PolicyRule(REQUEST_RESPONSE),))) as desk:
        await desk("POST", place(CONFIGMAP), body)
        await desk("POST", place(CONFIGMAP), {**body, "kind": "List", "items": [body]})
    assert_no_canary(desk.notebook.data)
    for event in desk.completed():
        assert "kind does not match the path" in event["annotations"]["service.sh/request-object-omitted"]
        assert "kind does not match the path" in event["annotations"]["service.sh/response-object-omitted"]


async def test_below_a_path_that_nobody_knows_nothing_is_recorded_but_that_it_was_asked_for() -> None:
    async with open_audit(echo, Policy((PolicyRule(REQUEST_RESPONSE),))) as desk:
        await desk("POST", place(CONFIGMAP, "a", "proxy"), {"kind": "ConfigMap", "data": {"a": CANARY}})
    assert_no_canary(desk.notebook.data)
    (event,) = desk.completed()
    assert event["annotations"]["service.sh/request-object-omitted"] == "unknown kind"


async def test_in_other_kinds_what_is_called_like_a_credential_is_not_shown() -> None:
    data = {"password": CANARY, "client-secret": CANARY, "PRIVATE_KEY": CANARY, "colour": "blue"}
    meta = {"name": "a", "managedFields": [{"manager": CANARY}]}
    operations = [
        {"op": "add", "path": "/data/api-key", "value": CANARY},
        {"op": "add", "path": "/metadata/managedFields", "value": CANARY},
        {"op": "add", "path": "/data", "value": data},
    ]
    async with open_audit(echo, Policy((PolicyRule(REQUEST_RESPONSE),))) as desk:
        await desk("POST", place(CONFIGMAP), {"kind": "ConfigMap", "metadata": meta, "data": data})
        await desk("PATCH", place(CONFIGMAP, "a"), operations, headers={"content-type": "application/json-patch+json"})
    assert_no_canary(desk.notebook.data)
    created, patched = desk.completed()
    assert created["requestObject"]["data"]["colour"] == "blue"
    assert patched["requestObject"][2]["value"]["colour"] == "blue"


async def test_what_a_deletion_was_asked_with_is_recorded_as_far_as_it_is_known() -> None:
    options = {"kind": "DeleteOptions", "propagationPolicy": "Orphan", "preconditions": {"uid": "u"}, "more": CANARY}
    async with open_audit(
        answers(200, {"kind": "Status", "status": "Success"}), Policy((PolicyRule(REQUEST_RESPONSE),))
    ) as desk:
        await desk("DELETE", place(SECRET, "a"), options)
    (event,) = desk.completed()
    assert event["requestObject"] == {**options, "more": "<redacted>"}


async def test_every_kind_with_credentials_is_asked_here() -> None:
    assert {"Secret", "OwnedAccessKey", "App", "Vault"} <= {kind.name for kind in SECRET_KINDS}


PLAIN_KINDS = [kind for kind in CATALOG.kinds if not kind.sensitive and kind.persisted]


@pytest.mark.parametrize("kind", PLAIN_KINDS, ids=lambda kind: kind.name)
async def test_t_28_unknown_fields_of_kinds_without_credentials_are_not_shown_either(kind: Kind) -> None:
    head = {"apiVersion": kind.api_version, "kind": kind.name}
    unknown = {"issuer": CANARY, "inner": {"a": [CANARY]}}
    bodies: list[Object] = [
        {**head, "metadata": {"name": "a", "unknown": unknown}, "unknown": unknown, "Spec": unknown},
        {**head, "metadata": {"annotations": {"a": orjson.dumps(unknown).decode()}}},
        {**head, "metadata": {"annotations": {LAST_APPLIED: CANARY}}},
    ]
    if kind.fields.get("spec", {}).get("properties"):
        bodies.append({**head, "spec": {"unknown": unknown, "oidcClientSecret": CANARY, "vault_token": CANARY}})
    async with open_audit(echo, Policy((PolicyRule(REQUEST_RESPONSE),)), catalog=CATALOG) as desk:
        for body in bodies:
            await desk("PUT", place(kind, "a"), body)
            await desk("PATCH", place(kind, "a"), body, headers={"content-type": "application/merge-patch+json"})
    assert_no_canary(desk.notebook.data)
    assert all(event["requestObject"]["kind"] == kind.name for event in desk.completed())


@pytest.mark.parametrize("name", ["values", "objects", "manifests", "script", "parameters", "raw"])
async def test_t_28_texts_that_are_whole_documents_are_not_shown(name: str) -> None:
    body = {"kind": "Vault", "spec": {"own": {"a": 1}, "title": "mine", name: f"a: {CANARY}"}}
    async with open_audit(echo, Policy((PolicyRule(REQUEST_RESPONSE),)), catalog=CATALOG) as desk:
        await desk("PUT", place(VAULT, "a"), body)
        await desk("PUT", place(CONFIGMAP, "a"), {"kind": "ConfigMap", "data": {name: CANARY, "other": "seen"}})
    assert_no_canary(desk.notebook.data)
    assert desk.completed()[1]["requestObject"]["data"]["other"] == "seen"
