"""Details of the verbs that clients of Kubernetes know: what is decoded first, versions, shapes and old options."""

import orjson
import pytest

from fairlead.core.call import Call, RequestInfo
from fairlead.core.errors import Forbidden, Invalid
from fairlead.core.objects import Object
from fairlead.server.pipeline import Pipeline
from tests.harness.calls import FakeGuard, call
from tests.harness.virtual_time import on_virtual_time
from tests.server.api.api_fixture import CONFIGMAPS, GADGETS, MERGE, build_configmap, build_gadget, load_body, open_api
from tests.server.api.test_query_options import expect_error, list_causes
from tests.server.api.test_query_options_delete import parse_delete


@pytest.mark.parametrize("orphan", [True, False])
def test_a_delete_names_its_policy_in_one_way_only(orphan: bool) -> None:
    for query, body in (
        ("", {"orphanDependents": orphan, "propagationPolicy": "Orphan"}),
        (f"orphanDependents={orphan}&propagationPolicy=Orphan", None),
    ):
        error = expect_error(parse_delete, query, body)
        assert isinstance(error, Invalid) and list_causes(error) == [("propagationPolicy", "FieldValueInvalid")]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({}, 404),
        ({"metadata": {"name": "b"}}, 400),
        ({"metadata": {"name": "a", "labels": 5}}, 400),
        ({"apiVersion": "v2"}, 400),
        ({"kind": "Other"}, 404),
        ({"spec": {"size": "large"}}, 404),
    ],
)
@on_virtual_time
async def test_a_replacement_that_cannot_be_decoded_is_400_even_of_nothing(body: Object, code: int) -> None:
    async with open_api() as api:
        assert (await api("PUT", f"{GADGETS}/a", {**build_gadget("a"), **body})).status == code


@on_virtual_time
async def test_a_patch_that_cannot_be_decoded_is_404_where_there_is_nothing() -> None:
    async with open_api() as api:
        assert (await api("PATCH", f"{GADGETS}/a", b"{", content_type=MERGE)).status == 404
        await api("POST", GADGETS, build_gadget("a"))
        assert (await api("PATCH", f"{GADGETS}/a", b"{", content_type=MERGE)).status == 400


def build_lease(name: str, **metadata: str) -> Object:
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name, **metadata}}


LEASES = "/apis/coordination.k8s.io/v1/namespaces/demo/leases"


@on_virtual_time
async def test_a_put_creates_what_some_built_in_kinds_do_not_have_yet() -> None:
    async with open_api() as api:
        created = load_body(await api("PUT", f"{LEASES}/a", build_lease("a", resourceVersion="7")), 201)
        load_body(await api("PUT", f"{LEASES}/a", created), 200)
        tried = load_body(
            await api("PUT", f"{LEASES}/b", build_lease("b", resourceVersion="7"), query="dryRun=All"), 201
        )
        assert "resourceVersion" not in tried["metadata"]
        load_body(await api("PUT", f"{LEASES}/b", build_lease("b", resourceVersion="x")), 400)
        load_body(await api("PUT", f"{LEASES}/b", build_lease("b", uid="u")), 409)
        load_body(await api("GET", f"{LEASES}/b"), 404)
        load_body(await api("PUT", f"{CONFIGMAPS}/a", build_configmap("a")), 404)


@on_virtual_time
async def test_a_put_that_would_create_requires_that_right_first() -> None:
    async with open_api() as api:
        verbs: list[str] = []

        def authorize(call: Call) -> None:
            def forbid(target: RequestInfo) -> None:
                verbs.append(target.verb)
                raise Forbidden("no right to create")

            call.guard = FakeGuard(on_require=forbid)

        guarded = Pipeline((authorize,), api._run)
        reply = await guarded(call(f"{LEASES}/a", method="PUT", body=orjson.dumps(build_lease("a"))))
        assert (reply.status, verbs) == (403, ["create"])
        load_body(await api("GET", f"{LEASES}/a"), 404)


@on_virtual_time
async def test_a_delete_that_takes_its_time_is_202_with_orphan_dependents() -> None:
    async with open_api() as api:
        for name, body, code in (
            ("a", {"orphanDependents": False}, 202),
            ("b", {"propagationPolicy": "Background"}, 200),
        ):
            held = build_gadget(name)
            held["metadata"]["finalizers"] = ["x.io/a"]
            await api("POST", GADGETS, held)
            load_body(await api("DELETE", f"{GADGETS}/{name}", body), code)
        await api("POST", GADGETS, build_gadget("c"))
        load_body(await api("DELETE", f"{GADGETS}/c", {"orphanDependents": False}), 200)


OBJECT_METADATA = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
LIST_METADATA = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"


@on_virtual_time
async def test_a_read_in_the_wrong_shape_fails_only_after_the_read() -> None:
    async with open_api() as api:
        await api("POST", GADGETS, build_gadget("a"))
        for path, accept, code in (
            (f"{GADGETS}/b", LIST_METADATA, 404),
            (f"{GADGETS}/a", LIST_METADATA, 400),
            ("/api/v1/namespaces/demo", LIST_METADATA, 406),
            (GADGETS, OBJECT_METADATA, 406),
        ):
            assert (await api("GET", path, accept=accept)).status == code
        assert (await api("GET", GADGETS, query="resourceVersion=x", accept=OBJECT_METADATA)).status == 400
        assert (await api("POST", GADGETS, build_gadget("b"), accept=LIST_METADATA)).status == 400
        load_body(await api("GET", f"{GADGETS}/b"), 404)


@on_virtual_time
async def test_a_list_as_a_merge_patch_is_rejected_in_one_way_or_the_other() -> None:
    async with open_api() as api:
        await api("POST", GADGETS, build_gadget("a"))
        for query, body, code in (
            ("", [], 400),
            ("fieldValidation=Ignore", [], 422),
            ("fieldValidation=Ignore", 5, 400),
        ):
            assert (await api("PATCH", f"{GADGETS}/a", body, query, content_type=MERGE)).status == code


@on_virtual_time
async def test_version_zero_is_no_version() -> None:
    async with open_api() as api:
        created = load_body(
            await api("POST", GADGETS, {**build_gadget("a"), "metadata": {"name": "a", "resourceVersion": "0"}}), 201
        )
        patch = {"metadata": {"resourceVersion": "0"}, "spec": {"size": 2}}
        status = load_body(await api("PATCH", f"{GADGETS}/a", patch, content_type=MERGE), 422)
        assert [cause["field"] for cause in status["details"]["causes"]] == ["metadata.resourceVersion"]
        assert load_body(await api("GET", f"{GADGETS}/a")) == created
        await api("POST", CONFIGMAPS, build_configmap("a"))
        load_body(
            await api("PATCH", f"{CONFIGMAPS}/a", {"metadata": {"resourceVersion": "0"}}, content_type=MERGE), 200
        )


@pytest.mark.parametrize(("version", "code"), [("1", 400), ("x", 201), ("0", 201), ("", 201)])
@on_virtual_time
async def test_a_new_object_has_no_version_yet(version: str, code: int) -> None:
    async with open_api() as api:
        body: Object = {**build_gadget("a"), "metadata": {"name": "a", "resourceVersion": version}}
        load_body(await api("POST", GADGETS, body), code)
        broken = {**body, "metadata": {**body["metadata"], "labels": {"-": ""}}}
        load_body(await api("POST", GADGETS, broken), 422)


@on_virtual_time
async def test_roles_own_the_empty_list_of_rules_that_they_were_sent() -> None:
    roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/demo/roles"
    async with open_api() as api:
        for name, sent, fields in (("a", {}, None), ("b", {"rules": None}, None), ("c", {"rules": []}, ["f:rules"])):
            body: Object = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": name}}
            body |= sent
            created = load_body(await api("POST", roles, body), 201)
            assert created["rules"] is None
            entries = created["metadata"].get("managedFields")
            assert (entries and list(entries[0]["fieldsV1"])) == fields
        again = load_body(await api("PATCH", f"{roles}/c", {"rules": []}, content_type=MERGE))
        assert again["metadata"]["resourceVersion"] == created["metadata"]["resourceVersion"]


@on_virtual_time
async def test_the_delete_of_a_service_account_returns_the_object_at_its_last_version() -> None:
    accounts = "/api/v1/namespaces/demo/serviceaccounts"
    async with open_api() as api:
        created = load_body(await api("POST", accounts, {"metadata": {"name": "robot"}}), 201)
        deleted = load_body(await api("DELETE", f"{accounts}/robot"), 200)
        assert (deleted["kind"], deleted["metadata"]["uid"]) == ("ServiceAccount", created["metadata"]["uid"])
        assert int(deleted["metadata"]["resourceVersion"]) > int(created["metadata"]["resourceVersion"])
        load_body(await api("GET", f"{accounts}/robot"), 404)


@on_virtual_time
async def test_applying_the_status_of_nothing_is_404_before_the_configuration_is_checked() -> None:
    config = {
        "apiVersion": "management.service.sh/v1",
        "kind": "Gadget",
        "metadata": {"name": "a"},
        "status": {"bogus": 1},
    }
    async with open_api() as api:
        path = f"{GADGETS}/a/status"
        apply = "application/apply-patch+yaml"
        load_body(await api("PATCH", path, config, "fieldManager=m", content_type=apply), 404)
