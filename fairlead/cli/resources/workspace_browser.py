"""`fairlead workspace browse` and `share`: ports of a workspace in a browser, and who else may open them."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from fairlead.cli.resources.ssh_files import WORKSPACES
from fairlead.cli.resources.workspace_ssh import NameArgument
from fairlead.cli.ui.durations import format_duration, parse_duration
from fairlead.cli.ui.flags import ContextFlag, RequiredProjectFlag, options_from
from fairlead.cli.ui.output import print_note
from fairlead.cli.ui.session import UsageError, open_session, project_namespace
from fairlead.cli.workspaces.commands import has_desktop
from fairlead.client import ClientError
from fairlead.core.clock import timestamp
from fairlead.core.objects import annotations_of, get_path, metadata

SHARES_ANNOTATION = "service.sh/port-shares"
ADDED = frozenset({"until", "uid", "by", "byUID"})
"""What does not tell shares apart: most of it is added by the server."""
MAX_SHARE_SECONDS = 7 * 24 * 3600
DEFAULT_SHARE_SECONDS = 8 * 3600
PROJECT, USER_PREFIX = "project", "User:"

PortArgument = Annotated[int, typer.Argument(help="Number of the port.", metavar="PORT", min=1, max=65535)]
Share = dict[str, Any]


def parse_share_duration(value: int | str) -> int:
    return value if isinstance(value, int) else parse_duration(value)


def browse(
    name: NameArgument,
    port: PortArgument,
    project: RequiredProjectFlag,
    print_only: Annotated[bool, typer.Option("--print", help="Print the address, and open nothing.")] = False,
    context: ContextFlag = None,
) -> None:
    """Open a port of a workspace in the browser, or print its address.

    The browser has to be signed in to the console: the address contains no key.
    """
    with open_session(context) as session:
        namespace = project_namespace(session, project)
        body = {"spec": {"port": port}}
        response = session.client.invoke_action(WORKSPACES, name, "portaccess", body, namespace=namespace)
    address = str(get_path(response, "status.url") or "")
    if not address.startswith("https://"):
        raise ClientError("the server has sent no https address for the port")
    print(address)
    if not print_only and has_desktop() and typer.launch(address):
        raise ClientError("no program on this machine opens the address; open it in a browser yourself")


@dataclass(frozen=True, slots=True)
class ShareOptions:
    name: NameArgument
    port: PortArgument
    project: RequiredProjectFlag
    partner: Annotated[
        str, typer.Option("--with", help="`project` for all its members, or `User:NAME`.", metavar="WHOM")
    ] = PROJECT
    duration: Annotated[
        int, typer.Option("--for", help="How long, like 8h. At most 7d.", metavar="TIME", parser=parse_share_duration)
    ] = DEFAULT_SHARE_SECONDS
    end: Annotated[bool, typer.Option("--end", help="End the share.")] = False
    context: ContextFlag = None


@options_from(ShareOptions)
def share(options: ShareOptions) -> None:
    """Share a port of a workspace with others for some time, or end that with --end.

    They open it with `fairlead workspace browse`, and get nothing else of the workspace.
    """
    name = options.name
    port = options.port
    partner = options.partner
    target = parse_partner(partner)
    if not 0 < options.duration <= MAX_SHARE_SECONDS:
        longest = format_duration(MAX_SHARE_SECONDS)
        raise UsageError(f"--for: a share lasts at most {longest}; share it again when that is over")
    now = int(datetime.now(UTC).timestamp())
    with open_session(options.context) as session:
        namespace = project_namespace(session, options.project)
        workspace = session.client.get(WORKSPACES, name, namespace=namespace)
        text = annotations_of(workspace).get(SHARES_ANNOTATION) or "[]"
        shares = remaining_shares(text, {"port": port, **target}, now)
        if not options.end:
            shares.append({"port": port, **target, "until": now + options.duration})
        value = json.dumps(shares) if shares else None
        # With the version that was read, so that a share that another user adds at this moment is not lost.
        change = {
            "metadata": {
                "resourceVersion": metadata(workspace)["resourceVersion"],
                "annotations": {SHARES_ANNOTATION: value},
            }
        }
        session.client.patch(WORKSPACES, name, change, namespace=namespace)
    if options.end:
        print_note(f"port {port} of the workspace {name} is no longer shared with {partner}")
    else:
        until = timestamp(datetime.fromtimestamp(now + options.duration, UTC))
        print_note(f"port {port} of the workspace {name} is shared with {partner} until {until}")


def parse_partner(text: str) -> Share:
    if text == PROJECT:
        return {"project": True}
    if text.startswith(USER_PREFIX) and len(text) > len(USER_PREFIX):
        return {"user": text.removeprefix(USER_PREFIX)}
    raise UsageError(f"--with {text}: must be `project`, or `User:` with the name of a user, like User:ada")


def remaining_shares(text: str, replaced: Share, now: int) -> list[Share]:
    """The shares that are not over, without the one that is replaced. What is not a list of shares is replaced, too."""
    try:
        found = json.loads(text)
    except ValueError:
        return []
    shares = [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
    current = [each for each in shares if isinstance(each.get("until"), int) and each["until"] > now]
    return [each for each in current if {key: each[key] for key in each.keys() - ADDED} != replaced]


def add_browser_commands(group: typer.Typer) -> None:
    group.command("browse")(browse)
    group.command("share")(share)
