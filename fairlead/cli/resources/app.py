"""`fairlead app`: lists and shows the apps that administrators have published."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Annotated

import typer

from fairlead.cli.ui.completion import names_of
from fairlead.cli.ui.describe import joined, owner_of, print_object, text
from fairlead.cli.ui.durations import since
from fairlead.cli.ui.flags import ContextFlag, NamedOutputFlag, takes
from fairlead.cli.ui.list import Listing, Shown, show_all
from fairlead.cli.ui.output import NamedOutput
from fairlead.cli.ui.session import connected
from fairlead.core.objects import Object, dig, name_of

APPS = "apps"
SOURCES = (("chart", "chart.name"), ("manifests", "manifests"), ("script", "bash.script"))

group = typer.Typer(help="List and show apps.", no_args_is_help=True)


@group.command("list")
@takes(Shown)
def list_apps(shown: Shown) -> None:
    """List apps."""
    show_all(LISTING, shown)


@group.command("show")
def show(
    name: Annotated[str, typer.Argument(help="Name of the app.", autocompletion=names_of(APPS))],
    context: ContextFlag = None,
    output: NamedOutputFlag = NamedOutput.TABLE,
) -> None:
    """Show one app: what it deploys, and which parameters it takes."""
    with connected(context) as session:
        found = session.client.get(APPS, name)
        print_object(found, output, described(found))


def row(app: Object, now: datetime) -> Sequence[str]:
    return (
        name_of(app),
        text(app, "spec.displayName"),
        source(dig(app, "spec.config")),
        joined({"versions": _versions(app)}, "versions"),
        joined(app, "spec.recommendedApp"),
        since(dig(app, "metadata.creationTimestamp"), now),
    )


COLUMNS = ("NAME", "DISPLAY NAME", "DEPLOYS", "VERSIONS", "RECOMMENDED FOR", "AGE")
LISTING = Listing(APPS, "App", COLUMNS, row, "no apps; administrators create them with `kubectl apply`")


def source(config: object) -> str:
    """The chart with its version, or `manifests` or `script`."""
    for label, field in SOURCES:
        if value := dig(config, field):
            version = dig(config, "chart.version")
            return label if label != "chart" else f"chart {value}" + (f" {version}" if version else "")
    return "-"


def described(app: Object) -> list[tuple[str, str]]:
    return [
        ("name", name_of(app)),
        ("display name", str(dig(app, "spec.displayName") or "")),
        ("description", str(dig(app, "spec.description") or "")),
        ("owner", owner_of(app).strip("-")),
        ("deploys", source(dig(app, "spec.config")).strip("-")),
        ("from", str(dig(app, "spec.config.chart.repoURL") or "")),
        ("versions", ", ".join(_versions(app))),
        ("namespace", str(dig(app, "spec.defaultNamespace") or "")),
        ("recommended", ", ".join(dig(app, "spec.recommendedApp") or ())),
        *_parameters(app),
    ]


def _versions(app: Object) -> list[str]:
    return [str(each.get("version")) for each in dig(app, "spec.versions") or ()]


def _parameters(app: Object) -> Iterator[tuple[str, str]]:
    for number, each in enumerate(dig(app, "spec.parameters") or ()):
        label = f" ({each['label']})" if each.get("label") else ""
        required = ", required" if each.get("required") else ""
        yield "" if number else "parameters", f"{each.get('variable')}: {each.get('type') or 'string'}{required}{label}"
