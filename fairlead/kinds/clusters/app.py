"""App: a package of an application or script that admins make available for clusters, spaces and virtual clusters."""

from collections.abc import Iterable, Mapping
from typing import Any

from fairlead.core.objects import Object, dig
from fairlead.kinds.fields import (
    ACCESS,
    CATEGORY,
    CHART,
    DESCRIPTION,
    DISPLAY_NAME,
    OWNER,
    PARAMETERS,
    TEXT_MAP,
    owner_problems,
    passwords,
    unbound_from_passwords,
)
from fairlead.registry import limits
from fairlead.registry.kind import Change, Column, Kind, Problem
from fairlead.registry.schema import array, boolean, described, free, obj, string

_CONFIG: Mapping[str, Any] = {
    "chart": obj("A chart to deploy. One of chart, manifests and bash.", **CHART),
    "manifests": string(
        "Kubernetes objects to create, as YAML text. One of chart, manifests and bash.", longest=limits.DOCUMENT
    ),
    "bash": obj(
        "A script to run in a pod in the target cluster. One of chart, manifests and bash.",
        script=string("The script itself.", longest=limits.DOCUMENT),
        image=string("Image of the container that the script runs in."),
        clusterRole=string("Cluster role that the pod gets in the target cluster."),
        podSecurityContext=free("Security context of the pod, as Kubernetes has it."),
        securityContext=free("Security context of the container, as Kubernetes has it."),
    ),
    "values": string(
        "Values for the chart, as YAML text. Parameters can be used in it as template variables.",
        longest=limits.DOCUMENT,
    ),
    "parameters": string(
        "Values for the parameters when nobody chooses others, as YAML text.", longest=limits.DOCUMENT
    ),
    "annotations": described(TEXT_MAP, "Annotations for what is deployed."),
}

SPEC = obj(
    "What the app is and who may use it.",
    displayName=DISPLAY_NAME,
    description=DESCRIPTION,
    icon=string(
        "URL of an icon: https, or data:image of a picture. The console shows https URLs only.", longest=limits.PICTURE
    ),
    owner=OWNER,
    access=ACCESS,
    recommendedApp=array(string(), "Where the app is recommended: `cluster`, `space`, `virtualcluster`."),
    clusters=array(
        string(), "Connected clusters that the app is meant for. Empty means all of them.", most=limits.ALLOWED
    ),
    defaultNamespace=string("Namespace that the app goes to when nobody names another."),
    readme=string("Longer text about the app, in Markdown. Shown without any HTML in it.", longest=limits.README),
    wait=boolean("Wait until everything that was deployed is ready. Defaults to false."),
    timeout=string("How long a deployment may take, such as `90s`. Defaults to `5m0s`."),
    config=obj("What is deployed, for an app without versions.", **_CONFIG),
    parameters=PARAMETERS,
    versions=array(
        obj(
            **_CONFIG,
            version=string("Version in three parts, such as `1.4.0`."),
        ),
        "What is deployed, for an app with versions: one entry for each.",
        most=limits.VERSIONS,
    ),
    streamContainer=free("DEPRECATED, kept as sent. The container whose output was shown during a deployment."),
    manifests=string(
        "DEPRECATED: use config.manifests. Kubernetes objects to create, as YAML text.", longest=limits.DOCUMENT
    ),
    helm=obj(
        "DEPRECATED: use config.chart. A chart to deploy.",
        name=CHART["name"],
        repoUrl=CHART["repoURL"],
        version=CHART["version"],
        username=CHART["username"],
        password=CHART["password"],
        insecure=CHART["insecureSkipTlsVerify"],
        values=string("Values for the chart, as YAML text.", longest=limits.DOCUMENT),
    ),
)

STATUS = free("What became of the app. A part of the object like any other: whoever may update the app may write it.")

FIELDS = {"spec": SPEC, "status": STATUS}

_DEPRECATED = {
    "streamContainer": "nothing reads it any more",
    "manifests": "use spec.config.manifests",
    "helm": "use spec.config.chart",
}


def warn(change: Change) -> None:
    """Deprecated fields stay and work, but their users hear of it."""
    spec = change.spec
    if _DEPRECATED.keys().isdisjoint(spec):
        return
    for field, advice in _DEPRECATED.items():
        if spec.get(field):
            change.warnings.append(f"spec.{field} is deprecated: {advice}")


def check(change: Change) -> Iterable[Problem]:
    spec = change.spec
    yield from owner_problems(spec)
    yield from _one_source("spec.config", spec.get("config"))
    for index, version in enumerate(spec.get("versions") or ()):
        yield from _one_source(f"spec.versions[{index}]", version)


def _one_source(path: str, config: Any) -> Iterable[Problem]:
    """A chart counts once it says which or where; an empty script or empty text is none."""
    if not config:
        return
    found = {
        "chart": dig(config, "chart.name") or dig(config, "chart.repoURL"),
        "manifests": dig(config, "manifests"),
        "bash": dig(config, "bash.script"),
    }
    first, *others = [name for name, value in found.items() if value] or [""]
    for other in others:
        yield Problem.forbidden(f"{path}.{other}", f"{path}.{first} is set too; keep one of chart, manifests and bash")


def _recommended(app: Object) -> str:
    return ",".join(dig(app, "spec.recommendedApp") or ())


APP = Kind(
    name="App",
    plural="apps",
    namespaced=False,
    fields=FIELDS,
    description="An application or script that can be deployed into clusters, spaces and virtual clusters.",
    categories=(CATEGORY,),
    columns=(
        Column("Display Name", "spec.displayName", description="Name shown to people."),
        Column("Chart", "spec.config.chart.name", description="Chart that is deployed."),
        Column("Version", "spec.config.chart.version", description="Version of that chart."),
        Column("Repository", "spec.config.chart.repoURL", description="Where the chart comes from.", wide=True),
        Column("Recommended", _recommended, description="Where the app is recommended.", wide=True),
    ),
    selectable=("spec.config.chart.name", "spec.owner.user"),
    secret=passwords(FIELDS),
    hidden=passwords(FIELDS),
    unbound=unbound_from_passwords(FIELDS),
    shared=True,
    prepare=warn,
    check=check,
)
