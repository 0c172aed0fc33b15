"""server.discovery.openapi_v3: the documents that kubectl uses for validation, explain and apply."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from fairlead.kinds import KINDS
from fairlead.registry.kind import MANAGEMENT_GROUP, Action, Catalog, Kind, Sensitivity
from fairlead.registry.schema import array_map, obj, open_object, string
from fairlead.server.discovery.document import Document, build_reply
from fairlead.server.discovery.documents import build_documents
from fairlead.server.discovery.openapi_meta import OBJECT_META, OWNER_REFERENCE, shared_schemas
from fairlead.server.discovery.openapi_v3 import schema_name
from fairlead.server.discovery.resources import Subresource

CONDITIONS = array_map(("type",), obj("One condition.", type=string("Its type.")), "Conditions.")
PAIRS = array_map(("a", "b"), obj("A pair.", a=string("One."), b=string("Other.")), "Pairs.")
CHART = obj("The chart.", required=("name",), name=string("Name of the chart."), version=string("Its version."))
SPEC = obj("The desired state.", config=obj("How to install it.", chart=CHART))
STATUS = obj("The observed state.", conditions=CONDITIONS, history=obj("The past.", pairs=PAIRS, conditions=CONDITIONS))

APP = Kind(
    "App", "apps", False, {"spec": SPEC, "status": open_object("Anything.")}, "An app.", sensitivity=Sensitivity.NORMAL
)
CLUSTER = Kind(
    "Cluster",
    "clusters",
    False,
    {"status": STATUS},
    "A cluster.",
    status_subresource=True,
    sensitivity=Sensitivity.NORMAL,
)
WORKSPACE = Kind("Workspace", "workspaces", True, {"spec": SPEC}, "A workspace.", sensitivity=Sensitivity.NORMAL)
RUNNER = Kind("Runner", "runners", False, {}, "A runner.", sensitivity=Sensitivity.NORMAL)
ACCESS_KEY = Kind(
    "RunnerAccessKey",
    "runneraccesskeys",
    False,
    {"key": string("The key.")},
    "A key.",
    verbs=("get",),
    sensitivity=Sensitivity.CREDENTIAL,
)
TOKEN = Kind(
    "Token",
    "tokens",
    False,
    {"spec": SPEC},
    "A token.",
    verbs=("create",),
    persisted=False,
    sensitivity=Sensitivity.CREDENTIAL,
)
OWNER = Kind(
    "Owner", "owners", False, {}, "An owner.", actions=(Action("apps", ("get",), APP),), sensitivity=Sensitivity.NORMAL
)
READ_ONLY = Kind(
    "Report", "reports", False, {"spec": SPEC}, "A report.", verbs=("get", "list"), sensitivity=Sensitivity.NORMAL
)
NAMESPACE = Kind(
    "Namespace", "namespaces", False, {"status": STATUS}, "A namespace.", group="", sensitivity=Sensitivity.NORMAL
)
LEASE = Kind(
    "Lease", "leases", True, {"spec": SPEC}, "A lease.", group="coordination.k8s.io", sensitivity=Sensitivity.NORMAL
)
ROLE = Kind("Role", "roles", True, {}, "A role.", group="rbac.authorization.k8s.io", sensitivity=Sensitivity.NORMAL)

MANAGEMENT_KINDS = (APP, CLUSTER, WORKSPACE, RUNNER, TOKEN, OWNER, READ_ONLY)
CATALOG = Catalog((*MANAGEMENT_KINDS, NAMESPACE, LEASE, ROLE))
SUBRESOURCES = (Subresource(MANAGEMENT_GROUP, "runners", "accesskey", ACCESS_KEY, ("get",)),)
DOCUMENTS = build_documents(CATALOG, "/mount", version="0.1.0", subresources=SUBRESOURCES)

GROUP_PATH = f"/apis/{MANAGEMENT_GROUP}/v1"
INDEX_NAME = f"apis/{MANAGEMENT_GROUP}/v1"


def decode_document(document: Document) -> Any:
    return json.loads(document.variants[0].body)


MANAGEMENT = decode_document(DOCUMENTS[f"/openapi/v3{GROUP_PATH}"])
CORE = decode_document(DOCUMENTS["/openapi/v3/api/v1"])


def find_operation(path: str, method: str, document: Any = MANAGEMENT) -> Any:
    return document["paths"][path][method]


def find_schema(kind: Kind, document: Any = MANAGEMENT) -> Any:
    return document["components"]["schemas"][schema_name(kind)]


def list_actions(path: str) -> dict[str, str]:
    item = MANAGEMENT["paths"][path]
    return {method: operation["x-kubernetes-action"] for method, operation in item.items() if method != "parameters"}


def iterate_references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from (child for name, child in value.items() if name == "$ref")
        for child in value.values():
            yield from iterate_references(child)
    elif isinstance(value, list):
        for child in value:
            yield from iterate_references(child)


def test_the_index_names_each_document_below_the_api_root_by_its_hash():
    index = decode_document(DOCUMENTS["/openapi/v3"])["paths"]
    assert list(index) == ["api/v1", INDEX_NAME, "apis/coordination.k8s.io/v1", "apis/rbac.authorization.k8s.io/v1"]
    document = DOCUMENTS[f"/openapi/v3{GROUP_PATH}"]
    assert index[INDEX_NAME] == {"serverRelativeURL": f"/openapi/v3{GROUP_PATH}?hash={document.hash}"}


def test_a_document_requested_by_its_hash_is_immutable_and_an_old_hash_is_redirected():
    document = DOCUMENTS[f"/openapi/v3{GROUP_PATH}"]
    by_hash = build_reply(document, "application/json", query={"hash": [document.hash], "timeout": ["32s"]})
    assert "immutable" in dict(by_hash.headers)["Cache-Control"]
    by_old_hash = build_reply(document, "application/json", query={"hash": ["0123"]})
    assert (by_old_hash.status, dict(by_old_hash.headers)["Location"]) == (301, document.location)


def test_the_hash_changes_only_with_the_content():
    path = f"/openapi/v3{GROUP_PATH}"
    rebuilt = build_documents(CATALOG, "/mount", version="0.1.0", subresources=SUBRESOURCES)
    assert rebuilt[path].hash == DOCUMENTS[path].hash
    with_fewer_kinds = build_documents(Catalog(MANAGEMENT_KINDS), "/mount", version="0.1.0")
    assert with_fewer_kinds[path].hash != DOCUMENTS[path].hash


def test_the_operations_of_a_collection_and_of_an_object():
    assert list_actions(f"{GROUP_PATH}/apps") == {"get": "list", "post": "post", "delete": "deletecollection"}
    assert list_actions(f"{GROUP_PATH}/apps/{{name}}") == {
        "get": "get",
        "put": "put",
        "patch": "patch",
        "delete": "delete",
    }


def test_a_namespaced_kind_is_listed_over_all_namespaces_and_written_within_one():
    assert list_actions(f"{GROUP_PATH}/workspaces") == {"get": "list"}
    namespaced_path = f"{GROUP_PATH}/namespaces/{{namespace}}/workspaces"
    assert list_actions(namespaced_path) == {"get": "list", "post": "post", "delete": "deletecollection"}
    parameters = MANAGEMENT["paths"][f"{namespaced_path}/{{name}}"]["parameters"]
    assert [parameter["name"] for parameter in parameters if parameter["in"] == "path"] == ["name", "namespace"]


def test_verbs_that_a_kind_does_not_support_are_not_documented():
    assert list_actions(f"{GROUP_PATH}/tokens") == {"post": "post"}
    assert f"{GROUP_PATH}/tokens/{{name}}" not in MANAGEMENT["paths"]
    assert list_actions(f"{GROUP_PATH}/reports/{{name}}") == {"get": "get"}
    query = {parameter["name"] for parameter in find_operation(f"{GROUP_PATH}/reports", "get")["parameters"]}
    assert "limit" in query
    assert "watch" not in query


def test_subresources_have_paths_and_schemas():
    assert list_actions(f"{GROUP_PATH}/clusters/{{name}}/status") == {"get": "get", "put": "put", "patch": "patch"}
    key = find_operation(f"{GROUP_PATH}/runners/{{name}}/accesskey", "get")
    assert key["x-kubernetes-group-version-kind"]["kind"] == "RunnerAccessKey"
    assert "key" in find_schema(ACCESS_KEY)["properties"]


def test_an_operation_names_its_kind():
    expected = {"group": MANAGEMENT_GROUP, "version": "v1", "kind": "App"}
    assert find_operation(f"{GROUP_PATH}/apps/{{name}}", "get")["x-kubernetes-group-version-kind"] == expected


@pytest.mark.parametrize(("path", "method"), [("apps", "post"), ("apps/{name}", "put"), ("apps/{name}", "patch")])
def test_writes_have_field_validation_so_that_kubectl_uses_server_side_validation(path, method):
    query = {parameter["name"] for parameter in find_operation(f"{GROUP_PATH}/{path}", method)["parameters"]}
    assert query >= {"fieldValidation", "fieldManager", "dryRun"}


def test_strategic_merge_patch_is_documented_for_kubernetes_kinds_only():
    management_types = ["application/apply-patch+yaml", "application/json-patch+json", "application/merge-patch+json"]
    assert list(find_operation(f"{GROUP_PATH}/apps/{{name}}", "patch")["requestBody"]["content"]) == management_types
    core_types = find_operation("/api/v1/namespaces/{name}", "patch", CORE)["requestBody"]["content"]
    assert list(core_types) == [*management_types, "application/strategic-merge-patch+json"]


def test_the_documented_patch_types_can_be_chosen():
    documents = build_documents(CATALOG, types=lambda kind: ("application/merge-patch+json",))
    patch = find_operation(
        f"{GROUP_PATH}/apps/{{name}}", "patch", decode_document(documents[f"/openapi/v3{GROUP_PATH}"])
    )
    assert list(patch["requestBody"]["content"]) == ["application/merge-patch+json"]


def test_merge_keys_are_documented_where_strategic_merge_patch_is_supported():
    status = find_schema(NAMESPACE, CORE)["properties"]["status"]["properties"]
    for conditions in (status["conditions"], status["history"]["properties"]["conditions"]):
        assert conditions["x-kubernetes-patch-merge-key"] == "type"
        assert conditions["x-kubernetes-patch-strategy"] == "merge"
    assert "x-kubernetes-patch-merge-key" not in status["history"]["properties"]["pairs"]
    assert (
        "x-kubernetes-patch-merge-key" not in find_schema(CLUSTER)["properties"]["status"]["properties"]["conditions"]
    )


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (APP, "sh.service.management.v1.App"),
        (NAMESPACE, "io.k8s.api.core.v1.Namespace"),
        (LEASE, "io.k8s.api.coordination.v1.Lease"),
        (ROLE, "io.k8s.api.rbac.v1.Role"),
    ],
)
def test_schema_names_have_the_reversed_domain(kind, name):
    assert schema_name(kind) == name


def test_the_schema_of_a_kind_has_its_fields_and_the_shared_metadata():
    app = find_schema(APP)
    assert app["x-kubernetes-group-version-kind"] == [{"group": MANAGEMENT_GROUP, "version": "v1", "kind": "App"}]
    assert list(app["properties"]) == ["apiVersion", "kind", "metadata", "spec", "status"]
    assert app["properties"]["spec"] == SPEC
    assert app["properties"]["metadata"]["allOf"] == [{"$ref": f"#/components/schemas/{OBJECT_META}"}]


def test_explain_finds_nested_fields():
    chart = find_schema(APP)["properties"]["spec"]["properties"]["config"]["properties"]["chart"]
    assert chart["properties"]["name"]["description"] == "Name of the chart."


def test_a_list_has_a_schema_only_where_the_kind_can_be_listed():
    list_schema = MANAGEMENT["components"]["schemas"][f"{schema_name(APP)}List"]
    assert list_schema["x-kubernetes-group-version-kind"][0]["kind"] == "AppList"
    assert list_schema["properties"]["items"]["items"] == {"$ref": f"#/components/schemas/{schema_name(APP)}"}
    assert f"{schema_name(TOKEN)}List" not in MANAGEMENT["components"]["schemas"]


def test_every_shared_field_has_a_description():
    for name, schema in shared_schemas().items():
        assert schema["description"], name
        for field, field_schema in schema.get("properties", {}).items():
            assert field_schema.get("description"), f"{name}.{field}"


def test_a_kind_that_is_not_persisted_has_one_operation_and_no_list():
    paths = [path for path in MANAGEMENT["paths"] if "/tokens" in path]
    assert paths == [f"{GROUP_PATH}/tokens"]
    assert list_actions(paths[0]) == {"post": "post"}
    create = find_operation(paths[0], "post")
    assert "Nothing is stored" in create["description"]
    assert {parameter["name"] for parameter in create["parameters"]} == {"dryRun", "fieldManager", "fieldValidation"}
    assert f"{schema_name(TOKEN)}List" not in MANAGEMENT["components"]["schemas"]


def test_an_action_that_lists_objects_returns_a_list():
    list_apps = find_operation(f"{GROUP_PATH}/owners/{{name}}/apps", "get")
    content = list_apps["responses"]["200"]["content"]["application/json"]["schema"]
    assert content == {"$ref": f"#/components/schemas/{schema_name(APP)}List"}
    assert list_apps["description"] == "List all App objects that belong to the object."


def test_owner_references_merge_by_uid():
    owners = shared_schemas()[OBJECT_META]["properties"]["ownerReferences"]
    assert owners["items"] == {"$ref": f"#/components/schemas/{OWNER_REFERENCE}"}
    assert owners["x-kubernetes-list-map-keys"] == ["uid"]
    assert owners["x-kubernetes-patch-merge-key"] == "uid"


def test_the_document_names_the_server_url():
    assert MANAGEMENT["openapi"] == "3.0.0"
    assert MANAGEMENT["servers"] == [{"url": "/mount"}]
    assert MANAGEMENT["info"] == {"title": "Fairlead", "version": "0.1.0"}


def build_product_documents() -> list[Any]:
    product = build_documents(Catalog(KINDS))
    return [decode_document(document) for path, document in product.items() if path.startswith("/openapi/v3/")]


def test_every_reference_has_a_schema():
    for document in (*build_product_documents(), MANAGEMENT, CORE):
        names = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
        assert set(iterate_references(document)) <= names


def test_operation_ids_are_unique():
    for document in (*build_product_documents(), MANAGEMENT, CORE):
        operations = [
            operation
            for item in document["paths"].values()
            for operation in item.values()
            if isinstance(operation, dict)
        ]
        ids = [operation["operationId"] for operation in operations]
        assert len(ids) == len(set(ids)) > 0
