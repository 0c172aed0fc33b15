"""Names and labels of the objects that Fairlead creates in connected clusters. Pure."""

import hashlib
import re
from collections.abc import Mapping

from fairlead.controllers.instances.remote_errors import ERROR, InstanceError
from fairlead.kinds.clusters.runner import RUNNER_COMPONENT
from fairlead.kinds.core import server_objects
from fairlead.registry.names import MAX_LABEL_LENGTH, dns_label_errors

MANAGED_LABEL, MANAGED_VALUE = server_objects.MANAGED_LABEL, server_objects.MANAGED_VALUE
PROJECT_LABEL, UID_LABEL = "service.sh/project", "service.sh/uid"
SPACE_LABEL, VIRTUAL_CLUSTER_LABEL = "service.sh/space", "service.sh/virtual-cluster"
RUNNER_LABEL = RUNNER_COMPONENT.label

_HASH_LENGTH = 8
_PAIR_HASH_LENGTH = 10
_plain_name_pattern = re.compile(r"[a-z0-9]+", re.ASCII)
_placeholder_pattern = re.compile(r"\{\{[ \t]*([A-Za-z.]+)[ \t]*\}\}", re.ASCII)


def truncate_with_hash(text: str, limit: int = MAX_LABEL_LENGTH) -> str:
    """Truncates a text that is too long and appends a hash of the whole, so that results stay unique."""
    if len(text) <= limit:
        return text
    return f"{text[: limit - _HASH_LENGTH - 1].rstrip('-.')}-{_hash(text)}"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_HASH_LENGTH]


def default_namespace(kind_label: str, project: str, name: str) -> str:
    """A unique namespace for every instance: `<project>-<name>`, with a `v` between for virtual clusters.

    Names with dashes would be ambiguous (`a` and `b-c`, `a-b` and `c`), and names with dots or of excessive length are
    invalid. Those get a suffix of two dashes, which plain names never contain, and a hash.
    """
    text = "-".join((project, "v", name) if kind_label == VIRTUAL_CLUSTER_LABEL else (project, name))
    if len(text) <= MAX_LABEL_LENGTH and _plain_name_pattern.fullmatch(project) and _plain_name_pattern.fullmatch(name):
        return text
    digest = hashlib.sha256("\n".join((kind_label, project, name)).encode()).hexdigest()[:_PAIR_HASH_LENGTH]
    return f"{text.replace('.', '-')[: MAX_LABEL_LENGTH - _PAIR_HASH_LENGTH - 2].rstrip('-')}--{digest}"


def namespace_from_pattern(pattern: str, values: Mapping[str, str]) -> str:
    """Expands a project's pattern, such as `team-{{ project }}-{{ name }}`. Raises InstanceError."""
    unknown = [name for name in _placeholder_pattern.findall(pattern) if name not in values]
    if unknown:
        known = ", ".join(f"{{{{ {name} }}}}" for name in values)
        raise _bad_pattern(f"it uses {{{{ {unknown[0]} }}}}, but only these are defined: {known}")
    name = truncate_with_hash(_placeholder_pattern.sub(lambda found: values[found[1]], pattern))
    for fault in dns_label_errors(name):
        raise _bad_pattern(f'it expands to "{name}", but a namespace name {fault}')
    return name


def _bad_pattern(reason: str) -> InstanceError:
    advice = "fix the project's spec.namespacePattern, or set spec.clusterRef.namespace"
    return InstanceError(
        "InvalidNamespacePattern", f"the namespace pattern of the project cannot be used: {reason}; {advice}", ERROR
    )


def ownership_labels(kind_label: str, project: str, name: str, uid: str) -> dict[str, str]:
    """The labels of the remote objects of an instance, or of a runner, which has no project. The uid proves that they
    belong to this very object, and not to another one of the same name, an earlier one, or one of another Fairlead
    installation."""
    return {
        MANAGED_LABEL: MANAGED_VALUE,
        **({PROJECT_LABEL: truncate_with_hash(project)} if project else {}),
        kind_label: truncate_with_hash(name),
        UID_LABEL: uid,
    }
