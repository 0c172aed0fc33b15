"""`fairlead app`: creates, lists, shows and deletes apps, which administrators publish, and installs them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from fairlead.cli.resources.app_instance import add_commands
from fairlead.cli.ui.describe import (
    age_cell,
    build_object,
    cell,
    drop_none,
    joined_cell,
    label_first,
    owner_cell,
    text_of,
)
from fairlead.cli.ui.flags import ContextFlag, DescriptionFlag, DisplayNameFlag, ObjectOutputFlag, flag
from fairlead.cli.ui.groups import create_group
from fairlead.cli.ui.output import TABLE
from fairlead.cli.ui.resource_commands import (
    Deletion,
    NewObject,
    Resource,
    add_delete_command,
    add_list_command,
    add_show_command,
    create_command,
)
from fairlead.cli.ui.session import Session, UsageError, read_input
from fairlead.core.objects import Object, get_path, name_of

COLUMNS = ("NAME", "DISPLAY NAME", "DEPLOYS", "VERSIONS", "RECOMMENDED FOR", "AGE")
OCI = "oci://"
PLACEHOLDER = "{{"
"""How a reference to a parameter begins. What it stands for is known when the app is installed."""
SOURCES = (("chart", "chart.name"), ("manifests", "manifests"), ("script", "bash.script"))


def table_row(app: Object, now: datetime) -> Sequence[str]:
    return (
        name_of(app),
        cell(app, "spec.displayName"),
        describe_source(get_path(app, "spec.config")),
        joined_cell({"versions": _list_versions(app)}, "versions"),
        joined_cell(app, "spec.recommendedApp"),
        age_cell(app, now),
    )


def describe_source(config: object) -> str:
    """The chart with its version, or `manifests` or `script`."""
    for label, path in SOURCES:
        if value := get_path(config, path):
            version = get_path(config, "chart.version")
            return label if label != "chart" else f"chart {value}" + (f" {version}" if version else "")
    return "-"


def describe_rows(session: Session, app: Object) -> list[tuple[str, str]]:
    return [
        ("name", name_of(app)),
        ("display name", text_of(app, "spec.displayName")),
        ("description", text_of(app, "spec.description")),
        ("owner", owner_cell(app).strip("-")),
        ("deploys", describe_source(get_path(app, "spec.config")).strip("-")),
        ("from", text_of(app, "spec.config.chart.repoURL")),
        ("versions", ", ".join(_list_versions(app))),
        ("namespace", text_of(app, "spec.defaultNamespace")),
        ("recommended", ", ".join(get_path(app, "spec.recommendedApp") or ())),
        *label_first("parameters", map(_describe_parameter, get_path(app, "spec.parameters") or ())),
    ]


def _list_versions(app: Object) -> list[str]:
    return [str(each.get("version")) for each in get_path(app, "spec.versions") or ()]


def _describe_parameter(parameter: Object) -> str:
    label = f" ({parameter['label']})" if parameter.get("label") else ""
    required = ", required" if parameter.get("required") else ""
    return f"{parameter.get('variable')}: {parameter.get('type') or 'string'}{required}{label}"


APPS = Resource(
    plural="apps",
    kind="App",
    noun="app",
    columns=COLUMNS,
    row=table_row,
    empty_message="no apps; create one with `fairlead app create`",
)

group = create_group("Create, list, show and delete apps; install, upgrade, roll back and uninstall them.")


@dataclass(frozen=True, slots=True)
class ContentOptions:
    """What the app deploys: a chart, manifests, or a script."""

    chart: Annotated[
        str | None,
        flag("--chart", help="Name of a Helm chart in the repository --repo, not a folder or a file.", metavar="CHART"),
    ] = None
    repo: Annotated[
        str | None, flag("--repo", help="Repository of the chart: https://HOST/PATH or oci://HOST/PATH.", metavar="URL")
    ] = None
    chart_version: Annotated[
        str | None, flag("--chart-version", help="Version of the chart.", metavar="V", default="latest")
    ] = None
    values: Annotated[Path | None, flag("--values", help="YAML file with values for the chart.", metavar="FILE")] = None
    manifests: Annotated[Path | None, flag("--manifests", help="YAML file with objects to deploy.", metavar="FILE")] = (
        None
    )
    script: Annotated[
        Path | None, flag("--script", help="Script to run in a pod of the target cluster.", metavar="FILE")
    ] = None
    image: Annotated[str | None, flag("--image", help="Image in which the script runs.", metavar="IMAGE")] = None


@dataclass(frozen=True, slots=True)
class AppCreateOptions:
    name: Annotated[str, typer.Argument(help="Name of the app.")]
    content: ContentOptions = field(default_factory=ContentOptions)
    display_name: DisplayNameFlag = None
    description: DescriptionFlag = None
    parameter: Annotated[
        list[str] | None,
        flag(
            "--parameter",
            help="Parameter that users can set, with its default. `{{ parameters.NAME }}` in the values inserts it; a "
            "script has it in the variable PARAMETER_NAME. Repeatable.",
            metavar="NAME[=DEFAULT]",
        ),
    ] = None
    default_namespace: Annotated[
        str | None, flag("--default-namespace", help="Namespace to deploy it to.", metavar="NS")
    ] = None
    recommended: Annotated[
        list[str] | None,
        flag(
            "--recommended-for",
            help="Where it is recommended: cluster, space or virtualcluster. Repeatable.",
            metavar="PLACE",
        ),
    ] = None
    visible_to_all: Annotated[
        bool,
        typer.Option(
            "--visible-to-all", help="Let all users see and install it; otherwise administrators and its owner."
        ),
    ] = False
    context: ContextFlag = None
    output: ObjectOutputFlag = TABLE


@create_command(group, APPS, AppCreateOptions)
def build_app(session: Session, options: AppCreateOptions) -> NewObject:
    """Create an app: a Helm chart, manifests, or a script, that users can deploy."""
    spec = {
        "displayName": options.display_name,
        "description": options.description,
        "defaultNamespace": options.default_namespace,
        "recommendedApp": options.recommended or None,
        "access": [{"users": ["*"], "verbs": ["get", "use"]}] if options.visible_to_all else None,
        "config": _build_config(options.content),
        "parameters": [_build_parameter(each) for each in options.parameter or ()] or None,
    }
    return NewObject(build_object(APPS.kind, options.name, spec), f"created the app {options.name}")


def _build_config(content: ContentOptions) -> Object:
    if sum(map(bool, (content.chart, content.manifests, content.script))) != 1:
        raise UsageError("set what the app deploys: one of --chart, --manifests and --script")
    if not content.chart and (content.repo or content.chart_version or content.values):
        raise UsageError("--repo, --chart-version and --values are for a chart; leave them out, or set --chart")
    if bool(content.script) != bool(content.image):
        raise UsageError("--script and --image belong together; set both, or none")
    if content.script:
        return {"bash": {"script": _read_text(content.script), "image": content.image}}
    if content.manifests:
        return {"manifests": _read_text(content.manifests)}
    _check_chart(content.chart or "", content.repo or "")
    chart = {"name": content.chart, "repoURL": content.repo, "version": content.chart_version}
    return drop_none({"chart": drop_none(chart), "values": _read_text(content.values) if content.values else None})


def _check_chart(chart: str, repo: str) -> None:
    """Refuses what no server could download. It checks the rest when it deploys the chart, with its parameters."""
    if PLACEHOLDER in chart + repo:
        return
    if chart.startswith(OCI):
        parent, _, name = chart.rpartition("/")
        raise UsageError(f"--chart is the name of a chart in a repository; set --chart {name} --repo {parent}")
    if "/" in chart or chart.endswith(".tgz") or chart in (".", ".."):
        raise UsageError(
            f"--chart {chart} is a folder or a file of this machine, which the server cannot read; run `helm package` "
            "and `helm push`, and set --chart to the name of the chart and --repo to the oci:// or https:// repository"
        )
    if not repo.startswith(("https://", OCI)):
        given = f"--repo {repo} is neither an https:// nor an oci:// URL" if repo else "--chart needs a repository"
        raise UsageError(
            f"{given}; set --repo to the one that has the chart {chart}, such as https://charts.example.com or "
            "oci://registry.example.com/charts. A folder must be packaged (`helm package`) and pushed (`helm push`)"
        )


def _build_parameter(text: str) -> Object:
    name, equals, default = text.partition("=")
    return {"variable": name, "defaultValue": default} if equals else {"variable": name, "required": True}


def _read_text(path: Path) -> str:
    return read_input(path, "check the path").decode(errors="replace")


add_list_command(group, APPS)
add_show_command(group, APPS, "Show one app: what it deploys, and which parameters it takes.", describe_rows)
add_delete_command(group, APPS, Deletion("Delete an app.", question="Delete the app {name}?"))
add_commands(group)
