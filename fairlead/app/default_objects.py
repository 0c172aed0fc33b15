"""The objects that every installation has. What is missing is created at each start."""

from fairlead.admission.allow_lists import UNLISTED_CLUSTERS_ANNOTATION, USE_VERB_REQUIRED
from fairlead.app.default_templates import DEFAULT_TEMPLATES_ANNOTATION, PENDING, ensure_default_templates
from fairlead.authz.default_roles import ensure_default_roles
from fairlead.core.errors import AlreadyExists
from fairlead.features.dynamic_config import ensure_config
from fairlead.kinds.core.namespace import BUILTIN_NAMESPACES, SYSTEM_NAMESPACE
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import server_write_options


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
