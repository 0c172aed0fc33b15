"""Questions about permissions: what `fairlead key explain` and `fairlead who-can` have in common."""

from dataclasses import dataclass

from fairlead.cli.output import note
from fairlead.cli.session import Session, WrongUsage, namespace_of
from fairlead.client import discovery
from fairlead.core.objects import Object

PERMISSIONS = frozenset({"*", "bind", "escalate", "impersonate", "makeowner", "use"})
"""Verbs that no request has and that roles grant all the same."""


@dataclass(frozen=True, slots=True)
class Question:
    """May somebody do this? Either `resource` or `path` is set."""

    verb: str
    resource: str | None = None
    name: str | None = None
    namespace: str | None = None
    project: str | None = None
    path: str | None = None


@dataclass(frozen=True, slots=True)
class About:
    """A question as an access review puts it, and as people do: `create configmaps in service-p-demo`."""

    attributes: Object
    words: str


def about(session: Session, question: Question) -> About:
    """What is asked, once it makes sense. What looks like a slip is remarked on, as the answer would be a plain no."""
    if bool(question.resource) == bool(question.path):
        raise WrongUsage("ask about a resource or about a path: one of them, and not both")
    if question.namespace and question.project:
        raise WrongUsage("a project has one namespace; give --namespace or --project, not both")
    return _about_path(question) if question.path else _about_resource(session, question)


def _about_path(question: Question) -> About:
    if question.name or question.namespace or question.project:
        raise WrongUsage("a path has neither name nor namespace; leave them out")
    if not (question.path or "").startswith("/"):
        raise WrongUsage(f"{question.path!r} is no path; write it like /metrics, or ask about a resource")
    asked = {"path": question.path, "verb": question.verb}
    return About({"nonResourceAttributes": asked}, f"{question.verb} {question.path}")


def _about_resource(session: Session, question: Question) -> About:
    found = discovery.find(session.client, question.resource or "")
    namespace = namespace_of(session, question.project) if question.project else question.namespace or ""
    _remark(found, question.verb, namespace)
    asked = {
        "verb": question.verb,
        "group": found.group,
        "resource": found.plural,
        "subresource": found.subresource,
        "name": question.name or "",
        "namespace": namespace,
    }
    name = f" {question.name}" if question.name else ""
    place = f" in {namespace}" if namespace else " in all namespaces" if found.namespaced else ""
    given = {part: value for part, value in asked.items() if value}
    return About({"resourceAttributes": given}, f"{question.verb} {found}{name}{place}")


def _remark(found: discovery.Resource, verb: str, namespace: str) -> None:
    # What was taken at its word has no verbs, and a subresource has its own.
    if found.verbs and not found.subresource and verb not in found.verbs | PERMISSIONS:
        note(f"warning: {found} has no verb {verb!r}; it has {', '.join(sorted(found.verbs))}")
    if found.verbs and namespace and not found.namespaced:
        note(f"warning: {found} is in no namespace; ask without --namespace and --project")
