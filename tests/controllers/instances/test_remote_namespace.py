"""Whose a namespace is, and what becomes of answers that no Kubernetes gives."""

from typing import Any

import pytest

from fairlead.controllers.instances.remote_errors import InstanceError, translate_errors
from fairlead.controllers.instances.remote_names import SPACE_LABEL, VIRTUAL_CLUSTER_LABEL, ownership_labels
from fairlead.controllers.instances.remote_namespace import (
    RemoteNamespace,
    bind_roles,
    delete_namespace,
    ensure_namespace,
    is_owned_by,
)
from fairlead.controllers.instances.remote_objects import RemoteObjects, parse_objects
from fairlead.core.errors import BadRequest
from fairlead.core.objects import Object
from fairlead.upstream.kube_client import RemoteApiError

PLACE = RemoteNamespace("c", "ns", ownership_labels(SPACE_LABEL, "p", "one", "uid"))
OBJECTS = parse_objects("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}")


class Odd:
    """Answers everything alike, whatever is asked."""

    def __init__(self, answer: Object) -> None:
        self.answer = answer
        self.deleted: list[str] = []

    async def get(self, path: str) -> Object:
        return self.answer

    async def create(self, path: str, body: Object) -> Object:
        return self.answer

    async def apply(self, path: str, body: Object) -> Object:
        return self.answer

    async def delete(self, path: str, body: Object | None = None) -> Object:
        self.deleted.append(path)
        return self.answer


def namespace(labels: Any) -> Object:
    return {"metadata": {"labels": labels}}


def test_a_uid_of_a_space_never_serves_a_virtual_cluster() -> None:
    of_space, of_virtual = (ownership_labels(kind, "p", "one", "uid") for kind in (SPACE_LABEL, VIRTUAL_CLUSTER_LABEL))
    assert is_owned_by(namespace(of_space), PLACE)
    assert not is_owned_by(namespace(of_virtual), PLACE)
    assert not is_owned_by(namespace(of_space), RemoteNamespace("c", "ns", of_virtual))
    assert not is_owned_by(namespace({**of_space, **of_virtual}), PLACE)


def test_a_namespace_is_known_again_under_another_name_and_project() -> None:
    assert is_owned_by(namespace(ownership_labels(SPACE_LABEL, "other", "renamed", "uid")), PLACE)


@pytest.mark.parametrize("odd", ["x", ["x"], 7, [["x"]], True])
async def test_odd_answers_of_a_cluster_are_troubles(odd: Any) -> None:
    for labelled in (Odd(namespace(odd)), Odd({"metadata": odd}), Odd({"items": odd, "resources": odd})):
        for doing in (
            ensure_namespace(labelled, PLACE, {}),
            delete_namespace(labelled, PLACE),
            bind_roles(labelled, PLACE, ()),
            RemoteObjects(labelled, PLACE).apply(OBJECTS, ()),
        ):
            try:
                await doing
            except InstanceError as trouble:
                assert trouble.reason in {"UnexpectedResponse", "NamespaceConflict", "InvalidTemplateObjects"}


@pytest.mark.parametrize("resources", ["x", ["x"], [{"kind": "ConfigMap", "name": ["x"]}], [{"kind": "ConfigMap"}]])
async def test_an_odd_discovery_document_is_a_trouble(resources: Any) -> None:
    with pytest.raises(InstanceError):
        await RemoteObjects(Odd({"resources": resources}), PLACE).apply(OBJECTS, ())


async def test_only_bindings_of_ours_are_removed_whatever_a_cluster_lists() -> None:
    listed = [{"metadata": {"name": name}} for name in ("theirs", "..", "service.sh:old")]
    api = Odd({"items": listed})
    await bind_roles(api, PLACE, ())
    assert api.deleted == ["/apis/rbac.authorization.k8s.io/v1/namespaces/ns/rolebindings/service.sh:old"]


@pytest.mark.parametrize("group", ["..", ".", "a..b", "-", "../api"])
def test_a_group_of_a_templates_object_is_no_detour(group: str) -> None:
    with pytest.raises(InstanceError, match="no valid apiVersion"):
        parse_objects(f"apiVersion: {group}/v1\nkind: ConfigMap\nmetadata: {{name: x}}")


def test_a_request_that_cannot_be_made_is_a_trouble() -> None:
    with pytest.raises(InstanceError, match="cannot make it") as caught, translate_errors("c", "make it"):
        raise BadRequest("the path has a `.` step")
    assert caught.value.reason == "BadRequest"


def test_words_of_a_cluster_are_cut_and_its_reason_is_one_word() -> None:
    with pytest.raises(InstanceError) as caught, translate_errors("c", "make it"):
        raise RemoteApiError(422, "Two words\n", f"\x1b[1m{'x' * 5000}")
    assert caught.value.reason == "Rejected"
    assert len(caught.value.message) < 700
    assert caught.value.message.isprintable()
