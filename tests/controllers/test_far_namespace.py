"""Whose a namespace is, and what becomes of answers that no Kubernetes gives."""

from typing import Any

import pytest

from fairlead.controllers.instances.remote_errors import Trouble, troubles
from fairlead.controllers.instances.remote_names import SPACE, VIRTUAL_CLUSTER, marks
from fairlead.controllers.instances.remote_namespace import Place, bind_roles, is_ours, make_namespace, remove_namespace
from fairlead.controllers.instances.remote_objects import FarObjects, parsed
from fairlead.core.errors import BadRequest
from fairlead.core.objects import Object
from fairlead.upstream.kube_client import FarError

PLACE = Place("c", "ns", marks(SPACE, "p", "one", "uid"))
OBJECTS = parsed("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}")


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
    of_space, of_virtual = (marks(kind, "p", "one", "uid") for kind in (SPACE, VIRTUAL_CLUSTER))
    assert is_ours(namespace(of_space), PLACE)
    assert not is_ours(namespace(of_virtual), PLACE)
    assert not is_ours(namespace(of_space), Place("c", "ns", of_virtual))
    assert not is_ours(namespace({**of_space, **of_virtual}), PLACE)


def test_a_namespace_is_known_again_under_another_name_and_project() -> None:
    assert is_ours(namespace(marks(SPACE, "other", "renamed", "uid")), PLACE)


@pytest.mark.parametrize("odd", ["x", ["x"], 7, [["x"]], True])
async def test_odd_answers_of_a_cluster_are_troubles(odd: Any) -> None:
    for labelled in (Odd(namespace(odd)), Odd({"metadata": odd}), Odd({"items": odd, "resources": odd})):
        for doing in (
            make_namespace(labelled, PLACE, {}),
            remove_namespace(labelled, PLACE),
            bind_roles(labelled, PLACE, ()),
            FarObjects(labelled, PLACE).apply(OBJECTS, ()),
        ):
            try:
                await doing
            except Trouble as trouble:
                assert trouble.reason in {"OddAnswer", "NamespaceTaken", "TemplateObjects"}


@pytest.mark.parametrize("resources", ["x", ["x"], [{"kind": "ConfigMap", "name": ["x"]}], [{"kind": "ConfigMap"}]])
async def test_an_odd_discovery_document_is_a_trouble(resources: Any) -> None:
    with pytest.raises(Trouble):
        await FarObjects(Odd({"resources": resources}), PLACE).apply(OBJECTS, ())


async def test_only_bindings_of_ours_are_removed_whatever_a_cluster_lists() -> None:
    listed = [{"metadata": {"name": name}} for name in ("theirs", "..", "service.sh:old")]
    api = Odd({"items": listed})
    await bind_roles(api, PLACE, ())
    assert api.deleted == ["/apis/rbac.authorization.k8s.io/v1/namespaces/ns/rolebindings/service.sh:old"]


@pytest.mark.parametrize("group", ["..", ".", "a..b", "-", "../api"])
def test_a_group_of_a_templates_object_is_no_detour(group: str) -> None:
    with pytest.raises(Trouble, match="no valid apiVersion"):
        parsed(f"apiVersion: {group}/v1\nkind: ConfigMap\nmetadata: {{name: x}}")


def test_a_request_that_cannot_be_made_is_a_trouble() -> None:
    with pytest.raises(Trouble, match="cannot make it") as caught, troubles("c", "make it"):
        raise BadRequest("the path has a `.` step")
    assert caught.value.reason == "BadRequest"


def test_words_of_a_cluster_are_cut_and_its_reason_is_one_word() -> None:
    with pytest.raises(Trouble) as caught, troubles("c", "make it"):
        raise FarError(422, "Two words\n", f"\x1b[1m{'x' * 5000}")
    assert caught.value.reason == "Refused"
    assert len(caught.value.message) < 700
    assert caught.value.message.isprintable()
