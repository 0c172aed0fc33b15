"""Types and rules that several management kinds share: owner, access, conditions, references, charts, sleep mode.

Kind files put them together and may give them a description of their own with `described`. The management kinds answer
with exactly what they were sent, so nothing in here has a schema default: descriptions say what an absent value means.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from fairlead.core.objects import Object, dig
from fairlead.registry import limits
from fairlead.registry.kind import Problem
from fairlead.registry.schema import (
    Schema,
    array,
    array_map,
    boolean,
    described,
    enum,
    free,
    integer,
    mapping,
    obj,
    string,
    timestamp,
)

CATEGORY = "fairlead"
"""`kubectl get fairlead` lists every management kind."""

DISPLAY_NAME = string("Name shown to people. Plain text; markup in it is never rendered.")
DESCRIPTION = string("What this is for, in plain text.", longest=limits.DESCRIPTION)

OWNER = obj(
    "Whom this belongs to: one user or one team. Owners see and manage what is theirs.",
    user=string("Name of the owning user."),
    team=string("Name of the owning team; each of its members counts as the owner."),
)

ACCESS = array(
    obj(
        name=string("Label for this entry, to tell entries apart. Means nothing to the server."),
        users=array(string(), "Users that the entry is about. `*` means every user.", most=limits.MEMBERS),
        teams=array(string(), "Teams that the entry is about.", most=limits.MEMBERS),
        verbs=array(
            string(), "What they may do with the object, such as `get`, `update` or `use`. `*` means everything."
        ),
        subresources=array(string(), "Subresources on which they may do it too. `*` means all of them."),
    ),
    "Who else may do what with this object. Entries add up and never take rights away.",
    most=limits.ACCESS_ENTRIES,
)

CONDITIONS = array_map(
    ("type",),
    obj(
        required=("type", "status"),
        type=string("What the condition is about, such as `Ready`. There is one entry for each type."),
        status=enum("Whether it holds; `Unknown` when nobody could find out.", "True", "False", "Unknown"),
        severity=enum("How bad it is while the status is `False`. Empty otherwise.", "", "Error", "Warning", "Info"),
        lastTransitionTime=timestamp("When the status last changed to another value."),
        observedGeneration=integer("The metadata.generation that this was found out for."),
        reason=string("Why, as one word for programs."),
        message=string("Why, for people: what happened and what to do about it.", longest=limits.MESSAGE),
    ),
    "What is known about the object, one entry for each aspect. `kubectl wait --for=condition=...` looks here.",
    most=limits.CONDITIONS,
)

OBSERVED_GENERATION = integer("The metadata.generation that the status speaks of. Older means: not looked at yet.")

TEMPLATE_REF = obj(
    "The template that this is made from.",
    name=string("Name of the template."),
    version=string(
        "Version of the template in three parts. Each part may be `x` for the newest, as in `1.2.x`. "
        "Empty means the template as it stands, without versions."
    ),
    syncOnce=boolean(
        "Take the template's changes over once. The server sets it back to false when that is done. Defaults to false."
    ),
)

TEMPLATE_HASH = string("Tells whether the template has changed since it was taken over last. Means nothing else.")

NAMED_VERSION = obj(
    required=("name",),
    name=string("Name of the object that is referred to."),
    version=string("Its version in three parts, each of which may be `x` for the newest."),
)

CLUSTER_REF = obj(
    "Where this lives among the connected clusters. Stays as it is once set.",
    cluster=string("Name of the connected cluster."),
    namespace=string("Namespace within that cluster.", longest=63),
    virtualCluster=string("Name of the virtual cluster within that namespace, if it lives in one.", longest=63),
)

PROJECT_SECRET_REF = obj(
    "A key of a project secret.",
    project=string("Project that the secret belongs to."),
    name=string("Name of the project secret."),
    key=string("Key within the secret."),
)

_FROM_PROJECT_SECRET = obj(projectSecretRef=PROJECT_SECRET_REF)

CHART: Mapping[str, Any] = {
    "name": string("Name of the chart in its repository.", longest=253),
    "repoURL": string("URL of the chart repository.", longest=2048),
    "version": string("Version of the chart. Empty means the newest.", longest=128),
    "username": string("User name for the repository.", longest=256),
    "usernameRef": described(_FROM_PROJECT_SECRET, "Where to read the user name from instead of `username`."),
    "password": string(
        "Password for the repository. A reference in `passwordRef` is the safer way.",
        format="password",
        longest=limits.CREDENTIAL,
    ),
    "passwordRef": described(_FROM_PROJECT_SECRET, "Where to read the password from instead of `password`."),
    "insecureSkipTlsVerify": boolean("Do not verify the repository's certificate. Defaults to false."),
}
"""The fields of a chart, wherever one can be named."""

CHART_CONTENT = ("name", "version", "values", "wait", "timeout", "releaseName", "releaseNamespace")
"""What stands beside the password of a chart and has nothing to do with where it is sent to."""

_PARAMETER = obj(
    variable=string("Name of the parameter. Dots make nested values, as in `image.tag`."),
    label=string("Name of the parameter in forms."),
    description=string("Help for those who fill in the form.", longest=limits.DESCRIPTION),
    type=enum(
        "What sort of value it takes. Empty means `string`.",
        *("", "string", "multiline", "boolean", "number", "password"),
    ),
    options=array(string(longest=limits.DESCRIPTION), "Values to choose from.", most=limits.OPTIONS),
    min=integer("Smallest number allowed, for the type `number`."),
    max=integer("Largest number allowed, for the type `number`."),
    defaultValue=string("Value that is used when none is given.", longest=limits.DOCUMENT),
    placeholder=string("Example shown in an empty form field.", longest=limits.DESCRIPTION),
    validation=string(
        "Regular expression that a value must match. Values out of `options` always pass.", longest=limits.EXPRESSION
    ),
    invalidation=string(
        "Regular expression that a value must not match. Values out of `options` always pass.",
        longest=limits.EXPRESSION,
    ),
    section=string("Heading under which forms show the parameter."),
)
# `obj` keeps the word `required` for itself, so that a field of this name cannot be passed to it.
_PARAMETER["properties"]["required"] = boolean("Refuse an empty value. Defaults to false.")

PARAMETER_SECRETS, RENDERED_SECRETS = "parameterSecrets", "renderedSecrets"
PARAMETER_VALUES = string(
    "Values for the template's parameters, as YAML text: one `name: value` a line. For a parameter of the type "
    "`password` the text shows `<hidden>`; sent back, it stands for the value that was given before.",
    longest=limits.DOCUMENT,
)
_PASSWORD = string(format="password", longest=64 * limits.KIB)
PARAMETER_PASSWORDS = mapping(
    _PASSWORD,
    "Values of the template's passwords by the names of their parameters. Never shown.",
    most=limits.PARAMETERS,
)
RENDERED_PASSWORDS = mapping(
    _PASSWORD,
    "Values of the template's passwords that are in the rendered template. Never shown.",
    most=limits.PARAMETERS,
)

PARAMETERS = array(_PARAMETER, "The parameters that can be set when this is used.", most=limits.PARAMETERS)

_SLEEP_SPEC = obj(
    "What was asked for, as the `sleepmode.service.sh/` annotations say it.",
    forceSleep=boolean("Asleep by wish, whatever goes on."),
    forceSleepDuration=integer("Seconds that the wish holds for. 0 means until somebody wakes it."),
    sleepAfter=integer("Seconds without activity until it falls asleep. 0 means never."),
    deleteAfter=integer("Seconds without activity until it is deleted. 0 means never."),
    sleepSchedule=string("When it falls asleep, as cron text.", longest=limits.EXPRESSION),
    wakeupSchedule=string("When it wakes up, as cron text.", longest=limits.EXPRESSION),
    timezone=string("Time zone of both schedules, such as `Europe/Berlin`."),
    ignoreAll=boolean("No request counts as activity."),
    ignoreActiveConnections=boolean("Open connections do not count as activity."),
    ignoreIngresses=boolean("Requests through an ingress do not count as activity."),
    ignoreVirtualClusters=boolean("Requests to virtual clusters do not count as activity."),
    ignoreGroups=string("Groups whose requests do not count, separated by commas.", longest=limits.EXPRESSION),
    ignoreVerbs=string("Verbs that do not count, separated by commas.", longest=limits.EXPRESSION),
    ignoreResources=string("Resources that do not count, separated by commas.", longest=limits.EXPRESSION),
    ignoreResourceVerbs=string(
        "Pairs of resource and verb that do not count, separated by commas.", longest=limits.EXPRESSION
    ),
    ignoreResourceNames=string("Names of objects that do not count, separated by commas.", longest=limits.EXPRESSION),
    ignoreUserAgents=string("User agents that do not count, separated by commas.", longest=limits.EXPRESSION),
    disableIngressWakeup=boolean("A request through an ingress does not wake it up."),
)

SLEEP_MODE = obj(
    "Sleep mode as the server sees it, put together from the annotations.",
    spec=_SLEEP_SPEC,
    status=obj(
        "How things stand.",
        lastActivity=integer("Last activity that counted, in Unix seconds."),
        lastActivityInfo=free("What that activity was: who, which verb, which object."),
        sleepingSince=integer("Asleep since then, in Unix seconds. Absent while awake."),
        sleepType=enum(
            "Why it is asleep. Empty while awake.",
            *("", "inactivitySleep", "forcedSleep", "forcedDurationSleep", "scheduledSleep"),
        ),
        scheduledSleep=integer("When it falls asleep by schedule next, in Unix seconds."),
        scheduledWakeup=integer("When it wakes up by schedule next, in Unix seconds."),
        currentEpoch=free("How long it slept in the running period."),
        lastEpoch=free("How long it slept in the period before."),
    ),
)

TEXT_MAP = mapping(string(longest=limits.ANNOTATIONS_BYTES))
"""Labels, annotations and the like."""


def owner_problems(spec: Object) -> Iterable[Problem]:
    """An object has one owner."""
    if dig(spec, "owner.user") and dig(spec, "owner.team"):
        yield Problem.forbidden("spec.owner.team", "spec.owner.user is set too; keep one of them")


def owner_name(resource: Object) -> Any:
    """Whoever owns it, user or team, for tables."""
    return dig(resource, "spec.owner.user") or dig(resource, "spec.owner.team")


def condition_status(resource: Object, type: str) -> Any:
    """The status of one condition, for tables; None while nobody has written it."""
    found = dig(resource, "status.conditions") or ()
    return next((each.get("status") for each in found if each.get("type") == type), None)


def passwords(fields: Mapping[str, Schema], above: str = "") -> tuple[str, ...]:
    """The dotted paths of every field with the format `password`. A step into a list means each of its entries."""
    found: list[str] = []
    for name, schema in fields.items():
        path = f"{above}{name}"
        if "password" in (schema.get("format"), (schema.get("additionalProperties") or {}).get("format")):
            found.append(path)
        inner = schema.get("items", schema)
        found.extend(passwords(inner.get("properties", {}), f"{path}."))
    return tuple(found)


def unbound_from_passwords(fields: Mapping[str, Schema]) -> Mapping[str, tuple[str, ...]]:
    """What may change beside the passwords of charts: which chart it is and how it is deployed."""
    charts = dict.fromkeys(passwords(fields), CHART_CONTENT)
    if f"spec.{PARAMETER_SECRETS}" in charts:  # which admission binds to the template
        charts[f"spec.{PARAMETER_SECRETS}"] = tuple(fields["spec"]["properties"])
        charts[f"status.{RENDERED_SECRETS}"] = tuple(fields["status"]["properties"])
    return charts
