"""`fairlead app`: lists, shows and deletes the apps that administrators have published."""

from collections.abc import Iterator, Sequence
from datetime import datetime

import typer

from fairlead.cli.ui.describe import cell, joined_cell, owner_cell
from fairlead.cli.ui.durations import age
from fairlead.cli.ui.resource_commands import (
    Deletion,
    Resource,
    add_delete_command,
    add_list_command,
    add_show_command,
)
from fairlead.cli.ui.session import Session
from fairlead.core.objects import Object, get_path, name_of

COLUMNS = ("NAME", "DISPLAY NAME", "DEPLOYS", "VERSIONS", "RECOMMENDED FOR", "AGE")
SOURCES = (("chart", "chart.name"), ("manifests", "manifests"), ("script", "bash.script"))


def table_row(app: Object, now: datetime) -> Sequence[str]:
    return (
        name_of(app),
        cell(app, "spec.displayName"),
        describe_source(get_path(app, "spec.config")),
        joined_cell({"versions": _list_versions(app)}, "versions"),
        joined_cell(app, "spec.recommendedApp"),
        age(get_path(app, "metadata.creationTimestamp"), now),
    )


def describe_source(config: object) -> str:
    """The chart with its version, or `manifests` or `script`."""
    for label, field in SOURCES:
        if value := get_path(config, field):
            version = get_path(config, "chart.version")
            return label if label != "chart" else f"chart {value}" + (f" {version}" if version else "")
    return "-"


def describe_rows(session: Session, app: Object) -> list[tuple[str, str]]:
    return [
        ("name", name_of(app)),
        ("display name", str(get_path(app, "spec.displayName") or "")),
        ("description", str(get_path(app, "spec.description") or "")),
        ("owner", owner_cell(app).strip("-")),
        ("deploys", describe_source(get_path(app, "spec.config")).strip("-")),
        ("from", str(get_path(app, "spec.config.chart.repoURL") or "")),
        ("versions", ", ".join(_list_versions(app))),
        ("namespace", str(get_path(app, "spec.defaultNamespace") or "")),
        ("recommended", ", ".join(get_path(app, "spec.recommendedApp") or ())),
        *_parameter_rows(app),
    ]


def _list_versions(app: Object) -> list[str]:
    return [str(each.get("version")) for each in get_path(app, "spec.versions") or ()]


def _parameter_rows(app: Object) -> Iterator[tuple[str, str]]:
    for number, each in enumerate(get_path(app, "spec.parameters") or ()):
        label = f" ({each['label']})" if each.get("label") else ""
        required = ", required" if each.get("required") else ""
        yield "" if number else "parameters", f"{each.get('variable')}: {each.get('type') or 'string'}{required}{label}"


APPS = Resource("apps", "App", "app", COLUMNS, table_row, "no apps; administrators create them with `kubectl apply`")

group = typer.Typer(help="List, show and delete apps.", no_args_is_help=True)
add_list_command(group, APPS)
add_show_command(group, APPS, "Show one app: what it deploys, and which parameters it takes.", describe_rows)
add_delete_command(group, APPS, Deletion("Delete an app.", question="Delete the app {name}?"))
