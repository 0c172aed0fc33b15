"""How things are called that Fairlead makes in connected clusters, and the marks by which it knows them again. Pure."""

import hashlib
import re
from collections.abc import Mapping

from fairlead.controllers.far_trouble import ERROR, Trouble
from fairlead.registry.names import LABEL_LENGTH, label_faults

MANAGED, FAIRLEAD = "service.sh/managed", "fairlead"
PROJECT, UID = "service.sh/project", "service.sh/uid"
SPACE, VIRTUAL_CLUSTER = "service.sh/space", "service.sh/virtual-cluster"

_HASH_LENGTH = 8
_placeholder = re.compile(r"\{\{[ \t]*([A-Za-z.]+)[ \t]*\}\}", re.ASCII)


def cut(text: str, limit: int = LABEL_LENGTH) -> str:
    """The text, or as much of it as fits with a hash of all of it behind, so that no two become one."""
    if len(text) <= limit:
        return text
    return f"{text[: limit - _HASH_LENGTH - 1].rstrip('-.')}-{_hash(text)}"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_HASH_LENGTH]


def default_namespace(*parts: str) -> str:
    """The parts with dashes between them. Names may have dots and namespaces may not: what had some gets a hash."""
    text = "-".join(parts)
    plain = text.replace(".", "-")
    return cut(plain if plain == text else f"{plain[: LABEL_LENGTH - _HASH_LENGTH - 1].rstrip('-')}-{_hash(text)}")


def patterned_namespace(pattern: str, values: Mapping[str, str]) -> str:
    """The namespace that a project's pattern makes, such as `team-{{ project }}-{{ name }}`. Raises Trouble."""
    unknown = [name for name in _placeholder.findall(pattern) if name not in values]
    if unknown:
        known = ", ".join(f"{{{{ {name} }}}}" for name in values)
        raise _bad_pattern(f"it uses {{{{ {unknown[0]} }}}}, and there are only {known}")
    name = cut(_placeholder.sub(lambda found: values[found[1]], pattern))
    for fault in label_faults(name):
        raise _bad_pattern(f'it makes "{name}", and a namespace\'s name {fault}')
    return name


def _bad_pattern(why: str) -> Trouble:
    mend = "have the project's spec.namespacePattern mended, or set spec.clusterRef.namespace"
    return Trouble("NamespacePattern", f"the pattern for namespaces cannot be used: {why}; {mend}", ERROR)


def marks(kind: str, project: str, name: str, uid: str) -> dict[str, str]:
    """The labels of a namespace that was made for an instance. By the uid it is known to be the very same one's, and
    not that of a namesake, an earlier one or one of another Fairlead."""
    return {MANAGED: FAIRLEAD, PROJECT: cut(project), kind: cut(name), UID: uid}
