"""Spaces and virtual clusters, where they have the same rules."""

from typing import Any

import pytest

from fairlead.core.objects import Object
from fairlead.registry.validate import Validator
from tests.harness.kind_examples import BY_NAME, cells, complaints, example, prepared

both = pytest.mark.parametrize("kind", ["SpaceInstance", "VirtualClusterInstance"])


def instance(kind: str, **spec: Any) -> Object:
    return example(kind, spec=spec)


@both
@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, []),
        ({"templateRef": {}, "clusterRef": {}}, []),
        ({"templateRef": {"name": "t"}, "template": {}}, []),
        ({"template": {"objects": "kind: Pod"}}, []),
        ({"templateRef": {"name": "t"}, "template": {"objects": "kind: Pod"}}, ["spec.template"]),
        ({"templateRef": {"name": "../t"}}, ["spec.templateRef.name"]),
        ({"templateRef": {"name": "T"}}, ["spec.templateRef.name"]),
        ({"owner": {"user": "ada", "team": "core"}}, ["spec.owner.team"]),
    ],
)
def test_the_rules_of_an_instance(kind: str, spec: Object, expected: list[str]) -> None:
    assert [field for field, _ in complaints(instance(kind, **spec))] == expected


@both
def test_a_place_is_settled_once(kind: str) -> None:
    old = instance(kind, clusterRef={"cluster": "berlin"})
    assert complaints(instance(kind, clusterRef={"cluster": "paris"}), old) == [
        ("spec.clusterRef.cluster", "FieldValueInvalid")
    ]
    assert complaints(instance(kind, clusterRef={"cluster": "berlin", "namespace": "n"}), old) == []
    assert complaints(old, instance(kind, clusterRef={"cluster": ""})) == []


@both
@pytest.mark.parametrize("sent", [{}, {"clusterRef": {}}, {"clusterRef": {"cluster": ""}}])
def test_a_place_stays_when_it_is_left_out(kind: str, sent: Object) -> None:
    settled = {"cluster": "berlin", "namespace": "n"}
    assert prepared(instance(kind, **sent), instance(kind, clusterRef=settled))["spec"]["clusterRef"] == settled


@both
def test_what_is_found_out_for_each_asker_is_not_stored(kind: str) -> None:
    old = example(kind, status={"phase": "Ready"})
    new = example(kind, status={"phase": "Ready", "canUse": True, "canUpdate": False})
    assert prepared(new, old, "status")["status"].keys().isdisjoint({"canUse", "canUpdate"})


@both
def test_tables_show_project_and_owner(kind: str) -> None:
    obj = instance(kind, owner={"team": "core"})
    obj["metadata"]["namespace"] = "service-p-web"
    assert cells(BY_NAME[kind], obj) == {"Project": "web", "Owner": "core"}


@both
def test_passwords_of_charts_are_hidden_in_spec_and_status(kind: str) -> None:
    rendered = {"SpaceInstance": "status.space", "VirtualClusterInstance": "status.virtualCluster"}[kind]
    assert {"spec.template.charts.password", f"{rendered}.charts.password"} <= set(BY_NAME[kind].write_only)


def test_the_identity_of_a_virtual_cluster_stays() -> None:
    old = example("VirtualClusterInstance", status={"serviceUID": "one"})
    assert prepared(example("VirtualClusterInstance", status={}), old, "status")["status"] == {"serviceUID": "one"}
    other = example("VirtualClusterInstance", status={"serviceUID": "two"})
    assert complaints(other, old, "status") == [("status.serviceUID", "FieldValueInvalid")]


@both
@pytest.mark.parametrize("name", ["n" * 54, "A", "a.b", "../a", "-a"])
def test_the_name_of_a_release_is_a_label_that_helm_takes(kind: str, name: str) -> None:
    place = {"cluster": "c", "namespace": "n"}
    [(field, _)] = complaints(instance(kind, clusterRef={**place, "virtualCluster": name}))
    assert field == "spec.clusterRef.virtualCluster"
    old = instance(kind, clusterRef={**place, "virtualCluster": name})
    assert complaints(old, old) == []
    assert complaints(instance(kind, clusterRef={**place, "virtualCluster": "n" * 53})) == []


IN_PLACE, FROM_TEMPLATE = {"template": {"helmRelease": {"values": "a: b"}}}, {"templateRef": {"name": "t"}}


@pytest.mark.parametrize(
    ("before", "after", "field"),
    [(IN_PLACE, FROM_TEMPLATE, "spec.templateRef.name"), (FROM_TEMPLATE, IN_PLACE, "spec.template")],
)
def test_a_deployed_chart_stays_with_the_rights_that_it_was_chosen_with(
    before: Object, after: Object, field: str
) -> None:
    settled, open_ = {"cluster": "c", "namespace": "n"}, {"cluster": "c"}
    old = instance("VirtualClusterInstance", clusterRef=settled, **before)
    new = instance("VirtualClusterInstance", clusterRef=settled, **after)
    assert complaints(new, old) == [(field, "FieldValueForbidden")]
    assert complaints(old, old) == []
    unsettled = instance("VirtualClusterInstance", clusterRef=open_, **before)
    assert complaints(instance("VirtualClusterInstance", clusterRef=open_, **after), unsettled) == []


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"clusterRef": {"namespace": "n" * 64}}, "spec.clusterRef.namespace"),
        ({"clusterRef": {"virtualCluster": "n" * 64}}, "spec.clusterRef.virtualCluster"),
        *(
            ({"template": {"helmRelease": {"chart": {part: "x" * 2049}}}}, f"spec.template.helmRelease.chart.{part}")
            for part in ("name", "repo", "version", "username")
        ),
    ],
)
def test_texts_that_become_arguments_and_paths_have_a_length(spec: Object, field: str) -> None:
    kind = BY_NAME["VirtualClusterInstance"]
    [problem] = Validator(kind.schema()).validate(instance(kind.name, **spec)).problems
    assert (problem.field, "may not be more than" in problem.message) == (field, True)
