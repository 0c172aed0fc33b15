"""Shared by `fairlead get`, `apply` and `delete`: which objects of any kind are meant, and in which namespaces."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from fairlead.cli.ui.completion import complete_targets
from fairlead.cli.ui.flags import NamespaceFlag, ProjectNamespaceFlag
from fairlead.cli.ui.session import Session, UsageError, project_namespace
from fairlead.client.discovery import ApiResource, list_resources, select_resource
from fairlead.core.objects import Object, get_path

NOUNS = {
    "appinstance": "appinstances",
    "environment": "devpodenvironmenttemplates",
    "key": "ownedaccesskeys",
    "preset": "devpodworkspacepresets",
    "space": "spaceinstances",
    "vcluster": "virtualclusterinstances",
    "vclustertemplate": "virtualclustertemplates",
    "workspace": "devpodworkspaceinstances",
    "workspacetemplate": "devpodworkspacetemplates",
}
"""The nouns of other commands, with the resources that they stand for."""

TargetsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        help="KIND, KIND NAME... or KIND/NAME...",
        metavar="KIND[/NAME]",
        show_default=False,
        autocompletion=complete_targets,
    ),
]


@dataclass(frozen=True, slots=True)
class NamespaceOptions:
    project: ProjectNamespaceFlag = None
    namespace: NamespaceFlag = None

    def resolve(self, session: Session) -> str:
        """The namespace of the flags; empty without them."""
        if self.project and self.namespace:
            raise UsageError("--namespace and --project are mutually exclusive; choose one")
        return project_namespace(session, self.project) if self.project else self.namespace or ""


@dataclass(frozen=True, slots=True)
class Target:
    """An object, or all objects of a resource if the name is empty."""

    resource: ApiResource
    name: str = ""
    namespace: str = ""

    @property
    def path(self) -> str:
        return self.resource.path(self.name, self.namespace)

    @property
    def label(self) -> str:
        return f"{self.resource.kind.lower()}/{self.name}"


def served_resources(session: Session) -> list[ApiResource]:
    return list(list_resources(session.client))


def parse_targets(session: Session, words: Sequence[str], namespace: str) -> list[Target]:
    """Parses `apps`, `apps,projects`, `app one two` and `app/one project/two`."""
    served = served_resources(session)

    def find(text: str) -> ApiResource:
        return select_resource(served, NOUNS.get(text.removesuffix("s"), text), session.client.group)

    if "" in words[1:]:
        raise UsageError("a name is empty; leave it out for all objects")
    if any("/" in each for each in words):
        pairs = list(_split_pairs(words))
    else:
        pairs = [(kind, name) for kind in words[0].split(",") for name in words[1:] or [""]]
    return [_build_target(find(kind), name, namespace) for kind, name in pairs]


def _split_pairs(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    for each in words:
        kind, slash, name = each.partition("/")
        if not kind or not slash or not name:
            raise UsageError(f"{each!r} is not in the form KIND/NAME, like app/nginx")
        yield kind, name


def _build_target(resource: ApiResource, name: str, namespace: str) -> Target:
    if name and resource.namespaced and not namespace:
        raise UsageError(f"{resource.plural} are in namespaces; add --project P, or --namespace NS")
    return Target(resource, name, namespace if resource.namespaced else "")


def object_namespace(resource: ApiResource, body: Object, namespace: str) -> str:
    """The namespace of a manifest: its own, else that of the flags."""
    own = str(get_path(body, "metadata.namespace") or "")
    if not resource.namespaced:
        return ""
    if own and namespace and own != namespace:
        raise UsageError(f"its metadata.namespace is {own}, which is not that of the flags, {namespace}")
    if not own and not namespace:
        raise UsageError("it needs a namespace; add --project P, or set metadata.namespace")
    return own or namespace
