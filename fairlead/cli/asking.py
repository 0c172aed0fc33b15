"""Questions about permissions: what `fairlead key explain` and `fairlead who-can` have in common."""

from dataclasses import dataclass

from fairlead.cli.session import Session, WrongUsage, namespace_of
from fairlead.client import discovery
from fairlead.core.objects import Object


@dataclass(frozen=True, slots=True)
class Question:
    """May somebody do this? Either `resource` or `path` is set."""

    verb: str
    resource: str | None = None
    name: str | None = None
    namespace: str | None = None
    project: str | None = None
    path: str | None = None


def attributes(session: Session, question: Question) -> Object:
    """The part of an access review that says what is to be done."""
    if bool(question.resource) == bool(question.path):
        raise WrongUsage("ask about a resource or about a path: one of them, and not both")
    if question.namespace and question.project:
        raise WrongUsage("a project has one namespace; give --namespace or --project, not both")
    if question.path:
        if question.name or question.namespace or question.project:
            raise WrongUsage("a path has neither name nor namespace; leave them out")
        return {"nonResourceAttributes": {"path": question.path, "verb": question.verb}}
    found = discovery.find(session.client, question.resource or "")
    asked = {
        "verb": question.verb,
        "group": found.group,
        "resource": found.plural,
        "subresource": found.subresource,
        "name": question.name or "",
        "namespace": namespace_of(session, question.project) if question.project else question.namespace or "",
    }
    return {"resourceAttributes": {name: value for name, value in asked.items() if value}}


def in_words(asked: Object) -> str:
    """`create apps.management.service.sh in service-p-demo`."""
    if path := asked.get("nonResourceAttributes"):
        return f"{path['verb']} {path['path']}"
    of = asked["resourceAttributes"]
    resource = discovery.Resource(of.get("group", ""), of["resource"], of.get("subresource", ""))
    name = f" {of['name']}" if of.get("name") else ""
    place = f" in {of['namespace']}" if of.get("namespace") else ""
    return f"{of['verb']} {resource}{name}{place}"
