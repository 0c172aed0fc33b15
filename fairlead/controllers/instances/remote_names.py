"""Names and labels of the objects that Fairlead creates in connected clusters. Pure."""

import hashlib
import re
from collections.abc import Mapping

from fairlead.controllers.instances.remote_errors import ERROR, Trouble
from fairlead.registry.names import LABEL_LENGTH, label_faults

MANAGED, FAIRLEAD = "service.sh/managed", "fairlead"
PROJECT, UID = "service.sh/project", "service.sh/uid"
SPACE, VIRTUAL_CLUSTER = "service.sh/space", "service.sh/virtual-cluster"

_HASH_LENGTH = 8
_PAIR_HASH_LENGTH = 10
_plain_part = re.compile(r"[a-z0-9]+", re.ASCII)
_placeholder = re.compile(r"\{\{[ \t]*([A-Za-z.]+)[ \t]*\}\}", re.ASCII)


def cut(text: str, limit: int = LABEL_LENGTH) -> str:
    """Truncates a text that is too long and appends a hash of the whole, so that results stay unique."""
    if len(text) <= limit:
        return text
    return f"{text[: limit - _HASH_LENGTH - 1].rstrip('-.')}-{_hash(text)}"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_HASH_LENGTH]


def default_namespace(kind: str, project: str, name: str) -> str:
    """A unique namespace for every instance: `<project>-<name>`, with a `v` between for virtual clusters.

    Names with dashes would be ambiguous (`a` and `b-c`, `a-b` and `c`), and names with dots or of excessive length are
    invalid. Those get a suffix of two dashes, which plain names never contain, and a hash.
    """
    text = "-".join((project, "v", name) if kind == VIRTUAL_CLUSTER else (project, name))
    if len(text) <= LABEL_LENGTH and _plain_part.fullmatch(project) and _plain_part.fullmatch(name):
        return text
    digest = hashlib.sha256("\n".join((kind, project, name)).encode()).hexdigest()[:_PAIR_HASH_LENGTH]
    return f"{text.replace('.', '-')[: LABEL_LENGTH - _PAIR_HASH_LENGTH - 2].rstrip('-')}--{digest}"


def patterned_namespace(pattern: str, values: Mapping[str, str]) -> str:
    """Expands a project's pattern, such as `team-{{ project }}-{{ name }}`. Raises InstanceError."""
    unknown = [name for name in _placeholder.findall(pattern) if name not in values]
    if unknown:
        known = ", ".join(f"{{{{ {name} }}}}" for name in values)
        raise _bad_pattern(f"it uses {{{{ {unknown[0]} }}}}, but only these are defined: {known}")
    name = cut(_placeholder.sub(lambda found: values[found[1]], pattern))
    for fault in label_faults(name):
        raise _bad_pattern(f'it expands to "{name}", but a namespace name {fault}')
    return name


def _bad_pattern(why: str) -> Trouble:
    advice = "fix the project's spec.namespacePattern, or set spec.clusterRef.namespace"
    return Trouble("NamespacePattern", f"the namespace pattern of the project cannot be used: {why}; {advice}", ERROR)


def marks(kind: str, project: str, name: str, uid: str) -> dict[str, str]:
    """The labels of the remote objects of an instance. The uid proves that they belong to this very instance, and not
    to another one of the same name, an earlier one, or one of another Fairlead installation."""
    return {MANAGED: FAIRLEAD, PROJECT: cut(project), kind: cut(name), UID: uid}
