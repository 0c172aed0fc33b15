"""kinds/instances/remote_instances.py: validation of space and virtual cluster instances."""

from typing import Any

import pytest

from fairlead.core.objects import Object
from fairlead.registry.validate import Validator
from tests.harness.kind_examples import BY_NAME, apply_defaults, build_example, computed_cells, problem_reasons

both_kinds = pytest.mark.parametrize("kind", ["SpaceInstance", "VirtualClusterInstance"])


def build_instance(kind: str, **spec: Any) -> Object:
    return build_example(kind, spec=spec)


@both_kinds
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
def test_instances_are_validated(kind: str, spec: Object, expected: list[str]) -> None:
    assert [field for field, _ in problem_reasons(build_instance(kind, **spec))] == expected


@both_kinds
def test_the_cluster_can_be_set_once(kind: str) -> None:
    old = build_instance(kind, clusterRef={"cluster": "berlin"})
    assert problem_reasons(build_instance(kind, clusterRef={"cluster": "paris"}), old) == [
        ("spec.clusterRef.cluster", "FieldValueInvalid")
    ]
    assert problem_reasons(build_instance(kind, clusterRef={"cluster": "berlin", "namespace": "n"}), old) == []
    assert problem_reasons(old, build_instance(kind, clusterRef={"cluster": ""})) == []


@both_kinds
@pytest.mark.parametrize("sent", [{}, {"clusterRef": {}}, {"clusterRef": {"cluster": ""}}])
def test_an_update_without_the_cluster_keeps_it(kind: str, sent: Object) -> None:
    deployed = {"cluster": "berlin", "namespace": "n"}
    assert (
        apply_defaults(build_instance(kind, **sent), build_instance(kind, clusterRef=deployed))["spec"]["clusterRef"]
        == deployed
    )


@both_kinds
def test_per_user_status_fields_are_not_stored(kind: str) -> None:
    old = build_example(kind, status={"phase": "Ready"})
    new = build_example(kind, status={"phase": "Ready", "canUse": True, "canUpdate": False})
    assert apply_defaults(new, old, "status")["status"].keys().isdisjoint({"canUse", "canUpdate"})


@both_kinds
def test_tables_show_project_and_owner(kind: str) -> None:
    obj = build_instance(kind, owner={"team": "core"})
    obj["metadata"]["namespace"] = "service-p-web"
    assert computed_cells(BY_NAME[kind], obj) == {"Project": "web", "Owner": "core"}


@both_kinds
def test_passwords_of_charts_are_write_only_in_spec_and_status(kind: str) -> None:
    rendered = {"SpaceInstance": "status.space", "VirtualClusterInstance": "status.virtualCluster"}[kind]
    assert {"spec.template.charts.password", f"{rendered}.charts.password"} <= set(BY_NAME[kind].write_only)


def test_the_uid_of_a_virtual_cluster_is_immutable() -> None:
    old = build_example("VirtualClusterInstance", status={"serviceUID": "one"})
    assert apply_defaults(build_example("VirtualClusterInstance", status={}), old, "status")["status"] == {
        "serviceUID": "one"
    }
    other = build_example("VirtualClusterInstance", status={"serviceUID": "two"})
    assert problem_reasons(other, old, "status") == [("status.serviceUID", "FieldValueInvalid")]


@both_kinds
@pytest.mark.parametrize("name", ["n" * 54, "A", "a.b", "../a", "-a"])
def test_the_release_name_must_be_valid_for_helm(kind: str, name: str) -> None:
    cluster_ref = {"cluster": "c", "namespace": "n"}
    [(field, _)] = problem_reasons(build_instance(kind, clusterRef={**cluster_ref, "virtualCluster": name}))
    assert field == "spec.clusterRef.virtualCluster"
    old = build_instance(kind, clusterRef={**cluster_ref, "virtualCluster": name})
    assert problem_reasons(old, old) == []
    assert problem_reasons(build_instance(kind, clusterRef={**cluster_ref, "virtualCluster": "n" * 53})) == []


INLINE, FROM_TEMPLATE = {"template": {"helmRelease": {"values": "a: b"}}}, {"templateRef": {"name": "t"}}


@pytest.mark.parametrize(
    ("before", "after", "field"),
    [(INLINE, FROM_TEMPLATE, "spec.templateRef.name"), (FROM_TEMPLATE, INLINE, "spec.template")],
)
def test_a_deployed_instance_cannot_change_between_inline_and_referenced_template(
    before: Object, after: Object, field: str
) -> None:
    deployed, unscheduled = {"cluster": "c", "namespace": "n"}, {"cluster": "c"}
    old = build_instance("VirtualClusterInstance", clusterRef=deployed, **before)
    new = build_instance("VirtualClusterInstance", clusterRef=deployed, **after)
    assert problem_reasons(new, old) == [(field, "FieldValueForbidden")]
    assert problem_reasons(old, old) == []
    old_unscheduled = build_instance("VirtualClusterInstance", clusterRef=unscheduled, **before)
    assert (
        problem_reasons(build_instance("VirtualClusterInstance", clusterRef=unscheduled, **after), old_unscheduled)
        == []
    )


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
def test_strings_used_as_arguments_and_paths_have_length_limits(spec: Object, field: str) -> None:
    kind = BY_NAME["VirtualClusterInstance"]
    [problem] = Validator(kind.schema()).validate(build_instance(kind.name, **spec)).problems
    assert (problem.field, "may not be more than" in problem.message) == (field, True)
