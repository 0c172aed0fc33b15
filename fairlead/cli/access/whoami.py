"""`fairlead whoami`: shows the authenticated identity, and the scope of the key in use."""

from typing import Any

from fairlead.cli.access.keys import describe_scope
from fairlead.cli.ui.flags import ContextFlag, OutputFlag
from fairlead.cli.ui.output import Output, print_data, print_pairs
from fairlead.cli.ui.session import Session, open_session
from fairlead.client import ClientError
from fairlead.core.objects import Object, get_path


def command(context: ContextFlag = None, output: OutputFlag = Output.TABLE) -> None:
    """Show your identity on the server, and the key in use."""
    with open_session(context) as session:
        status = session.client.whoami()
        if output is not Output.TABLE:
            print_data(status, output)
        else:
            print_pairs(describe_rows(status, session))


def describe_rows(status: Object, session: Session) -> list[tuple[str, str]]:
    kind, name = identity(status)
    scope = describe_scope(status.get("accessKeyScope"), name)
    pairs = [
        ("server", session.login.url),
        (kind, _with_display_name(name, status.get(kind))),
        ("teams", ", ".join(str(get_path(each, "name") or each) for each in get_path(status, "user.teams") or ())),
        ("groups", ", ".join(status.get("groups") or ())),
        ("key", _describe_key(status)),
        ("scope", scope[0]),
        *(("", line) for line in scope[1:]),
    ]
    return [pair for pair in pairs if pair[1]]


def identity(status: Object) -> tuple[str, str]:
    """Type and name of the identity in a Self: user, team or subject."""
    for kind in ("user", "team"):
        if name := get_path(status, f"{kind}.name"):
            return kind, str(name)
    if subject := status.get("subject"):
        return "subject", str(subject)
    raise ClientError("the server did not return an identity; is it a Fairlead server of this version?")


def _with_display_name(name: str, entity: Any) -> str:
    display_name = get_path(entity, "displayName")
    return f"{name} ({display_name})" if display_name and display_name != name else name


def _describe_key(status: Object) -> str:
    key = status.get("accessKey") or ""
    key_type = status.get("accessKeyType") or ""
    return f"{key} (type {key_type})" if key and key_type else key
