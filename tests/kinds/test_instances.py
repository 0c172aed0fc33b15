"""What must hold for every kind of instance, and for the lists of kinds that cannot be derived from `KINDS`."""

import pytest

from fairlead.authz.scope.compiled import GATEWAY_RESOURCES
from fairlead.cli.resources import cluster_remove, space, vcluster, workspace
from fairlead.kinds import CLUSTER_INSTANCES, DELETION_ORDER, INSTANCES, KINDS
from fairlead.kinds.projects.project import PROJECT
from fairlead.registry.kind import Kind
from tests.kinds.test_declarations import declared

BY_PLURAL = {kind.plural: kind for kind in KINDS}
every_instance = pytest.mark.parametrize("plural", INSTANCES)


def has_template(kind: Kind) -> bool:
    return kind.namespaced and declared(kind, "spec.templateRef.name")


def test_every_kind_with_a_template_is_declared_as_an_instance() -> None:
    forgotten = [kind.name for kind in KINDS if has_template(kind) and kind.instance is None]
    assert not forgotten, f"set `instance` of {forgotten}, or project members cannot create them"


def test_every_kind_of_instance_has_a_place_in_the_order_of_deletion() -> None:
    forgotten = INSTANCES.keys() - set(DELETION_ORDER)
    assert not forgotten, f"add {forgotten} to DELETION_ORDER in fairlead/kinds/__init__.py"
    assert len(DELETION_ORDER) == len(INSTANCES), "DELETION_ORDER names a kind twice, or one that is no instance"


def test_every_instance_in_a_cluster_has_a_gateway_and_is_known_to_scopes() -> None:
    forgotten = CLUSTER_INSTANCES.keys() - set(GATEWAY_RESOURCES.values())
    assert not forgotten, (
        f"add {forgotten} to GATEWAY_RESOURCES and to the entries of a scope in authz/scope/compiled.py"
    )


@every_instance
def test_an_instance_names_its_templates_and_the_field_that_shows_them(plural: str) -> None:
    kind, instance = BY_PLURAL[plural], INSTANCES[plural]
    assert BY_PLURAL[instance.templates].name == instance.template_kind
    assert declared(kind, f"status.{instance.rendered_field}")
    assert f"status.{instance.rendered_field}" in kind.redacted_paths, "a rendered template may contain passwords"
    assert declared(kind, "spec.clusterRef.cluster") or not instance.in_cluster


@every_instance
def test_what_an_instance_uses_is_checked_against_the_allow_lists_of_its_project(plural: str) -> None:
    kind = BY_PLURAL[plural]
    paths = {field.path for field in kind.allow_list_fields}
    assert "spec.templateRef.name" in paths, f"add the template to `allow_list_fields` of {kind.name}"
    if INSTANCES[plural].in_cluster:
        assert "spec.clusterRef.cluster" in paths, f"add the cluster to `allow_list_fields` of {kind.name}"
        assert kind.has_protected_status, f"set `has_protected_status` of {kind.name}: only the server knows its state"


def test_fields_under_allow_lists_exist_and_so_do_the_lists() -> None:
    fields = [(kind, field) for kind in KINDS for field in kind.allow_list_fields]
    assert [field.path for kind, field in fields if not declared(kind, field.path)] == []
    assert [field.allow_list for _, field in fields if not declared(PROJECT, f"spec.{field.allow_list}")] == []


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.has_protected_status], ids=lambda kind: kind.name)
def test_a_protected_status_is_one_that_can_be_written(kind: Kind) -> None:
    assert kind.status_subresource


def test_the_command_line_knows_every_kind_of_instance() -> None:
    groups = (space.SPACES, vcluster.VIRTUAL_CLUSTERS, workspace.WORKSPACES)
    known = {each.plural: (each.kind, each.noun) for each in groups}
    assert known == {plural: (BY_PLURAL[plural].name, each.noun) for plural, each in INSTANCES.items()}


def test_removing_a_cluster_from_the_command_line_names_every_kind_of_instance_in_it() -> None:
    expected = {plural: each.noun for plural, each in CLUSTER_INSTANCES.items()}
    assert dict(cluster_remove.INSTANCE_RESOURCES) == expected, "update INSTANCE_RESOURCES in cli/resources"
