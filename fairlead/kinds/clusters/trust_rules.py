"""Settings of workload identity, a part of Config: which tokens of other systems are exchanged for access keys.

`signin/workload_identity.py` evaluates the rules. They are checked here when they are written, because a rule that
matches more than its author intended would let others in.
"""

import re
from collections.abc import Iterator
from typing import Any

from fairlead.core.objects import Object
from fairlead.kinds.access.scope import SCOPE, scope_problems
from fairlead.registry import limits
from fairlead.registry.schema import array, boolean, integer, mapping, obj, string, with_description

MAX_RULES = 100
MAX_CLAIMS = 32
MAX_CLAIM_LENGTH = 1_024
MAX_TTL_SECONDS = 3_600
DEFAULT_TTL_SECONDS = 900
GITHUB_ISSUER, GITLAB_ISSUER = "https://token.actions.githubusercontent.com", "https://gitlab.com"

IMMUTABLE_CLAIMS = {
    "repository": ("repository_id",),
    "repository_owner": ("repository_owner_id", "repository_id"),
    "project_path": ("project_id",),
    "namespace_path": ("namespace_id", "project_id"),
}
"""Claims with names that can be given to someone else, and the claims of which one is required with them."""
ISSUER_CLAIMS = {
    GITHUB_ISSUER: ("repository_id", "repository_owner_id"),
    GITLAB_ISSUER: ("project_id", "namespace_id"),
}
"""Issuers for everyone, and the claims of which a rule for them requires one: otherwise anyone could match."""

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)
_PRINCIPALS = ("user", "team", "serviceAccount")

_RULE = obj(
    name=string("Name of the rule, for the audit log and the labels of keys. A DNS label."),
    issuer=string("URL of the issuer of the tokens, exactly as in the claim `iss`.", max_length=limits.URL),
    cluster=string("Connected cluster whose service account tokens are exchanged, instead of an issuer."),
    clusterUID=string("UID of that cluster, so that the rule does not apply to a later one of the same name."),
    ca=string(
        "PEM certificates of the authorities that the issuer's certificate may be from. Defaults to the system's.",
        max_length=limits.CREDENTIAL,
    ),
    allowLoopback=boolean("Allow an issuer on the server's own machine. Defaults to false."),
    claims=mapping(
        string(max_length=MAX_CLAIM_LENGTH),
        "Claims that a token must have, with exactly these values. For a cluster, use serviceAccountName instead.",
        max_properties=MAX_CLAIMS,
    ),
    namespace=string("Namespace of the service account in the cluster."),
    serviceAccountName=string("Name of the service account in the cluster."),
    serviceAccountUID=string("UID of the service account in the cluster. If set, a recreated one is not trusted."),
    allowPullRequests=boolean("Also accept runs for pull requests and merge requests. Defaults to false."),
    user=string("User that the key authenticates as."),
    team=string("Team that the key authenticates as, instead of a user."),
    serviceAccount=string("Service account of this server that the key authenticates as, as NAMESPACE/NAME."),
    uid=string("UID of that user, team or service account. If set, a later one of the same name is not used."),
    scope=with_description(SCOPE, "What the key is restricted to. Required."),
    maxTTLSeconds={
        **integer("Maximum lifetime of the key. It never outlives the token.", minimum=1, bits=32),
        "maximum": MAX_TTL_SECONDS,
    },
)

WORKLOAD_IDENTITY = obj(
    "Access keys in exchange for tokens of other systems, such as CI jobs.",
    audience=string(
        "The audience that tokens must have, and no other one. It must differ between installations.",
        max_length=limits.URL,
    ),
    rules=array(_RULE, "Which tokens are accepted. The first rule that matches applies.", max_items=MAX_RULES),
)


def trust_errors(settings: Object) -> Iterator[str]:
    """What is wrong with the settings, beyond their types."""
    rules = settings.get("rules") or ()
    if rules and not settings.get("audience"):
        yield "auth.workloadIdentity.audience: is required; use a value that no other installation has"
    names: set[str] = set()
    for index, rule in enumerate(rules):
        path = f"auth.workloadIdentity.rules[{index}]"
        name = str(rule.get("name") or "")
        if not _NAME.fullmatch(name):
            yield f"{path}.name: must be lower-case letters, digits and dashes, at most 63 characters"
        if name in names:
            yield f"{path}.name: {name} is the name of an earlier rule; choose another one"
        names.add(name)
        yield from _source_errors(rule, path)
        yield from _result_errors(rule, path)


def _source_errors(rule: Object, path: str) -> Iterator[str]:
    """Errors in the fields that say which tokens match."""
    if bool(rule.get("issuer")) == bool(rule.get("cluster")):
        yield f"{path}: set either issuer or cluster"
        return
    if rule.get("cluster"):
        if not rule.get("namespace") or not rule.get("serviceAccountName"):
            yield f"{path}: set namespace and serviceAccountName, of the service account in the cluster"
        if rule.get("claims"):
            yield f"{path}.claims: are for issuers only; remove them"
        return
    for field in ("clusterUID", "namespace", "serviceAccountName", "serviceAccountUID"):
        if rule.get(field):
            yield f"{path}.{field}: is for clusters only; remove it"
    yield from _claim_errors(rule["issuer"], rule.get("claims") or {}, path)


def _claim_errors(issuer: str, claims: dict[str, Any], path: str) -> Iterator[str]:
    if not issuer.startswith("https://"):
        yield f"{path}.issuer: must be an https URL"
    if not any(name not in ("iss", "aud") for name in claims):
        yield f"{path}.claims: set at least one claim, or every token of the issuer would be accepted"
    for name, value in claims.items():
        if not value:
            yield f"{path}.claims[{name}]: must not be empty"
    required = ISSUER_CLAIMS.get(issuer.rstrip("/"), ())
    if required and not any(claims.get(each) for each in required):
        yield f"{path}.claims: set {' or '.join(required)}: names can be given to someone else, ids cannot"
    for name, ids in IMMUTABLE_CLAIMS.items():
        if name in claims and not any(claims.get(each) for each in ids):
            yield f"{path}.claims[{name}]: can be given to someone else; also set {' or '.join(ids)}"


def _result_errors(rule: Object, path: str) -> Iterator[str]:
    """Errors in the fields that say what the key may do."""
    if len([field for field in _PRINCIPALS if rule.get(field)]) != 1:
        yield f"{path}: set exactly one of {', '.join(_PRINCIPALS)}"
    account = str(rule.get("serviceAccount") or "")
    if account and (account.count("/") != 1 or not all(account.split("/"))):
        yield f"{path}.serviceAccount: must have the format NAMESPACE/NAME"
    if not isinstance(rule.get("scope"), dict):
        yield f"{path}.scope: is required; name the projects, spaces, virtual clusters or clusters of the key"
    else:
        yield from (f"{each.field}: {each.message}" for each in scope_problems(rule["scope"], f"{path}.scope"))
