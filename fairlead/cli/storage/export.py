"""`fairlead export`: what other servers can be given of this one, without a server running."""

from typing import Annotated

import typer

group = typer.Typer(no_args_is_help=True, help="Print what other servers can be given of this one.")


@group.callback()
def root() -> None:
    """Print what other servers can be given of this one."""


@group.command("crds")
def crds(
    api_group: Annotated[
        str, typer.Option("--api-group", help="API group of the kinds, as the server's setting has it.")
    ] = "management.service.sh",
) -> None:
    """Print the management kinds as CustomResourceDefinitions, in YAML.

    A kube-apiserver takes them (1.32 or newer for selectable fields): [bold]fairlead export crds | kubectl apply
    --server-side -f -[/bold]. It then stores and serves such objects; nothing acts on them there.
    """
    import json

    import yaml

    from fairlead.app.maintenance import management_crds

    # Schemas share their parts. Each is to be written out: YAML's anchors would be refused by some readers.
    definitions = json.loads(json.dumps(management_crds(api_group)))
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    print(yaml.dump_all(definitions, Dumper=dumper, sort_keys=False, width=120), end="")
