"""The objects that every installation has. Those that are missing are created at each start, but for templates.

There is one default template for each kind of instance, all called `default`. Members of a project with the role `user`
create instances from templates only, so without a template they could create nothing. All users may read these three,
because the templates of a project without `allowedTemplates` are those that the requester may get.

They are created once, at the first start. An annotation of the system namespace records that they are still to be
created, so a start that is interrupted is completed by the next one. After that, they belong to the administrators:
the server neither changes them nor creates them again. Installations that are older than this have no such annotation.
"""

from collections.abc import Iterator
from contextlib import suppress

from fairlead.admission.allow_lists import UNLISTED_CLUSTERS_ANNOTATION, USE_VERB_REQUIRED
from fairlead.authz.default_roles import ensure_default_roles
from fairlead.core.errors import AlreadyExists
from fairlead.core.objects import Object, annotations_of, metadata
from fairlead.domain import open_source_chart
from fairlead.domain.sleep_mode import SLEEP_AFTER
from fairlead.features.dynamic_config import ensure_config
from fairlead.kinds.core.namespace import BUILTIN_NAMESPACES, SYSTEM_NAMESPACE
from fairlead.kinds.instances.templates import (
    FALSE,
    SPACE_TEMPLATE,
    TRUE,
    TRUST_ANNOTATION,
    VIRTUAL_CLUSTER_TEMPLATE,
    WORKSPACE_TEMPLATE,
)
from fairlead.registry.codec import decode
from fairlead.registry.kind import Kind
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import server_write_options

DEFAULT_TEMPLATES_ANNOTATION = "service.sh/default-templates"
"""Annotation of the system namespace that records whether the default templates were created."""
PENDING = "pending"
CREATED = "created"
NAME = "default"
_CHART_VERSION_PARAMETER = {
    "variable": "version",
    "label": "Version of the chart",
    "defaultValue": open_source_chart.CHART_VERSION,
    "validation": r"^[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.]+)?$",
}
_STORAGE_PARAMETER = {
    "variable": "storage",
    "label": "Storage",
    "description": "Size of the volume for the objects of the virtual cluster, such as 5Gi.",
    "defaultValue": "5Gi",
    "validation": r"^[1-9][0-9]{0,5}(Mi|Gi|Ti)$",
}
_SLEEP_PARAMETER = {
    "variable": "sleepAfter",
    "label": "Sleep after",
    "description": "Seconds without requests after which it sleeps, such as 3600. Empty means never.",
    "validation": r"^([1-9][0-9]{0,9})?$",
}


async def ensure_default_objects(registry: Registry, api_group: str, *, update_roles: bool) -> None:
    await _ensure_namespaces(registry)
    await ensure_default_roles(registry, api_group, update=update_roles)
    await ensure_config(registry, api_group)
    await ensure_default_templates(registry, api_group)


async def _ensure_namespaces(registry: Registry) -> None:
    namespaces = registry.resource("", "namespaces")
    for name in BUILTIN_NAMESPACES:
        recorded = {UNLISTED_CLUSTERS_ANNOTATION: USE_VERB_REQUIRED, DEFAULT_TEMPLATES_ANNOTATION: PENDING}
        annotations = {"annotations": recorded} if name == SYSTEM_NAMESPACE else {}
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, **annotations}}
        try:
            await namespaces.create(body, "", server_write_options())
        except AlreadyExists:
            continue


async def ensure_default_templates(registry: Registry, api_group: str) -> None:
    """Creates the default templates of a new installation, once."""
    namespaces = registry.resource("", "namespaces")
    entry = namespaces.get_cached("", SYSTEM_NAMESPACE)
    if entry is None or _recorded_state(decode(entry)) != PENDING:
        return
    for kind, template in _default_templates(api_group):
        with suppress(AlreadyExists):  # another replica created it, or an interrupted start
            await registry.resource(api_group, kind.plural).create(template, "", server_write_options())
    await namespaces.modify("", SYSTEM_NAMESPACE, _record_created, server_write_options())


def _recorded_state(namespace: Object) -> str:
    return str(annotations_of(namespace).get(DEFAULT_TEMPLATES_ANNOTATION) or "")


def _record_created(namespace: Object) -> Object:
    meta = metadata(namespace)
    annotations = {**(meta.get("annotations") or {}), DEFAULT_TEMPLATES_ANNOTATION: CREATED}
    return {**namespace, "metadata": {**meta, "annotations": annotations}}


def _default_templates(api_group: str) -> Iterator[tuple[Kind, Object]]:
    # Not trusted: the settings for spaces without an administrator's template apply, such as the pod security level.
    space = {
        "displayName": "Empty space",
        "description": "A namespace without any further objects.",
        "template": {},
    }
    yield SPACE_TEMPLATE, _build_template(api_group, SPACE_TEMPLATE, FALSE, space)
    # Trusted, so that the chart is deployed with the stored credential of the cluster.
    virtual_cluster = {
        "displayName": "Virtual cluster",
        "description": "A Kubernetes API of its own in a namespace of the cluster, with the open-source chart.",
        "parameters": [_CHART_VERSION_PARAMETER, _STORAGE_PARAMETER, _SLEEP_PARAMETER],
        "template": {
            "instanceTemplate": {"metadata": {"annotations": {SLEEP_AFTER: "{{ parameters.sleepAfter }}"}}},
            "helmRelease": {
                "chart": {
                    "name": open_source_chart.CHART_NAME,
                    "repo": open_source_chart.CHART_REPOSITORY,
                    "version": "{{ parameters.version }}",
                },
                "values": open_source_chart.CHART_VALUES,
            },
        },
    }
    yield VIRTUAL_CLUSTER_TEMPLATE, _build_template(api_group, VIRTUAL_CLUSTER_TEMPLATE, TRUE, virtual_cluster)
    # Trusted, so that permissions that an administrator adds count as in other templates of administrators.
    workspace = {
        "displayName": "Workspace in a container",
        "description": "A workspace in a container on its runner.",
        "template": {"provider": {"name": "devcontainer"}},
    }
    yield WORKSPACE_TEMPLATE, _build_template(api_group, WORKSPACE_TEMPLATE, TRUE, workspace)


def _build_template(api_group: str, kind: Kind, trusted: str, spec: Object) -> Object:
    return {
        "apiVersion": f"{api_group}/v1",
        "kind": kind.name,
        "metadata": {"name": NAME, "annotations": {TRUST_ANNOTATION: trusted}},
        "spec": {**spec, "access": [{"users": ["*"], "verbs": ["get"]}]},
    }
