"""`fairlead export`: prints definitions for other API servers. Works without a running server."""

from typing import Annotated

import typer

from fairlead.cli.ui.groups import create_group

group = create_group("Export definitions for other API servers.")


@group.callback()
def root() -> None:
    """Export definitions for other API servers."""


@group.command("crds")
def crds(
    api_group: Annotated[
        str, typer.Option("--api-group", help="API group of the kinds; the server's setting api_group.")
    ] = "management.service.sh",
) -> None:
    """Print the management kinds as CustomResourceDefinitions, in YAML.

    For kube-apiserver 1.32 or newer (selectable fields): [bold]fairlead export crds | kubectl apply
    --server-side -f -[/bold]. It then stores and serves the objects; no controllers act on them there.
    """
    import json

    import yaml

    from fairlead.app.maintenance import management_crds

    # The JSON round trip expands shared schemas, which would become YAML anchors that some parsers reject.
    definitions = json.loads(json.dumps(management_crds(api_group)))
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    print(yaml.dump_all(definitions, Dumper=dumper, sort_keys=False, width=120), end="")
