"""App: a Helm chart, manifests or script that administrators publish for clusters, spaces and virtual clusters."""

from collections.abc import Iterable, Mapping
from typing import Any

from fairlead.core.objects import Object, get_path
from fairlead.domain.app_scripts import find_script_problems
from fairlead.domain.deploy_timeouts import TIMEOUT_RULE, parse_timeout
from fairlead.domain.release_annotations import find_annotation_problems
from fairlead.kinds.fields import (
    ACCESS,
    CATEGORY,
    CHART,
    DESCRIPTION,
    DISPLAY_NAME,
    OWNER,
    PARAMETERS,
    STRING_MAP,
    owner_problems,
    password_independent_fields,
    password_paths,
)
from fairlead.registry import limits
from fairlead.registry.kind import Change, Column, Kind, Problem, Sensitivity
from fairlead.registry.schema import array, boolean, obj, open_object, string, with_description, without_effect

_CONFIG: Mapping[str, Any] = {
    "chart": obj("A Helm chart to deploy. Set one of chart, manifests and bash.", **CHART),
    "manifests": string(
        "Kubernetes objects to create, as YAML text. Set one of chart, manifests and bash.", max_length=limits.DOCUMENT
    ),
    "bash": obj(
        "A script to run in a pod in the target cluster. Set one of chart, manifests and bash.",
        script=string(
            "The script, of at most 256 KiB. It runs with bash, or with the program that its first line names after "
            "`#!`. It is not a template: parameters are environment variables, such as `PARAMETER_SIZE`.",
            max_length=limits.DOCUMENT,
        ),
        image=string("Image of the container that runs the script. Required with a script."),
        clusterRole=string(
            "Cluster role bound to the pod while the script runs: in the namespace of a space, and in all of a cluster "
            "or virtual cluster. Only from apps that administrators trust. Without, the pod has no credential."
        ),
        podSecurityContext=open_object(
            "Kubernetes PodSecurityContext of the pod, over the restricted default one. Only from apps that "
            "administrators trust."
        ),
        securityContext=open_object(
            "Kubernetes SecurityContext of the container, over the restricted default one. Only from apps that "
            "administrators trust."
        ),
    ),
    "values": string(
        "Values for the chart, as YAML text. Parameters are available as template variables.",
        max_length=limits.DOCUMENT,
    ),
    "parameters": string("Default values for the parameters, as YAML text.", max_length=limits.DOCUMENT),
    "annotations": with_description(
        STRING_MAP, "Annotations for all deployed objects, but for those that an object has in the chart already."
    ),
}

SPEC = obj(
    "Content of the app, and access to it.",
    displayName=DISPLAY_NAME,
    description=DESCRIPTION,
    icon=string("URL of an icon: https or data:image. The console shows data:image URLs only.", max_length=limits.ICON),
    owner=OWNER,
    access=ACCESS,
    recommendedApp=array(string(), "Where the app is recommended: `cluster`, `space`, `virtualcluster`."),
    clusters=array(
        string(), "Connected clusters that the app is for. Empty means all of them.", max_items=limits.ALLOWED_OBJECTS
    ),
    defaultNamespace=string("Default namespace for deployments of the app."),
    readme=string("Description of the app in Markdown. HTML in it is not rendered.", max_length=limits.README),
    wait=boolean("Wait until all deployed objects are ready. Defaults to false."),
    timeout=string("Timeout of a deployment, from `1s` to `30m`, such as `90s`. Defaults to `5m`."),
    config=obj("Content of an unversioned app.", **_CONFIG),
    parameters=PARAMETERS,
    versions=array(
        obj(
            **_CONFIG,
            version=string("Version with three components, such as `1.4.0`."),
        ),
        "Content of a versioned app, one entry for each version.",
        max_items=limits.VERSIONS,
    ),
    streamContainer=without_effect(
        open_object("The container whose output was shown during a deployment."), "is deprecated and has no effect"
    ),
    manifests=string(
        "DEPRECATED: use config.manifests. Kubernetes objects to create, as YAML text.", max_length=limits.DOCUMENT
    ),
    helm=obj(
        "DEPRECATED: use config.chart. A Helm chart to deploy.",
        name=CHART["name"],
        repoUrl=CHART["repoURL"],
        version=CHART["version"],
        username=CHART["username"],
        password=CHART["password"],
        insecure=CHART["insecureSkipTlsVerify"],
        values=string("Values for the chart, as YAML text.", max_length=limits.DOCUMENT),
    ),
)

STATUS = open_object("Status of the app. Not a subresource: it is written with the permission to update the app.")

FIELDS = {"spec": SPEC, "status": STATUS}

_DEPRECATED = {
    "manifests": "use spec.config.manifests",
    "helm": "use spec.config.chart",
}


def warn_deprecated(change: Change) -> None:
    """Adds a warning for each deprecated field that is set."""
    spec = change.spec
    if _DEPRECATED.keys().isdisjoint(spec):
        return
    for field, advice in _DEPRECATED.items():
        if spec.get(field):
            change.warnings.append(f"spec.{field} is deprecated: {advice}")


def check(change: Change) -> Iterable[Problem]:
    spec = change.spec
    yield from owner_problems(spec)
    timeout = spec.get("timeout") or ""
    if timeout and timeout != get_path(change.old, "spec.timeout") and parse_timeout(timeout) is None:
        yield Problem.invalid("spec.timeout", timeout, TIMEOUT_RULE)
    known = [get_path(each, "annotations") for _, each in _configs((change.old or {}).get("spec") or {})]
    scripts = [get_path(each, "bash") for _, each in _configs((change.old or {}).get("spec") or {})]
    for path, config in _configs(spec):
        yield from _source_problems(path, config)
        if get_path(config, "bash") not in scripts:
            yield from _script_problems(path, config)
        if get_path(config, "annotations") not in known:  # what was stored before there were rules may stay
            yield from _annotation_problems(path, config)


def _configs(spec: Object) -> Iterable[tuple[str, Any]]:
    """The contents of an App, with their paths."""
    yield "spec.config", spec.get("config")
    for index, version in enumerate(spec.get("versions") or ()):
        yield f"spec.versions[{index}]", version


def _source_problems(path: str, config: Any) -> Iterable[Problem]:
    """Reports more than one source. A chart without name and URL, an empty script and empty manifests do not count."""
    if not config:
        return
    found = {
        "chart": get_path(config, "chart.name") or get_path(config, "chart.repoURL"),
        "manifests": get_path(config, "manifests"),
        "bash": get_path(config, "bash.script"),
    }
    first, *others = [name for name, value in found.items() if value] or [""]
    for other in others:
        yield Problem.forbidden(f"{path}.{other}", f"{path}.{first} is set too; keep one of chart, manifests and bash")


def _script_problems(path: str, config: Any) -> Iterable[Problem]:
    bash = get_path(config, "bash") or {}
    for field, problem in find_script_problems(bash):
        value = bash.get(field) if field != "script" else ""
        yield Problem.invalid(f"{path}.bash.{field}", value or "", problem)


def _annotation_problems(path: str, config: Any) -> Iterable[Problem]:
    annotations = get_path(config, "annotations") or {}
    for key, problem in find_annotation_problems(annotations):
        yield Problem.invalid(f"{path}.annotations", key, problem)
    if sum(len(key) + len(value or "") for key, value in annotations.items()) > limits.ANNOTATIONS_BYTES:
        yield Problem.too_long(f"{path}.annotations", limits.ANNOTATIONS_BYTES)


def _recommended(app: Object) -> str:
    return ",".join(get_path(app, "spec.recommendedApp") or ())


APP = Kind(
    name="App",
    plural="apps",
    namespaced=False,
    fields=FIELDS,
    description="An application or script that can be deployed into clusters, spaces and virtual clusters.",
    categories=(CATEGORY,),
    columns=(
        Column("Display Name", "spec.displayName", description="Human-readable name."),
        Column("Chart", "spec.config.chart.name", description="Chart that is deployed."),
        Column("Version", "spec.config.chart.version", description="Version of that chart."),
        Column("Repository", "spec.config.chart.repoURL", description="Repository of the chart.", wide=True),
        Column("Recommended", _recommended, description="Where the app is recommended.", wide=True),
    ),
    selectable=("spec.config.chart.name", "spec.owner.user"),
    sensitive=password_paths(FIELDS),
    write_only=password_paths(FIELDS),
    safe_siblings=password_independent_fields(FIELDS),
    has_access_entries=True,
    default=warn_deprecated,
    check=check,
    sensitivity=Sensitivity.NORMAL,
)
