"""Schemas and validation that several management kinds share: owner, access, conditions, charts, sleep mode.

Kinds may override a description with `described`. Management kinds return exactly what was sent, so no schema here has
a default: the description says what an absent value means.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from fairlead.core.objects import Object, get_path
from fairlead.domain.parameters import PARAMETER_SECRETS, RENDERED_SECRETS
from fairlead.domain.template_resolution import CHART_FIELDS_WITHOUT_PASSWORD
from fairlead.registry import limits
from fairlead.registry.kind import Problem
from fairlead.registry.schema import (
    Schema,
    array,
    array_map,
    boolean,
    enum,
    integer,
    mapping,
    obj,
    open_object,
    string,
    timestamp,
    with_description,
    without_effect,
)

CATEGORY = "fairlead"
"""`kubectl get fairlead` lists every management kind."""

DISPLAY_NAME = string("Human-readable name. Plain text; markup in it is never rendered.")
DESCRIPTION = string("Purpose of the object, in plain text.", max_length=limits.DESCRIPTION)

OWNER = obj(
    "Owner of the object: one user or one team. Owners can read and manage the objects they own.",
    user=string("Name of the owning user."),
    team=string("Name of the owning team; each of its members counts as the owner."),
)

ACCESS = array(
    obj(
        name=string("Label of this entry. The server ignores it."),
        users=array(string(), "Users that the entry applies to. `*` means every user.", max_items=limits.MEMBERS),
        teams=array(string(), "Teams that the entry applies to.", max_items=limits.MEMBERS),
        verbs=array(string(), "Verbs allowed on the object, such as `get`, `update` or `use`. `*` means all verbs."),
        subresources=array(string(), "Subresources on which the verbs are allowed too. `*` means all of them."),
    ),
    "Permissions of other users and teams on this object. Entries are additive; there are no deny entries.",
    max_items=limits.ACCESS_ENTRIES,
)

CONDITIONS = array_map(
    ("type",),
    obj(
        required=("type", "status"),
        type=string("Type of the condition, such as `Ready`. There is one entry for each type."),
        status=enum("Status of the condition; `Unknown` if it could not be determined.", "True", "False", "Unknown"),
        severity=enum("Severity while the status is `False`. Empty otherwise.", "", "Error", "Warning", "Info"),
        lastTransitionTime=timestamp("Last time the status changed to another value."),
        observedGeneration=integer("The metadata.generation that the condition was set for."),
        reason=string("Machine-readable reason in CamelCase."),
        message=string("Human-readable message: what happened and what to do about it.", max_length=limits.MESSAGE),
    ),
    "Latest observations of the object's state, one entry per type. `kubectl wait --for=condition=...` reads them.",
    max_items=limits.CONDITIONS,
)

OBSERVED_GENERATION = integer(
    "The metadata.generation that the status reflects. If it is older, the change has not been reconciled yet."
)

TEMPLATE_REF = obj(
    "The template that the instance is created from.",
    name=string("Name of the template."),
    version=string(
        "Version of the template, with three components. A component may be `x` for the newest, as in `1.2.x`. "
        "Empty means the unversioned definition of the template."
    ),
    syncOnce=boolean(
        "Sync the instance with the template once. The server then resets it to false. Defaults to false."
    ),
)

TEMPLATE_HASH = string("Opaque hash of the template at the last sync; a different hash means the template has changed.")

VERSIONED_REF = obj(
    required=("name",),
    name=string("Name of the referenced object."),
    version=string("Its version, with three components, each of which may be `x` for the newest."),
)

CLUSTER_REF = obj(
    "Location in the connected clusters. Immutable once set.",
    cluster=string("Name of the connected cluster."),
    namespace=string("Namespace within that cluster.", max_length=63),
    virtualCluster=string("Name of the virtual cluster within that namespace, if it is in one.", max_length=63),
)

PROJECT_SECRET_REF = obj(
    "A key of a project secret.",
    project=string("Project that the secret belongs to."),
    name=string("Name of the project secret."),
    key=string("Key within the secret."),
)

_FROM_PROJECT_SECRET = obj(projectSecretRef=PROJECT_SECRET_REF)

CHART: Mapping[str, Any] = {
    "name": string("Name of the chart in its repository.", max_length=253),
    "repoURL": string("URL of the chart repository.", max_length=2048),
    "version": string("Version of the chart. Empty means the newest.", max_length=128),
    "username": string("User name for the repository.", max_length=256),
    "usernameRef": with_description(_FROM_PROJECT_SECRET, "Source of the user name, instead of `username`."),
    "password": string(
        "Password for the repository.",
        format="password",
        max_length=limits.CREDENTIAL,
    ),
    "passwordRef": with_description(_FROM_PROJECT_SECRET, "Source of the password, instead of `password`."),
    "insecureSkipTlsVerify": without_effect(
        boolean("Do not verify the repository's certificate. Defaults to false."),
        "is not supported: a deployment with it fails; use a repository with a trusted certificate",
    ),
}
"""Fields of a Helm chart reference, shared by apps and templates."""


_PARAMETER = obj(
    variable=string("Name of the parameter. Dots make nested values, as in `image.tag`."),
    label=string("Label of the parameter in forms."),
    description=string("Help text for the form.", max_length=limits.DESCRIPTION),
    type=enum(
        "Type of the value. Empty means `string`.",
        "",
        "string",
        "multiline",
        "boolean",
        "number",
        "password",
    ),
    options=array(string(max_length=limits.DESCRIPTION), "Values to choose from.", max_items=limits.OPTIONS),
    min=integer("Smallest number allowed, for the type `number`."),
    max=integer("Largest number allowed, for the type `number`."),
    defaultValue=string("Default value.", max_length=limits.DOCUMENT),
    placeholder=string("Example shown in an empty form field.", max_length=limits.DESCRIPTION),
    validation=string(
        "Regular expression that a value must match. Values in `options` always pass.", max_length=limits.EXPRESSION
    ),
    invalidation=string(
        "Regular expression that a value must not match. Values in `options` always pass.",
        max_length=limits.EXPRESSION,
    ),
    section=string("Heading under which forms show the parameter."),
)
# `obj` has a parameter called `required`, so a field of this name cannot be passed as a keyword argument.
_PARAMETER["properties"]["required"] = boolean("Reject an empty value. Defaults to false.")

PARAMETER_VALUES = string(
    "Values for the template's parameters, as YAML text: one `name: value` a line. For parameters of type `password` "
    "responses show `<hidden>`; sending `<hidden>` back keeps the stored value.",
    max_length=limits.DOCUMENT,
)
_PASSWORD = string(format="password", max_length=64 * limits.KIB)
PARAMETER_PASSWORDS = mapping(
    _PASSWORD,
    "Values of the template's password parameters, by parameter name. Never returned.",
    max_properties=limits.PARAMETERS,
)
RENDERED_PASSWORDS = mapping(
    _PASSWORD,
    "Password values that the rendered template contains. Never returned.",
    max_properties=limits.PARAMETERS,
)

PARAMETERS = array(_PARAMETER, "Parameters that can be set when this is used.", max_items=limits.PARAMETERS)

_SLEEP_SPEC = obj(
    "Requested sleep mode, from the `sleepmode.service.sh/` annotations.",
    forceSleep=boolean("Force sleep, regardless of activity."),
    forceSleepDuration=integer("Duration of the forced sleep in seconds. 0 means until it is woken up."),
    sleepAfter=integer("Seconds of inactivity before it falls asleep. 0 means never."),
    deleteAfter=integer("Seconds of inactivity before it is deleted. 0 means never."),
    maxRun=integer("Seconds after which a workspace falls asleep regardless of activity. 0 means never."),
    holdUntil=integer("Until when a workspace counts as active, in Unix seconds."),
    sleepSchedule=string("When it falls asleep, as a cron expression.", max_length=limits.EXPRESSION),
    wakeupSchedule=string("When it wakes up, as a cron expression.", max_length=limits.EXPRESSION),
    timezone=string("Time zone of both schedules, such as `Europe/Berlin`."),
    ignoreAll=boolean("No request counts as activity."),
    ignoreActiveConnections=boolean("Open connections do not count as activity."),
    ignoreIngresses=boolean("Requests through an ingress do not count as activity."),
    ignoreVirtualClusters=boolean("Requests to virtual clusters do not count as activity."),
    ignoreGroups=string("Groups whose requests are not activity, separated by commas.", max_length=limits.EXPRESSION),
    ignoreVerbs=string("Verbs that are not activity, separated by commas.", max_length=limits.EXPRESSION),
    ignoreResources=string("Resources that are not activity, separated by commas.", max_length=limits.EXPRESSION),
    ignoreResourceVerbs=string(
        "Pairs of resource and verb that are not activity, separated by commas.", max_length=limits.EXPRESSION
    ),
    ignoreResourceNames=string(
        "Names of objects that are not activity, separated by commas.", max_length=limits.EXPRESSION
    ),
    ignoreUserAgents=string("User agents that are not activity, separated by commas.", max_length=limits.EXPRESSION),
    disableIngressWakeup=boolean("A request through an ingress does not wake it up."),
)

SLEEP_MODE = obj(
    "Effective sleep mode, derived from the annotations.",
    spec=_SLEEP_SPEC,
    status=obj(
        "Current state of sleep mode.",
        lastActivity=integer("Time of the last activity, in Unix seconds."),
        lastActivityInfo=open_object("Details of that activity: user, verb and object."),
        sleepingSince=integer("Start of the current sleep, in Unix seconds. Absent while awake."),
        sleepType=enum(
            "Why it is asleep. Empty while awake.",
            "",
            "inactivitySleep",
            "forcedSleep",
            "forcedDurationSleep",
            "scheduledSleep",
        ),
        scheduledSleep=integer("Next scheduled sleep, in Unix seconds."),
        scheduledWakeup=integer("Next scheduled wake-up, in Unix seconds."),
        currentEpoch=open_object("Time asleep in the current period."),
        lastEpoch=open_object("Time asleep in the previous period."),
    ),
)

STRING_MAP = mapping(string(max_length=limits.ANNOTATIONS_BYTES))
"""A map of strings, such as labels and annotations."""


def owner_problems(spec: Object) -> Iterable[Problem]:
    """Reports an object with both a user and a team as owner."""
    if get_path(spec, "owner.user") and get_path(spec, "owner.team"):
        yield Problem.forbidden("spec.owner.team", "spec.owner.user is set too; keep one of them")


def owner_name(resource: Object) -> Any:
    """The owning user or team, for tables."""
    return get_path(resource, "spec.owner.user") or get_path(resource, "spec.owner.team")


def condition_status(resource: Object, type: str) -> Any:
    """The status of one condition, for tables; None if it is not set."""
    found = get_path(resource, "status.conditions") or ()
    return next((each.get("status") for each in found if each.get("type") == type), None)


def password_paths(fields: Mapping[str, Schema], prefix: str = "") -> tuple[str, ...]:
    """Dotted paths of all fields with the format `password`. A path through a list means each of its items."""
    found: list[str] = []
    for name, schema in fields.items():
        path = f"{prefix}{name}"
        if "password" in (schema.get("format"), (schema.get("additionalProperties") or {}).get("format")):
            found.append(path)
        inner = schema.get("items", schema)
        found.extend(password_paths(inner.get("properties", {}), f"{path}."))
    return tuple(found)


def password_independent_fields(fields: Mapping[str, Schema]) -> Mapping[str, tuple[str, ...]]:
    """For each password path, the sibling fields that may change without the password being sent again.

    For charts these are the fields in `CHART_CONTENT`.
    """
    charts = dict.fromkeys(password_paths(fields), CHART_FIELDS_WITHOUT_PASSWORD)
    if f"spec.{PARAMETER_SECRETS}" in charts:  # admission ties these to the template instead
        charts[f"spec.{PARAMETER_SECRETS}"] = tuple(fields["spec"]["properties"])
        charts[f"status.{RENDERED_SECRETS}"] = tuple(fields["status"]["properties"])
    return charts


def owned_spec(description: str, **fields: Schema) -> Schema:
    """The spec of a kind whose objects have a display name, a description, an owner and access entries."""
    owned = {"displayName": DISPLAY_NAME, "description": DESCRIPTION, "owner": OWNER, "access": ACCESS}
    return obj(description, required=(), **owned, **fields)
