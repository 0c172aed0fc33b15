"""Config: the settings that administrators can change at run time. A singleton that always exists.

`spec.raw` contains the settings as YAML text; the status shows the parsed values. Settings that it omits keep their
startup values. `features/dynamic_config.py` reads it on each use, so a change takes effect with the next request.

Settings of workload identity, a part of Config: which tokens of other systems are exchanged for access keys.

`signin/workload_identity.py` evaluates the rules. They are checked here when they are written, because a rule that
matches more than its author intended would let others in.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from fairlead.core import yaml
from fairlead.core.body_errors import Malformed
from fairlead.core.errors import MAX_PROBLEMS
from fairlead.core.objects import Object, get_path, name_of
from fairlead.core.suggestions import suggest_name
from fairlead.kinds.access.scope import SCOPE, scope_problems
from fairlead.kinds.clusters.config_sign_on import SIGN_ON_FIELDS, sign_on_errors
from fairlead.kinds.fields import CATEGORY
from fairlead.registry import limits
from fairlead.registry.kind import Change, Column, Kind, Problem, Sensitivity
from fairlead.registry.schema import Schema, array, boolean, enum, integer, mapping, obj, string, with_description
from fairlead.registry.validate import Validator

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


CONFIG_NAME = "service-manager-config"
AUDIT_LEVELS = ("Metadata", "Request", "RequestResponse")
MAX_SECONDS = 2**31 - 1
MAX_EVENTS = 30_000
"""Keys, values, and starts and ends of lists and mappings in the text: several times those of the largest Config."""
MAX_SUGGESTIONS = 5
MAX_SUGGESTED_LENGTH = 100
"""Unknown settings for which a similar one is looked up, which takes two milliseconds and grows with the length."""
MAX_HEADERS = 32
MAX_HEADER_LENGTH = 4096

_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}", re.ASCII)
_HEADER_VALUE = re.compile(r"[ -~]*", re.ASCII)
RESERVED_HEADERS = frozenset(
    {
        *("audit-id", "cache-control", "connection", "content-encoding", "content-length", "content-type", "date"),
        *("keep-alive", "retry-after", "set-cookie", "te", "trailer", "transfer-encoding", "upgrade", "warning"),
        *("vary", "www-authenticate"),
    }
)
"""Headers that custom headers must not override: a response could become unreadable, or set a login cookie."""


def _seconds(description: str, minimum: int = 0) -> Schema:
    return {**integer(description, minimum=minimum, bits=32), "maximum": MAX_SECONDS}


SETTINGS_FIELDS = {
    "auth": obj(
        "Logins and user-created credentials.",
        required=(),
        accessKeyMaxTTLSeconds=_seconds("Maximum lifetime of an access key in seconds. 0 means no limit."),
        loginAccessKeyTTLSeconds=_seconds("Lifetime of a login in seconds. 0 means no expiry."),
        directTokenTTLSeconds=_seconds("Default lifetime of a direct token in seconds.", 1),
        directTokenMaxTTLSeconds=_seconds("Maximum lifetime of a direct token in seconds.", 1),
        password=obj("Password login.", disabled=boolean("Disable password login. Defaults to false.")),
        workloadIdentity=WORKLOAD_IDENTITY,
        customHttpHeaders=mapping(
            string(max_length=2 * MAX_HEADER_LENGTH),
            "Headers added to every response, such as Strict-Transport-Security.",
        ),
        **SIGN_ON_FIELDS,
    ),
    "audit": obj(
        "The audit log.",
        level=enum("Minimum audit level of all requests that the policy does not exclude.", *AUDIT_LEVELS),
    ),
}
_VALIDATOR = Validator(obj(required=(), **SETTINGS_FIELDS))


def parse_settings(raw: str) -> tuple[Object, list[Problem]]:
    """Parses and validates the settings. The problems name the path within the text."""
    try:
        value, duplicates = yaml.decode(raw.encode(), max_events=MAX_EVENTS)
    except (Malformed, UnicodeEncodeError) as error:
        return {}, [_problem(str(error))]
    if value is None:
        return {}, []
    if not isinstance(value, dict):
        return {}, [_problem("must be a mapping of settings, such as `auth: {accessKeyMaxTTLSeconds: 86400}`")]
    findings = _VALIDATOR.validate(value)
    problems = [_problem(f"{path} is set twice; keep one of them") for path in duplicates]
    for number, path in enumerate(findings.unknown_fields[:MAX_PROBLEMS]):
        is_suggested = number < MAX_SUGGESTIONS and len(path) <= MAX_SUGGESTED_LENGTH
        problems.append(_problem(_unknown_setting_message(path, is_suggested)))
    problems += [_problem(f"{each.field}: {each.message}") for each in findings.problems]
    if not findings.problems:
        problems += [_problem(reason) for reason in _value_errors(value)]
    return value, problems


def _value_errors(value: Object) -> Iterator[str]:
    yield from sign_on_errors(value)
    default, maximum = (get_path(value, f"auth.directToken{name}Seconds") for name in ("TTL", "MaxTTL"))
    if default is not None and maximum is not None and default > maximum:
        yield f"auth.directTokenTTLSeconds: {default} is more than auth.directTokenMaxTTLSeconds, {maximum}; lower it"
    yield from trust_errors(get_path(value, "auth.workloadIdentity") or {})
    headers = get_path(value, "auth.customHttpHeaders") or {}
    if len(headers) > MAX_HEADERS:
        yield f"auth.customHttpHeaders: has {len(headers)} headers; at most {MAX_HEADERS} are allowed"
    for name, text in headers.items():
        path = f"auth.customHttpHeaders[{name}]"
        if not _HEADER_NAME.fullmatch(name):
            yield f"{path}: is not a valid header name; use letters, digits and dashes"
        elif name.lower() in RESERVED_HEADERS:
            yield f"{path}: the server sets this header itself; remove it"
        if len(text) > MAX_HEADER_LENGTH or not _HEADER_VALUE.fullmatch(text):
            yield f"{path}: must be one line of printable ASCII, at most {MAX_HEADER_LENGTH} characters"


def _unknown_setting_message(path: str, is_suggested: bool) -> str:
    if path.lower().endswith(".clientsecret"):
        return f"{path}: secrets do not belong in the Config; put it in a Secret and name that in clientSecretRef"
    if not is_suggested:
        return f"unknown setting {path}; remove it"
    return f"unknown setting {path}; {suggest_name(path, _setting_paths(SETTINGS_FIELDS), 'remove it')}"


def _setting_paths(fields: dict[str, Schema], prefix: str = "") -> Iterator[str]:
    """The dotted paths of all settings."""
    for name, schema in fields.items():
        is_list = "properties" in schema.get("items", {})
        inner = schema["items"]["properties"] if is_list else schema.get("properties")
        path = f"{prefix}{name}{'[]' if is_list else ''}"
        yield from _setting_paths(inner, f"{path}.") if inner else (path,)


def _problem(reason: str) -> Problem:
    return Problem("spec.raw", "FieldValueInvalid", f"Invalid value: {reason}")


def _raw(change: Change) -> str:
    raw = change.spec.get("raw")
    return raw if isinstance(raw, str) else ""


def set_status(change: Change) -> None:
    """Sets the status to the parsed settings; a status in the request is ignored."""
    value, problems = parse_settings(_raw(change))
    if change.new is not None and not problems:
        change.new["status"] = value


def check(change: Change) -> Iterable[Problem]:
    if name_of(change.obj) != CONFIG_NAME:
        yield Problem.invalid("metadata.name", name_of(change.obj), f"must be {CONFIG_NAME}; there is only one Config")
    yield from parse_settings(_raw(change))[1]


def _password_login(config: Object) -> str:
    return "off" if get_path(config, "status.auth.password.disabled") else "on"


CONFIG = Kind(
    name="Config",
    plural="configs",
    namespaced=False,
    fields={
        "spec": obj(
            "The settings.",
            raw=string(
                "The settings as YAML text. Omitted settings keep their startup values.",
                max_length=limits.CONFIG_TEXT,
            ),
        ),
        "status": obj(
            "The settings in effect. Derived from the spec; ignored in requests.", required=(), **SETTINGS_FIELDS
        ),
    },
    description="The settings of the server that can be changed at run time. A singleton: service-manager-config.",
    categories=(CATEGORY,),
    verbs=("get", "list", "patch", "update", "watch"),
    columns=(
        Column(
            "Key TTL", "status.auth.accessKeyMaxTTLSeconds", "integer", "Maximum lifetime of access keys, in seconds."
        ),
        Column("Login TTL", "status.auth.loginAccessKeyTTLSeconds", "integer", "Lifetime of a login, in seconds."),
        Column("Password Login", _password_login, description="Whether password login is on."),
    ),
    sensitive=("spec.raw",),  # an unknown setting, or one of another product, may contain a credential
    default=set_status,
    check=check,
    sensitivity=Sensitivity.SECRET,
)
