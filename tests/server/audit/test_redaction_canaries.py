"""server.audit.redaction: at the highest audit level, no credential is in the log, wherever it was sent (T-28).

The handler behind the stages echoes requests, as a careless server might.
"""

from typing import Any
from urllib.parse import quote

import orjson
import pytest

from fairlead.core import yaml
from fairlead.core.call import Call, Reply
from fairlead.core.errors import BadRequest, Invalid, Problem
from fairlead.core.objects import LAST_APPLIED, Object
from fairlead.kinds.access.access_key import OWNED_ACCESS_KEY
from fairlead.kinds.access.users import USER
from fairlead.kinds.core.config_data import CONFIGMAP, SECRET
from fairlead.registry.kind import Kind
from fairlead.server.audit.policy import METADATA, REQUEST, REQUEST_RESPONSE, Policy, PolicyRule
from tests.harness.audit import MOUNT, object_path, open_audit, reply_with
from tests.server.audit.canaries import (
    CANARY,
    CATALOG,
    KEY,
    SECRET_KINDS,
    VAULT,
    assert_no_canary,
    build_nested,
    build_objects_with_canary,
    echo_body,
    encode_base64,
)


@pytest.mark.parametrize("kind", SECRET_KINDS, ids=lambda kind: kind.name)
async def test_t_28_no_canary_in_objects_of_requests_and_responses(kind: Kind) -> None:
    async with open_audit(echo_body, Policy((PolicyRule(REQUEST_RESPONSE),)), catalog=CATALOG) as audit:
        for body in build_objects_with_canary(kind):
            for method, name in (("POST", ""), ("PUT", "a")):
                await audit(method, object_path(kind, name), body)
            text = yaml.encode(body)
            headers = {"content-type": "application/yaml", "accept": "application/yaml"}
            await audit("POST", object_path(kind), text, headers=headers)
    assert_no_canary(audit.log.data)
    for event in audit.completed_events():
        assert event["requestObject"]["kind"] == event["responseObject"]["kind"] == kind.name


async def test_t_28_passwords_are_recognized_by_their_format_or_name() -> None:
    body = {"kind": "Vault", "spec": {"codes": {"a": CANARY}, "title": "mine"}, "status": {"token": CANARY}}
    async with open_audit(echo_body, Policy((PolicyRule(REQUEST_RESPONSE),)), catalog=CATALOG) as audit:
        await audit("PUT", object_path(VAULT, "a"), body)
    assert_no_canary(audit.log.data)
    assert audit.completed_events()[0]["requestObject"]["spec"] == {"codes": {"a": "<redacted>"}, "title": "mine"}


PATCHES = {
    "application/merge-patch+json": "merge",
    "application/strategic-merge-patch+json": "strategic merge",
    "application/apply-patch+yaml": "apply",
}


@pytest.mark.parametrize("kind", SECRET_KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("media_type", PATCHES)
async def test_t_28_no_canary_in_patches(kind: Kind, media_type: str) -> None:
    async with open_audit(echo_body, Policy((PolicyRule(REQUEST_RESPONSE),)), catalog=CATALOG) as audit:
        for body in build_objects_with_canary(kind):
            await audit("PATCH", object_path(kind, "a"), body, headers={"content-type": media_type})
        directives = {"$patch": CANARY, "$setElementOrder/spec": [CANARY], "$retainKeys": [CANARY]}
        await audit(
            "PATCH", object_path(kind, "a"), {**directives, "spec": directives}, headers={"content-type": media_type}
        )
        await audit("PATCH", object_path(kind, "a"), [CANARY, {"spec": CANARY}], headers={"content-type": media_type})
    assert_no_canary(audit.log.data)
    assert all("requestObject" in event for event in audit.completed_events())


@pytest.mark.parametrize("kind", SECRET_KINDS, ids=lambda kind: kind.name)
async def test_t_28_no_canary_in_the_operations_of_a_json_patch(kind: Kind) -> None:
    operations: list[Any] = [
        {"op": "replace", "path": "", "value": build_nested(kind.sensitive[0], CANARY)},
        {"op": "add", "path": "/metadata/managedFields", "value": [CANARY]},
        {"op": CANARY.encode().hex(), "path": {"a": CANARY}, "from": [CANARY], CANARY: CANARY, "value": CANARY},
        {"op": "test", "path": "/metadata/name", "value": CANARY},
        CANARY,
    ]
    operations += [
        {"op": "replace", "path": "/" + path.replace(".", "/"), "value": value}
        for path in kind.sensitive
        for value in (CANARY, {"a": CANARY}, encode_base64(CANARY), KEY)
    ]
    del operations[2]["op"]
    async with open_audit(
        reply_with(200, {"kind": kind.name}), Policy((PolicyRule(REQUEST_RESPONSE),)), catalog=CATALOG
    ) as audit:
        await audit(
            "PATCH", object_path(kind, "a"), operations, headers={"content-type": "application/json-patch+json"}
        )
    assert_no_canary(audit.log.data)
    (event,) = audit.completed_events()
    assert event["requestObject"][0] == {"op": "replace", "path": "", "value": "<redacted>"}


@pytest.mark.parametrize("kind", SECRET_KINDS, ids=lambda kind: kind.name)
async def test_t_28_no_canary_in_lists_tables_and_metadata(kind: Kind) -> None:
    async with open_audit(echo_body, Policy((PolicyRule(REQUEST_RESPONSE),)), catalog=CATALOG) as audit:
        bodies = list(build_objects_with_canary(kind))
        rows = [{"cells": [CANARY], "object": body} for body in bodies]
        partial = [{**body, "kind": "PartialObjectMetadata"} for body in bodies]
        for content in (
            {"kind": kind.list_kind, "items": bodies},
            {"kind": "Table", "rows": rows},
            {"kind": "Table", "rows": [{"cells": [CANARY], "object": body} for body in partial]},
            {"kind": "PartialObjectMetadataList", "items": partial},
            partial[0],
        ):
            await audit("GET", object_path(kind), content)
    assert_no_canary(audit.log.data)
    assert all("responseObject" in event for event in audit.completed_events())


@pytest.mark.parametrize("level", [METADATA, REQUEST, REQUEST_RESPONSE])
async def test_t_28_no_canary_in_error_messages_that_quote_it(level: int) -> None:
    async def raise_invalid(call: Call) -> Reply:
        await call.read_body()
        raise Invalid.of("Vault", "g", "a", [Problem.invalid("spec.key", CANARY, "is too short")])

    async def raise_bad_request(call: Call) -> Reply:
        raise BadRequest(f"unexpected {CANARY}")

    for serve in (raise_invalid, raise_bad_request):
        async with open_audit(serve, Policy((PolicyRule(level),)), catalog=CATALOG) as audit:
            await audit("POST", object_path(VAULT), build_nested("spec.key", CANARY))
            await audit("POST", object_path(USER, "alice", "profile"), {"password": CANARY})
            await audit("POST", "/auth/password/login", {"password": CANARY})
        assert_no_canary(audit.log.data)
        assert len(audit.completed_events()) == 3
        if serve is raise_invalid:
            causes = audit.completed_events()[0]["responseStatus"]["details"]["causes"]
            assert causes == [{"reason": "FieldValueInvalid", "field": "spec.key"}]


async def test_t_28_no_canary_of_query_strings() -> None:
    names = ("access_token", "token", "key", "password", "code", "state", "id_token", "X-Amz-Signature", "unknown")
    async with open_audit(reply_with(200, {}), catalog=CATALOG) as audit:
        for path in (object_path(VAULT), "/auth/callback", f"{MOUNT}/version", "/nowhere"):
            for name in names:
                await audit("GET", path, query=f"{name}={quote(CANARY)}&limit=5&{name}={KEY}")
            await audit("GET", path, query=f"{KEY}&limit=5")
            await audit("GET", path, query=f"continue={KEY}&limit=5&labelSelector=a%3D{KEY}")
            await audit("GET", path, query=f"fieldSelector=spec.key%3D{quote(CANARY)}&limit=5")
            await audit("GET", path, query=f"fieldSelector={quote(CANARY, safe='')}&limit=5")
    assert_no_canary(audit.log.data)
    assert all("limit=5" in event["requestURI"] for event in audit.events)
    assert "access_token=REDACTED" in audit.events[0]["requestURI"]


async def test_selectors_of_known_fields_are_recorded() -> None:
    async with open_audit(reply_with(200, {}), catalog=CATALOG) as audit:
        await audit(
            "GET", object_path(SECRET), query="fieldSelector=type%3Da,metadata.name!%3Db&labelSelector=c+in+(d)"
        )
        await audit("GET", object_path(CONFIGMAP), query="fieldSelector=anyfield%3Da")
    first, second = (event["requestURI"].partition("?")[2] for event in audit.events)
    assert first == "fieldSelector=type%3Da,metadata.name%21%3Db&labelSelector=c%20in%20%28d%29"
    assert second == "fieldSelector=anyfield%3Da"


async def test_t_28_no_key_of_paths_names_and_headers() -> None:
    async with open_audit(reply_with(404, {"kind": "Status", "message": f'"{KEY}" not found'})) as audit:
        for path in (f"/{KEY}", f"/import/{KEY}.yaml", object_path(SECRET, KEY), object_path(SECRET, "a", KEY)):
            await audit("GET", path, headers={"user-agent": f"tool {KEY}"})
        for length in range(1_000, 1_050):  # wherever a long text is truncated
            await audit("GET", f"/{'a/' * (length * 4)}{KEY}", headers={"user-agent": f"{'a ' * (length // 2)}{KEY}"})
        await audit("GET", f"{MOUNT}/api/v1/namespaces/{KEY}/{KEY}")
        await audit("GET", f"{MOUNT}/apis/{KEY}/{KEY}/{KEY}/{KEY}")
    assert_no_canary(audit.log.data)
    assert KEY[:20].encode() not in audit.log.data
    assert audit.events[2]["objectRef"]["name"] == "REDACTED"
    assert audit.events[2]["responseStatus"]["message"] == '"REDACTED" not found'


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
async def test_ordinary_text_is_recorded_unchanged(text: str) -> None:
    async with open_audit(reply_with(200, {})) as audit:
        await audit("GET", "/version", headers={"user-agent": text})
    assert audit.events[0]["userAgent"] == text


async def test_t_28_a_key_returned_only_once_is_not_in_the_log() -> None:
    content = {"kind": "Vault", "metadata": {"name": "a"}, "spec": {"key": KEY, "title": "mine"}}
    async with open_audit(reply_with(201, content), Policy((PolicyRule(REQUEST_RESPONSE),)), catalog=CATALOG) as audit:
        await audit("POST", object_path(VAULT), {"spec": {"title": "mine"}})
        await audit("POST", object_path(VAULT, "a", "rotate"), {"spec": {}})
    assert_no_canary(audit.log.data)
    for event in audit.completed_events():
        assert event["responseObject"]["spec"] == {"key": "<redacted>", "title": "mine"}


async def test_only_the_credentials_of_an_access_key_are_redacted() -> None:
    spec = {"displayName": "mine", "user": "alice", "key": KEY, "ttl": 60, "scope": {"projects": [{"project": "p"}]}}
    content = {"kind": "OwnedAccessKey", "apiVersion": OWNED_ACCESS_KEY.api_version, "metadata": {"name": "a"}}
    async with open_audit(reply_with(201, {**content, "spec": spec}), Policy((PolicyRule(REQUEST_RESPONSE),))) as audit:
        await audit("POST", object_path(OWNED_ACCESS_KEY), {**content, "spec": spec})
    (event,) = audit.completed_events()
    assert event["requestObject"]["spec"] == event["responseObject"]["spec"] == {**spec, "key": "<redacted>"}
    assert event["objectRef"]["name"] == "a"


async def test_a_body_whose_kind_does_not_match_the_path_is_omitted() -> None:
    body = {"apiVersion": "v1", "kind": "Secret", "stringData": {"a": CANARY}}
    async with open_audit(echo_body, Policy((PolicyRule(REQUEST_RESPONSE),))) as audit:
        await audit("POST", object_path(CONFIGMAP), body)
        await audit("POST", object_path(CONFIGMAP), {**body, "kind": "List", "items": [body]})
    assert_no_canary(audit.log.data)
    for event in audit.completed_events():
        assert "kind does not match the path" in event["annotations"]["service.sh/request-object-omitted"]
        assert "kind does not match the path" in event["annotations"]["service.sh/response-object-omitted"]


async def test_bodies_of_unknown_subresources_are_omitted() -> None:
    async with open_audit(echo_body, Policy((PolicyRule(REQUEST_RESPONSE),))) as audit:
        await audit("POST", object_path(CONFIGMAP, "a", "proxy"), {"kind": "ConfigMap", "data": {"a": CANARY}})
    assert_no_canary(audit.log.data)
    (event,) = audit.completed_events()
    assert event["annotations"]["service.sh/request-object-omitted"] == "unknown kind"


async def test_in_other_kinds_fields_named_like_credentials_are_redacted() -> None:
    data = {"password": CANARY, "client-secret": CANARY, "PRIVATE_KEY": CANARY, "colour": "blue"}
    meta = {"name": "a", "managedFields": [{"manager": CANARY}]}
    operations = [
        {"op": "add", "path": "/data/api-key", "value": CANARY},
        {"op": "add", "path": "/metadata/managedFields", "value": CANARY},
        {"op": "add", "path": "/data", "value": data},
    ]
    async with open_audit(echo_body, Policy((PolicyRule(REQUEST_RESPONSE),))) as audit:
        await audit("POST", object_path(CONFIGMAP), {"kind": "ConfigMap", "metadata": meta, "data": data})
        await audit(
            "PATCH", object_path(CONFIGMAP, "a"), operations, headers={"content-type": "application/json-patch+json"}
        )
    assert_no_canary(audit.log.data)
    created, patched = audit.completed_events()
    assert created["requestObject"]["data"]["colour"] == "blue"
    assert patched["requestObject"][2]["value"]["colour"] == "blue"


async def test_known_fields_of_delete_options_are_recorded() -> None:
    options = {"kind": "DeleteOptions", "propagationPolicy": "Orphan", "preconditions": {"uid": "u"}, "more": CANARY}
    async with open_audit(
        reply_with(200, {"kind": "Status", "status": "Success"}), Policy((PolicyRule(REQUEST_RESPONSE),))
    ) as audit:
        await audit("DELETE", object_path(SECRET, "a"), options)
    (event,) = audit.completed_events()
    assert event["requestObject"] == {**options, "more": "<redacted>"}


async def test_the_kinds_with_credentials_are_covered() -> None:
    assert {"Secret", "OwnedAccessKey", "App", "Vault"} <= {kind.name for kind in SECRET_KINDS}


PLAIN_KINDS = [kind for kind in CATALOG.kinds if not kind.sensitive and kind.persisted]


@pytest.mark.parametrize("kind", PLAIN_KINDS, ids=lambda kind: kind.name)
async def test_t_28_unknown_fields_of_kinds_without_credentials_are_redacted(kind: Kind) -> None:
    type_meta = {"apiVersion": kind.api_version, "kind": kind.name}
    unknown = {"issuer": CANARY, "inner": {"a": [CANARY]}}
    bodies: list[Object] = [
        {**type_meta, "metadata": {"name": "a", "unknown": unknown}, "unknown": unknown, "Spec": unknown},
        {**type_meta, "metadata": {"annotations": {"a": orjson.dumps(unknown).decode()}}},
        {**type_meta, "metadata": {"annotations": {LAST_APPLIED: CANARY}}},
    ]
    if kind.fields.get("spec", {}).get("properties"):
        bodies.append({**type_meta, "spec": {"unknown": unknown, "oidcClientSecret": CANARY, "vault_token": CANARY}})
    async with open_audit(echo_body, Policy((PolicyRule(REQUEST_RESPONSE),)), catalog=CATALOG) as audit:
        for body in bodies:
            await audit("PUT", object_path(kind, "a"), body)
            await audit("PATCH", object_path(kind, "a"), body, headers={"content-type": "application/merge-patch+json"})
    assert_no_canary(audit.log.data)
    assert all(event["requestObject"]["kind"] == kind.name for event in audit.completed_events())


@pytest.mark.parametrize("name", ["values", "objects", "manifests", "script", "parameters", "raw"])
async def test_t_28_strings_that_contain_whole_documents_are_redacted(name: str) -> None:
    body = {"kind": "Vault", "spec": {"own": {"a": 1}, "title": "mine", name: f"a: {CANARY}"}}
    async with open_audit(echo_body, Policy((PolicyRule(REQUEST_RESPONSE),)), catalog=CATALOG) as audit:
        await audit("PUT", object_path(VAULT, "a"), body)
        await audit("PUT", object_path(CONFIGMAP, "a"), {"kind": "ConfigMap", "data": {name: CANARY, "other": "seen"}})
    assert_no_canary(audit.log.data)
    assert audit.completed_events()[1]["requestObject"]["data"]["other"] == "seen"
