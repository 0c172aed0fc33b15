"""`fairlead app`: lists and shows the apps that administrators have published."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Annotated

import typer

from fairlead.cli.ui.completion import complete_names
from fairlead.cli.ui.describe import cell, joined_cell, owner_cell, print_object
from fairlead.cli.ui.durations import age
from fairlead.cli.ui.flags import ContextFlag, NamedOutputFlag, options_from
from fairlead.cli.ui.list import Listing, ListOptions, run_list_command
from fairlead.cli.ui.output import NamedOutput
from fairlead.cli.ui.session import open_session
from fairlead.core.objects import Object, get_path, name_of

APPS = "apps"
SOURCES = (("chart", "chart.name"), ("manifests", "manifests"), ("script", "bash.script"))

group = typer.Typer(help="List and show apps.", no_args_is_help=True)


@group.command("list")
@options_from(ListOptions)
def list_apps(options: ListOptions) -> None:
    """List apps."""
    run_list_command(LISTING, options)


@group.command("show")
def show(
    name: Annotated[str, typer.Argument(help="Name of the app.", autocompletion=complete_names(APPS))],
    context: ContextFlag = None,
    output: NamedOutputFlag = NamedOutput.TABLE,
) -> None:
    """Show one app: what it deploys, and which parameters it takes."""
    with open_session(context) as session:
        found = session.client.get(APPS, name)
        print_object(found, output, describe_rows(found))


def table_row(app: Object, now: datetime) -> Sequence[str]:
    return (
        name_of(app),
        cell(app, "spec.displayName"),
        describe_source(get_path(app, "spec.config")),
        joined_cell({"versions": _list_versions(app)}, "versions"),
        joined_cell(app, "spec.recommendedApp"),
        age(get_path(app, "metadata.creationTimestamp"), now),
    )


COLUMNS = ("NAME", "DISPLAY NAME", "DEPLOYS", "VERSIONS", "RECOMMENDED FOR", "AGE")
LISTING = Listing(APPS, "App", COLUMNS, table_row, "no apps; administrators create them with `kubectl apply`")


def describe_source(config: object) -> str:
    """The chart with its version, or `manifests` or `script`."""
    for label, field in SOURCES:
        if value := get_path(config, field):
            version = get_path(config, "chart.version")
            return label if label != "chart" else f"chart {value}" + (f" {version}" if version else "")
    return "-"


def describe_rows(app: Object) -> list[tuple[str, str]]:
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
