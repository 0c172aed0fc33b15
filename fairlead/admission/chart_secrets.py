"""The writer of a reference to a project secret, in the chart of an App or template, needs `use` on the secret.

The value is sent to the repository that the chart names. So who writes a reference, or changes the repository beside
one, is recorded in an annotation, which only this rule sets (`domain/chart_secrets.py`), and is checked again before
each deployment. A reference without a project, in an App or template, means the project of the instance, which is not
known here: then the writer is checked at deployment only. Other changes of the object do not make their author the
writer: no one vouches for a repository that they have not written.
"""

from collections.abc import Iterator

from fairlead.admission import Rule, applies_to, forbidden, invalid, is_resource
from fairlead.admission.secret_references import writer_name
from fairlead.core.call import Authorize, RequestInfo
from fairlead.core.errors import Problem
from fairlead.core.objects import Object, metadata
from fairlead.core.user import CONTROLLER_USER
from fairlead.domain.chart_secrets import ChartSecretReference, find_app_references, find_template_references
from fairlead.domain.secret_references import PROJECT_SECRETS, SecretConsent, read_consent, write_consent
from fairlead.kinds import CLUSTER_INSTANCES, TEMPLATE_INSTANCES
from fairlead.kinds.clusters.app import APP
from fairlead.registry.kind import Change
from fairlead.registry.registry import Registry

_INSTANCES = tuple(plural for plural in TEMPLATE_INSTANCES if plural in CLUSTER_INSTANCES)
_TEMPLATES = tuple(TEMPLATE_INSTANCES[plural].templates for plural in _INSTANCES)


def record_chart_secret_writers(authorize: Authorize, api_group: str, namespace_prefix: str) -> Rule:
    """Checks and records the writers of references in charts. `namespace_prefix` is that of project namespaces."""
    plurals = (APP.plural, *_TEMPLATES, *_INSTANCES)

    @applies_to(lambda kind, verb: verb != "delete" and is_resource(kind, api_group, *plurals))
    async def rule(change: Change, registry: Registry) -> None:
        if change.subresource or change.user == CONTROLLER_USER or change.new is None or change.problems:
            return
        if change.is_move:
            return  # it changes nothing of the spec
        references = list(_find_references(change, change.obj))
        known = {each.digest for each in _find_references(change, change.old)} if references else set()
        recorded = read_consent(change.old).writers if references else {}
        writers: dict[str, str] = {}
        for reference in references:
            if reference.digest not in known:
                _check(change, authorize, reference, namespace_prefix)
                writers[reference.digest] = writer_name(change.user)
            elif reference.digest in recorded:
                writers[reference.digest] = recorded[reference.digest]
        write_consent(change.obj, SecretConsent(writers=writers))

    return rule


def _find_references(change: Change, obj: Object | None) -> Iterator[ChartSecretReference]:
    return find_app_references(obj) if change.kind.plural == APP.plural else find_template_references(obj)


def _check(change: Change, authorize: Authorize, reference: ChartSecretReference, namespace_prefix: str) -> None:
    """Raises Invalid or Forbidden."""
    if not reference.is_literal:
        detail = "neither the secret nor the repository of a chart with such a reference may have placeholders"
        problem = Problem.forbidden(reference.path, detail)
        raise invalid(change, problem)
    target = _use_target(change, reference, namespace_prefix)
    is_checked_later = not target.namespace and change.user.scope is None  # the scope of a key is known only here
    if change.user.is_unscoped_admin or is_checked_later or authorize(change.user, target).allowed:
        return
    why = (
        f'User "{change.user.name}" may not use the project secret "{reference.name}", or it does not exist, and '
        f"writing {reference.path}, or the repository beside it, needs the verb use on it; ask for an entry in its "
        "spec.access, or leave the reference out"
    )
    raise forbidden(change, why)


def _use_target(change: Change, reference: ChartSecretReference, namespace_prefix: str) -> RequestInfo:
    """Without a namespace if the project is not known here."""
    own = str(metadata(change.obj).get("namespace") or "")
    return RequestInfo(
        verb="use",
        group=change.kind.group,
        version="v1",
        resource=PROJECT_SECRETS,
        namespace=f"{namespace_prefix}{reference.project}" if reference.project else own,
        name=reference.name,
    )
