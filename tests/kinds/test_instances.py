"""Rules that every kind of instance must obey, and the lists of kinds that cannot be derived from `KINDS`."""

import pytest

from fairlead.authz.scope.compiled import GATEWAY_RESOURCES
from fairlead.cli.resources import app_instance, cluster, cluster_instance, workspace
from fairlead.kinds import CLUSTER_INSTANCES, DELETION_ORDER, INSTANCES, KINDS, TEMPLATE_INSTANCES
from fairlead.kinds.projects.project import PROJECT
from fairlead.registry.kind import Kind
from tests.kinds.schema_fields import is_declared

BY_PLURAL = {kind.plural: kind for kind in KINDS}
each_instance = pytest.mark.parametrize("plural", TEMPLATE_INSTANCES)


def has_template(kind: Kind) -> bool:
    return kind.namespaced and is_declared(kind, "spec.templateRef.name")


def test_every_kind_with_a_template_is_declared_as_an_instance() -> None:
    missing = [kind.name for kind in KINDS if has_template(kind) and kind.instance is None]
    assert not missing, f"set `instance` of {missing}, or project members cannot create them"


def test_every_instance_kind_is_in_the_deletion_order() -> None:
    missing = INSTANCES.keys() - set(DELETION_ORDER)
    assert not missing, f"add {missing} to DELETION_ORDER in fairlead/kinds/__init__.py"
    assert len(DELETION_ORDER) == len(INSTANCES), "DELETION_ORDER names a kind twice, or one that is not an instance"


def test_every_cluster_instance_has_a_gateway_and_a_scope_field() -> None:
    missing = CLUSTER_INSTANCES.keys() - set(GATEWAY_RESOURCES.values())
    assert not missing, f"add {missing} to GATEWAY_RESOURCES and to the entries of a scope in authz/scope/compiled.py"


@each_instance
def test_an_instance_declares_its_templates_and_the_field_that_renders_them(plural: str) -> None:
    kind, instance = BY_PLURAL[plural], INSTANCES[plural]
    assert BY_PLURAL[instance.templates].name == instance.template_kind
    assert is_declared(kind, f"status.{instance.rendered_field}")
    assert f"status.{instance.rendered_field}" in kind.redacted_paths, "a rendered template may contain passwords"
    assert is_declared(kind, "spec.clusterRef.cluster") or not instance.in_cluster


@each_instance
def test_templates_and_clusters_of_an_instance_are_checked_against_allow_lists(plural: str) -> None:
    kind = BY_PLURAL[plural]
    paths = {field.path for field in kind.allow_list_fields}
    assert "spec.templateRef.name" in paths, f"add the template to `allow_list_fields` of {kind.name}"
    if INSTANCES[plural].in_cluster:
        assert "spec.clusterRef.cluster" in paths, f"add the cluster to `allow_list_fields` of {kind.name}"
        assert kind.has_protected_status, f"set `has_protected_status` of {kind.name}: only the server knows its state"


def test_allow_list_fields_and_their_lists_exist() -> None:
    fields = [(kind, field) for kind in KINDS for field in kind.allow_list_fields]
    assert [field.path for kind, field in fields if not is_declared(kind, field.path)] == []
    assert [field.allow_list for _, field in fields if not is_declared(PROJECT, f"spec.{field.allow_list}")] == []


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.has_protected_status], ids=lambda kind: kind.name)
def test_a_protected_status_is_a_subresource(kind: Kind) -> None:
    assert kind.status_subresource


def test_the_cli_knows_every_instance_kind() -> None:
    groups = (
        app_instance.APP_INSTANCES,
        cluster_instance.SPACES,
        cluster_instance.VIRTUAL_CLUSTERS,
        workspace.WORKSPACES,
    )
    known = {each.plural: (each.kind, each.noun) for each in groups}
    assert known == {plural: (BY_PLURAL[plural].name, each.noun) for plural, each in INSTANCES.items()}


def test_deleting_a_cluster_in_the_cli_lists_every_instance_kind_in_it() -> None:
    expected = {plural: each.noun for plural, each in CLUSTER_INSTANCES.items()}
    known = {plural: noun for plural, (noun, _) in cluster.INSTANCE_RESOURCES.items()}
    assert known == expected, "update INSTANCE_RESOURCES in cli/resources"
