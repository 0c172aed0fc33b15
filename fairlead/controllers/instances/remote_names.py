"""How things are called that Fairlead makes in connected clusters, and the marks by which it knows them again. Pure."""

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
    """The text, or as much of it as fits with a hash of all of it behind, so that no two become one."""
    if len(text) <= limit:
        return text
    return f"{text[: limit - _HASH_LENGTH - 1].rstrip('-.')}-{_hash(text)}"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_HASH_LENGTH]


def default_namespace(kind: str, project: str, name: str) -> str:
    """A namespace of its own for every instance: `<project>-<name>`, with a `v` between for virtual clusters.

    Names with dashes would run into each other (`a` and `b-c`, `a-b` and `c`), and ones with dots or too many letters
    cannot stay as they are: those end in two dashes, which the others never have, and a hash of what they stand for.
    """
    text = "-".join((project, "v", name) if kind == VIRTUAL_CLUSTER else (project, name))
    if len(text) <= LABEL_LENGTH and _plain_part.fullmatch(project) and _plain_part.fullmatch(name):
        return text
    digest = hashlib.sha256("\n".join((kind, project, name)).encode()).hexdigest()[:_PAIR_HASH_LENGTH]
    return f"{text.replace('.', '-')[: LABEL_LENGTH - _PAIR_HASH_LENGTH - 2].rstrip('-')}--{digest}"


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
