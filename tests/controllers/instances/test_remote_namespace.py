"""Tests of `fairlead.controllers.instances.remote_namespace`: ownership of namespaces, and invalid responses."""

from typing import Any

import pytest

from fairlead.controllers.instances.remote_errors import InstanceError, translate_errors
from fairlead.controllers.instances.remote_namespace import (
    MAX_ITEMS,
    SPACE_LABEL,
    VIRTUAL_CLUSTER_LABEL,
    RemoteNamespace,
    delete_namespace,
    ensure_namespace,
    is_owned_by,
    list_items,
    ownership_labels,
)
from fairlead.controllers.instances.remote_objects import RemoteObjects, parse_objects
from fairlead.controllers.instances.role_bindings import bind_roles
from fairlead.core.errors import BadRequest
from fairlead.core.objects import Object
from fairlead.upstream.kube_client import RemoteApiError

REMOTE_NAMESPACE = RemoteNamespace("c", "ns", ownership_labels(SPACE_LABEL, "p", "one", "uid"))
OBJECTS = parse_objects("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}")


class FixedResponseApi:
    """Returns the same response to every request."""

    def __init__(self, response: Object) -> None:
        self.response = response
        self.deleted: list[str] = []

    async def get(self, path: str) -> Object:
        return self.response

    async def get_text(self, path: str) -> str:
        return str(self.response)

    async def create(self, path: str, body: Object) -> Object:
        return self.response

    async def apply(self, path: str, body: Object) -> Object:
        return self.response

    async def check_apply(self, path: str, body: Object) -> Object:
        return self.response

    async def patch(self, path: str, body: Object) -> Object:
        return self.response

    async def delete(self, path: str, body: Object | None = None) -> Object:
        self.deleted.append(path)
        return self.response


def build_namespace(labels: Any) -> Object:
    return {"metadata": {"labels": labels}}


def test_the_uid_of_a_space_does_not_match_a_virtual_cluster() -> None:
    space_labels, virtual_cluster_labels = (
        ownership_labels(kind, "p", "one", "uid") for kind in (SPACE_LABEL, VIRTUAL_CLUSTER_LABEL)
    )
    assert is_owned_by(build_namespace(space_labels), REMOTE_NAMESPACE)
    assert not is_owned_by(build_namespace(virtual_cluster_labels), REMOTE_NAMESPACE)
    assert not is_owned_by(build_namespace(space_labels), RemoteNamespace("c", "ns", virtual_cluster_labels))
    assert not is_owned_by(build_namespace({**space_labels, **virtual_cluster_labels}), REMOTE_NAMESPACE)


def test_ownership_does_not_depend_on_name_and_project() -> None:
    assert is_owned_by(build_namespace(ownership_labels(SPACE_LABEL, "other", "renamed", "uid")), REMOTE_NAMESPACE)


@pytest.mark.parametrize("invalid", ["x", ["x"], 7, [["x"]], True])
async def test_invalid_responses_of_a_cluster_are_errors(invalid: Any) -> None:
    for invalid_api in (
        FixedResponseApi(build_namespace(invalid)),
        FixedResponseApi({"metadata": invalid}),
        FixedResponseApi({"items": invalid, "resources": invalid}),
    ):
        for call in (
            ensure_namespace(invalid_api, REMOTE_NAMESPACE, {}),
            delete_namespace(invalid_api, REMOTE_NAMESPACE),
            bind_roles(invalid_api, REMOTE_NAMESPACE, ()),
            RemoteObjects(invalid_api, REMOTE_NAMESPACE).apply(OBJECTS, ()),
        ):
            try:
                await call
            except InstanceError as error:
                assert error.reason in {"UnexpectedResponse", "NamespaceConflict", "InvalidTemplateObjects"}


@pytest.mark.parametrize("resources", ["x", ["x"], [{"kind": "ConfigMap", "name": ["x"]}], [{"kind": "ConfigMap"}]])
async def test_an_invalid_discovery_document_is_an_error(resources: Any) -> None:
    with pytest.raises(InstanceError):
        await RemoteObjects(FixedResponseApi({"resources": resources}), REMOTE_NAMESPACE).apply(OBJECTS, ())


async def test_only_bindings_of_the_server_are_deleted_whatever_a_cluster_lists() -> None:
    listed = [{"metadata": {"name": name}} for name in ("theirs", "..", "service.sh:old")]
    api = FixedResponseApi({"items": listed})
    await bind_roles(api, REMOTE_NAMESPACE, ())
    assert api.deleted == ["/apis/rbac.authorization.k8s.io/v1/namespaces/ns/rolebindings/service.sh:old"]


@pytest.mark.parametrize("group", ["..", ".", "a..b", "-", "../api"])
def test_an_api_group_with_dot_segments_is_rejected(group: str) -> None:
    with pytest.raises(InstanceError, match="no valid apiVersion"):
        parse_objects(f"apiVersion: {group}/v1\nkind: ConfigMap\nmetadata: {{name: x}}")


def test_an_invalid_request_is_an_error_of_the_instance() -> None:
    with pytest.raises(InstanceError, match="cannot make it") as caught, translate_errors("c", "make it"):
        raise BadRequest("the path has a `.` step")
    assert caught.value.reason == "BadRequest"


def test_messages_of_a_cluster_are_truncated_and_its_reason_is_one_word() -> None:
    with pytest.raises(InstanceError) as caught, translate_errors("c", "make it"):
        raise RemoteApiError(422, "Two words\n", f"\x1b[1m{'x' * 5000}")
    assert caught.value.reason == "Rejected"
    assert len(caught.value.message) < 700
    assert caught.value.message.isprintable()


def test_a_list_of_more_objects_than_any_that_is_needed_is_an_unexpected_response() -> None:
    assert len(list_items({"items": [{}] * MAX_ITEMS}, "items")) == MAX_ITEMS
    with pytest.raises(InstanceError, match=f"items has more than {MAX_ITEMS} objects"):
        list_items({"items": [{}] * (MAX_ITEMS + 1)}, "items")
