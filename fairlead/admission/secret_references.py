"""The writer of a reference to a secret, in a workspace or template, needs the verb `use` on the secret.

The secrets of a workspace are resolved with the permissions of its owner, and others may be able to change it and to
look into it. Without this, they could make it use any secret of its owner. What a change adds is checked against what
the definition resolved to before, so it does not matter where a reference comes from: the template inside, another
template or version, or parameters. The owner is not checked here: the secret is resolved only if the owner may use it.
A key with a scope, however, refers only to what its scope covers, except for what the template refers to by itself.

The writers, and that the owner has accepted the workspace, are recorded in an annotation, which only this rule sets
(`domain/secret_references.py`). `authz/secret_access.py` checks them again whenever a secret is resolved.

Setting a reference to a kubeconfig Secret needs the permission to read that Secret.

Otherwise a Cluster or an imported virtual cluster would give its writer the use of credentials that they cannot read.
One whose kubeconfig is unusable is accepted with a warning, since the Secret may still change. `app` passes in the
kubeconfig parser, because admission must not import `upstream`.
"""

from base64 import b64decode
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from fairlead.admission import Rule, applies_to, forbidden, is_resource
from fairlead.core.call import Authorize, RequestInfo
from fairlead.core.objects import Object, get_path, metadata
from fairlead.core.user import CONTROLLER_USER, User
from fairlead.domain.secret_references import (
    ADMINISTRATORS,
    SHARED_SECRETS,
    UNKNOWN,
    SecretConsent,
    SecretReference,
    find_author_choices,
    find_authored,
    find_references,
    owner_principal,
    read_consent,
    template_definitions,
    write_consent,
)
from fairlead.domain.template_resolution import ResolutionError, find_definition, render_definition
from fairlead.kinds import TEMPLATE_INSTANCES
from fairlead.kinds.instances.workspace import WORKSPACE
from fairlead.registry.codec import decode
from fairlead.registry.kind import Change
from fairlead.registry.registry import Registry

TEMPLATES = TEMPLATE_INSTANCES[WORKSPACE.plural].templates

INPUTS = ("templateRef", "template", "parameters")
"""The fields of the spec that determine what a workspace refers to."""

References = dict[str, SecretReference]
"""References by their digests."""


@dataclass(frozen=True, slots=True)
class WriterChecks:
    """What the rules need to know about writers: permissions, scope and ownership of requesters, and whether the
    writer of that name, who was recorded, may use a secret now."""

    authorize: Authorize
    is_within_scope: Callable[[User, RequestInfo], bool]
    owns: Callable[[User, str | None, str | None], bool]
    writer_may_use: Callable[[str, RequestInfo], bool]


def record_secret_writers(checks: WriterChecks, api_group: str) -> Rule:
    """Checks and records the writers of references in workspaces and in their templates."""

    @applies_to(lambda kind, verb: verb != "delete" and is_resource(kind, api_group, WORKSPACE.plural, TEMPLATES))
    async def rule(change: Change, registry: Registry) -> None:
        if change.subresource or change.user == CONTROLLER_USER or change.new is None or change.problems:
            return
        if change.kind.plural == TEMPLATES:
            _record_template(change, checks)
        else:
            _record_workspace(change, registry, checks)

    return rule


def _record_workspace(change: Change, registry: Registry, checks: WriterChecks) -> None:
    owner = owner_principal(change.new)
    before = read_consent(change.old)
    template = _find_template(change, change.obj, registry)
    former = _find_template(change, change.old, registry)
    after = _resolve(change.obj, template)
    known = _resolve(change.old, former)
    applied = _index(find_references(get_path(change.old, "status.instance") or {}))
    is_owner = _is_owner(change, checks)
    has_same_owner = change.old is not None and owner_principal(change.old) == owner
    recorded = dict(before.writers) if has_same_owner else {}
    inputs = _input_writers(change, before.inputs if has_same_owner else {}, is_owner=is_owner)
    literal = _index(each for part in template_definitions(template) for each in find_references(part))
    authors = _find_authors(change.obj, template)
    former_authors = _find_authors(change.old, former)
    writers = {digest: name for digest, name in recorded.items() if digest in after or digest in applied}
    for digest, reference in after.items():
        target = _use_target(change, reference)
        if digest not in known or (is_owner and not has_same_owner):
            _check_scope(change, checks, reference, digest in literal)
        place = reference.field, reference.plural
        author = authors.get(place)
        is_new = digest not in known or (author is None and place in former_authors)  # parameters now name the same
        if is_owner and author is not None:
            writers[digest] = author
        elif is_owner:
            if digest not in recorded or not checks.writer_may_use(recorded[digest], target):
                responsible = _responsible(change.obj, inputs, is_literal=digest in literal)
                denied = (each for each in responsible if not checks.writer_may_use(each, target))
                writers[digest] = next(denied, owner)
        elif is_new:
            requester = _writer_of(change, checks, reference, target)
            is_allowed = author is None or checks.writer_may_use(author, target)
            writers[digest] = requester if is_allowed else str(author)
    if not after and not writers and not inputs:  # most workspaces: what clients see has nothing that they do not need
        write_consent(change.obj, SecretConsent())
        return
    is_accepted = is_owner or not has_same_owner or before.owner == owner
    write_consent(change.obj, SecretConsent(owner if is_accepted else before.owner, writers, inputs))


def _input_writers(change: Change, before: Mapping[str, str], *, is_owner: bool) -> dict[str, str]:
    """Who wrote each of the fields that determine the references, if it was not the owner."""
    writers = dict(before)
    for name in INPUTS:
        if get_path(change.old, f"spec.{name}") != get_path(change.obj, f"spec.{name}"):
            writers.pop(name, None)
            if not is_owner and not change.user.is_unscoped_admin and get_path(change.obj, f"spec.{name}"):
                writers[name] = writer_name(change.user)
    return writers


def _responsible(workspace: Object, inputs: Mapping[str, str], *, is_literal: bool) -> list[str]:
    """Those besides the owner who determined a reference that appears with a later change of a template: the owner,
    who only starts the workspace, does not vouch for them."""
    source = "templateRef" if get_path(workspace, "spec.templateRef.name") else "template"
    names = (source,) if is_literal else (source, "parameters")
    return [inputs[each] for each in names if each in inputs]


def _find_authors(instance: Object | None, template: Object | None) -> dict[tuple[str, str], str]:
    """Who wrote the references that are not the choice of those who set parameters, by field and plural. Templates of
    earlier versions do not say it: then it is no one, who may use nothing."""
    if instance is None:
        return {}
    try:
        definition = find_definition(instance, template)
    except ResolutionError:
        return {}
    if definition.parameters is None:
        return {}
    recorded = read_consent(template).writers
    return {place: recorded.get(each, UNKNOWN) for place, each in find_author_choices(instance, definition).items()}


def _is_owner(change: Change, checks: WriterChecks) -> bool:
    user = get_path(change.obj, "spec.owner.user")
    team = get_path(change.obj, "spec.owner.team")
    principal = owner_principal(change.obj)
    return bool(principal) and (principal == change.user.name or checks.owns(change.user, user, team))


def _check_scope(change: Change, checks: WriterChecks, reference: SecretReference, is_in_template: bool) -> None:
    target = _use_target(change, reference)
    if change.user.scope is None or is_in_template or checks.is_within_scope(change.user, target):
        return
    why = (
        f"the scope of the access key does not include the {_describe(target)}, which {reference.field} refers to; "
        "use a key without a scope, or leave the reference out"
    )
    raise forbidden(change, why)


def _record_template(change: Change, checks: WriterChecks) -> None:
    """Of a template, only shared secrets are recorded: project secrets are those of the projects that use it. Which
    secret a reference with parameters means is known only in a workspace, so its author is checked there."""
    after = find_authored(change.obj)
    known = find_authored(change.old)
    recorded = read_consent(change.old).writers
    writers = dict[str, str]()
    for digest, reference in after.items():
        target = _use_target(change, reference)
        if not reference.is_literal:
            writers[digest] = recorded.get(digest) or writer_name(change.user)
        elif digest in recorded and checks.writer_may_use(recorded[digest], target):
            writers[digest] = recorded[digest]
        elif digest not in known:
            writers[digest] = _writer_of(change, checks, reference, target)
        elif change.user.is_unscoped_admin or checks.authorize(change.user, target).allowed:
            writers[digest] = writer_name(change.user)
        elif digest in recorded:
            writers[digest] = recorded[digest]
    write_consent(change.obj, SecretConsent(writers=writers))


def _writer_of(change: Change, checks: WriterChecks, reference: SecretReference, target: RequestInfo) -> str:
    """The writer to record for a reference that the change adds. Raises Forbidden if the requester may not use it."""
    if not change.user.is_unscoped_admin and not checks.authorize(change.user, target).allowed:
        whose = "" if change.kind.plural == TEMPLATES else " of another owner"
        noun = "template" if change.kind.plural == TEMPLATES else "workspace"
        why = (
            f'User "{change.user.name}" may not use the {_describe(target)}, which {reference.field} refers to, and '
            f"adding that to a {noun}{whose} needs the verb use on it; ask for an entry in its spec.access, or leave "
            "the reference out"
        )
        raise forbidden(change, why)
    return writer_name(change.user)


def writer_name(user: User) -> str:
    """How a user is recorded as the one who wrote something."""
    return ADMINISTRATORS if user.is_unscoped_admin else user.name


def _use_target(change: Change, reference: SecretReference) -> RequestInfo:
    own = str(metadata(change.obj).get("namespace") or "")
    namespace = reference.namespace if reference.plural == SHARED_SECRETS else own
    return RequestInfo(
        verb="use",
        group=change.kind.group,
        version="v1",
        resource=reference.plural,
        namespace=namespace,
        name=reference.name,
    )


def _describe(target: RequestInfo) -> str:
    if target.resource == SHARED_SECRETS:
        return f'shared secret "{target.name}" in the namespace "{target.namespace}"'
    return f'project secret "{target.name}"'


def _find_template(change: Change, instance: Object | None, registry: Registry) -> Object | None:
    name = get_path(instance, "spec.templateRef.name")
    if not isinstance(name, str) or not name:
        return None
    entry = registry.view.get((change.kind.group, TEMPLATES, "", name))
    return decode(entry) if entry is not None else None


def _resolve(instance: Object | None, template: Object | None) -> References:
    """The references of the definition as it is rendered; as they are written if it cannot be rendered."""
    if instance is None:
        return {}
    try:
        definition = find_definition(instance, template)
        written = _index(find_references(definition.template))
        return _index(find_references(render_definition(instance, definition))) if written else {}
    except ResolutionError:
        return {}


def _index(references: Iterable[SecretReference]) -> References:
    return {each.digest: each for each in references}


DEFAULT_SECRET_KEY = "config"

KubeconfigCheck = Callable[[bytes], Sequence[str]]
"""Returns the problems of a kubeconfig, each with advice on how to fix it."""


def check_cluster_secret(
    authorize: Authorize, api_group: str, default_namespace: str, check_kubeconfig: KubeconfigCheck
) -> Rule:
    """Checks `spec.config` of clusters. A reference without a namespace means `default_namespace`."""

    @applies_to(lambda kind, verb: verb != "delete" and is_resource(kind, api_group, "clusters"))
    async def rule(change: Change, registry: Registry) -> None:
        namespace = get_path(change.obj, "spec.config.secretNamespace") or default_namespace
        _warn_unusable(change, registry, namespace, _require_secret(change, namespace, authorize), check_kubeconfig)

    return rule


def check_virtual_cluster_secret(authorize: Authorize, api_group: str, check_kubeconfig: KubeconfigCheck) -> Rule:
    """Checks `spec.config` of virtual clusters, whose Secret is in their own namespace."""

    @applies_to(lambda kind, verb: verb != "delete" and is_resource(kind, api_group, "virtualclusterinstances"))
    async def rule(change: Change, registry: Registry) -> None:
        if change.is_move:
            return  # `subresources/migration.py` has checked the permissions for the Secret, which moves with it
        namespace = str(metadata(change.obj).get("namespace") or "")
        _warn_unusable(change, registry, namespace, _require_secret(change, namespace, authorize), check_kubeconfig)

    return rule


def _require_secret(change: Change, namespace: str, authorize: Authorize) -> str:
    """Raises Forbidden unless the requester may read the Secret that `spec.config` names.

    Returns its name; empty if the write does not set the reference, or a controller does.
    """
    config = get_path(change.obj, "spec.config")
    name = get_path(config, "secretName")
    is_unchanged = config == get_path(change.old or {}, "spec.config")
    if change.user == CONTROLLER_USER or not isinstance(name, str) or not name or is_unchanged:
        return ""
    target = RequestInfo("get", group="", version="v1", resource="secrets", namespace=namespace, name=name)
    if not authorize(change.user, target).allowed:
        why = (
            f'User "{change.user.name}" cannot read the secret "{name}" in the namespace "{namespace}"; name one '
            "that you may read, or ask for that right"
        )
        raise forbidden(change, why)
    return name


def _warn_unusable(
    change: Change, registry: Registry, namespace: str, name: str, check_kubeconfig: KubeconfigCheck
) -> None:
    """Warns if the Secret exists and its content cannot be used. That it is missing is reported in a condition."""
    entry = registry.resource("", "secrets").get_cached(namespace, name) if name else None
    if entry is not None:
        key = get_path(change.obj, "spec.config.key") or DEFAULT_SECRET_KEY
        change.warnings.extend(_kubeconfig_warnings(decode(entry), key, check_kubeconfig))


def _kubeconfig_warnings(secret: Object, key: str, check_kubeconfig: KubeconfigCheck) -> list[str]:
    """Call only for requesters who may read the Secret: the warnings reveal something about its content."""
    content = (secret.get("data") or {}).get(key)
    if not content:
        return [f'the secret that spec.config names has no key "{key}"; store the kubeconfig there']
    found = check_kubeconfig(b64decode(content))
    return [f"the kubeconfig in the secret that spec.config names cannot be used: {each}" for each in found]
