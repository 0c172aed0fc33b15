"""`fairlead cluster`: lists, shows and checks connected clusters, and prints agent keys.

`cluster_add.py`, `cluster_role.py` and `cluster_remove.py` have the other subcommands.
"""

from datetime import UTC, datetime
from typing import Annotated

import typer

from fairlead.cli.resources import cluster_add, cluster_remove, cluster_role
from fairlead.cli.resources.cluster_add import CLUSTERS
from fairlead.cli.resources.cluster_status import (
    BAD,
    COLUMNS,
    GOOD,
    advice,
    is_healthy,
    probe_lines,
    summary_line,
    table_row,
)
from fairlead.cli.resources.runner import print_key
from fairlead.cli.ui.completion import complete_names
from fairlead.cli.ui.flags import ContextFlag, OutputFlag
from fairlead.cli.ui.groups import create_group
from fairlead.cli.ui.output import Output, escape_control, print_data, print_note
from fairlead.cli.ui.resource_commands import COMMON_DETAILS, Resource, add_list_command, add_show_command
from fairlead.cli.ui.session import open_session
from fairlead.core.objects import Object

NameArgument = Annotated[str, typer.Argument(help="Name of the cluster.", autocompletion=complete_names(CLUSTERS))]

group = create_group("Connect, list, show, check and remove clusters, and print the keys of their agents.")
group.command("add")(cluster_add.command)
group.command("role")(cluster_role.command)
group.command("remove")(cluster_remove.command)

RESOURCE = Resource(
    plural=CLUSTERS,
    kind="Cluster",
    noun="cluster",
    columns=COLUMNS,
    row=table_row,
    empty_message="no clusters; connect one with `fairlead cluster add`",
    details=(
        *COMMON_DETAILS,
        ("nodes", "status.nodes"),
        ("secret", "spec.config.secretName"),
        ("unusable", "spec.unusable"),
        ("last probe", "status.lastProbeTime"),
        ("message", "status.message"),
    ),
)
add_list_command(group, RESOURCE, "List connected clusters.")
add_show_command(group, RESOURCE)


@group.command("check")
def check(name: NameArgument, context: ContextFlag = None, output: OutputFlag = Output.TABLE) -> None:
    """Show the results of the last probe of a cluster, and how to fix failures.

    The exit code is 1 if the cluster is not healthy.
    """
    with open_session(context) as session:
        cluster = session.client.get(CLUSTERS, name)
        if output is Output.TABLE:
            _print_check(cluster)
        else:
            print_data(cluster, output)
        if not is_healthy(cluster):
            raise typer.Exit(1)


def _print_check(cluster: Object) -> None:
    mark = GOOD if is_healthy(cluster) else BAD
    for line in (*probe_lines(cluster), f"{mark} {summary_line(cluster)}"):
        print(escape_control(line))
    for line in advice(cluster, datetime.now(UTC)):
        print_note(line)


@group.command("key")
def key(name: NameArgument, context: ContextFlag = None, output: OutputFlag = Output.TABLE) -> None:
    """Print the access key of a cluster's agent. It does not change between calls."""
    with open_session(context) as session:
        print_key(session.client.get(CLUSTERS, name, "accesskey"), output)
