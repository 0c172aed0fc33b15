"""`fairlead key create`: creates an access key, optionally restricted by a scope."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from fairlead.cli.access.keys import ScopeOptions
from fairlead.cli.ui.describe import drop_none
from fairlead.cli.ui.durations import parse_duration
from fairlead.cli.ui.flags import ContextFlag, DescriptionFlag, DisplayNameFlag, OutputFlag, flag, options_from
from fairlead.cli.ui.output import Output, encode_data, print_note
from fairlead.cli.ui.secret_file import OutputFileFlag, open_secret_output
from fairlead.cli.ui.session import open_session
from fairlead.client import ApiStatusError, ClientError
from fairlead.client.contexts import CA_FILE_ENV, KEY_ENV, URL_ENV
from fairlead.core.objects import Object, get_path, name_of

KEYS = "ownedaccesskeys"
TTL_FLAG = "--ttl"

UNLIMITED_WARNING = (
    f"warning: this key never expires and has all permissions of its owner; limit the next one with {TTL_FLAG}, and "
    "with a scope: --project, --space, --virtual-cluster, --cluster or --scope-file"
)


@dataclass(frozen=True, slots=True)
class LifetimeOptions:
    ttl: Annotated[
        int | None,
        flag(
            "--ttl", help="Lifetime of the key, like 30d.", parser=parse_duration, metavar="TIME", default="no expiry"
        ),
    ] = None
    ttl_after_activity: Annotated[
        bool, typer.Option("--ttl-after-activity", help="Count the lifetime from the last use.")
    ] = False
    disabled: Annotated[bool, typer.Option("--disabled", help="Create the key disabled.")] = False


@dataclass(frozen=True, slots=True)
class KeyCreateOptions:
    name: Annotated[str | None, flag("--name", help="Name of the key.", default="generated")] = None
    display_name: DisplayNameFlag = None
    description: DescriptionFlag = None
    user: Annotated[str | None, flag("--user", help="Owner of the key.", default="you", complete="users")] = None
    team: Annotated[str | None, flag("--team", help="Team that owns the key, instead of a user.", complete="teams")] = (
        None
    )
    type: Annotated[str | None, flag("--type", help="User, Login or Other.", metavar="TYPE", default="User")] = None
    lifetime: LifetimeOptions = LifetimeOptions()
    scope: ScopeOptions = field(default_factory=ScopeOptions)
    context: ContextFlag = None
    output: OutputFlag = Output.TABLE
    output_file: OutputFileFlag = None


@options_from(KeyCreateOptions)
def command(options: KeyCreateOptions) -> None:
    """Create an access key and print its value. The value is shown only once.

    The value goes to stdout and everything else to stderr: `KEY=$(fairlead key create --ttl 12h)`. `--output-file`
    writes it to a file that only you can read.
    """
    with open_session(options.context) as session, open_secret_output(options.output_file) as write:
        body = build_body(options)
        try:
            with options.scope.name_flags(session.client):
                created = session.client.create(KEYS, body)
        except ApiStatusError as problem:
            raise ClientError(f"{problem}{_advice(problem, options)}") from None
        write_key_value(created, options.output, write, options.output_file)
        if not get_path(created, "spec.ttl") and get_path(created, "spec.scope") is None:
            print_note(UNLIMITED_WARNING)
        if options.output is Output.TABLE and not options.lifetime.disabled:
            # The login has the text of the CA certificate, not its file.
            ca_flag = " --ca-file CA.CRT" if session.login.authority else ""
            ca_variable = f", and {CA_FILE_ENV} to the file of its CA certificate" if session.login.authority else ""
            ca_source = "; `fairlead admin ca`, on its machine, prints that" if session.login.authority else ""
            print_note(
                f"to use it: `fairlead login {session.client.url}{ca_flag} --key-stdin`, or set {KEY_ENV} to it, "
                f"{URL_ENV} to {session.client.url}{ca_variable}{ca_source}"
            )


def _advice(problem: ApiStatusError, options: KeyCreateOptions) -> str:
    """Maps the fields in the server's message to the flags of this command."""
    if TTL_FLAG in problem.message or "spec.ttl" in problem.message:
        return f"; set it with {TTL_FLAG}, like `{TTL_FLAG} 12h`"
    if options.scope.scope_file and "spec.scope" in problem.message:
        return f"; spec.scope is the content of {options.scope.scope_file}"
    return ""


def build_body(options: KeyCreateOptions) -> Object:
    spec = {
        "displayName": options.display_name,
        "description": options.description,
        "user": options.user,
        "team": options.team,
        "type": options.type,
        "ttl": options.lifetime.ttl,
        "ttlAfterLastActivity": options.lifetime.ttl_after_activity or None,
        "disabled": options.lifetime.disabled or None,
        "scope": options.scope.build(),
    }
    return {
        "kind": "OwnedAccessKey",
        "metadata": {"name": options.name} if options.name else {"generateName": "key-"},
        "spec": drop_none(spec),
    }


def write_key_value(key: Object, output: Output, write: Callable[[bytes], None], file: Path | None) -> None:
    """Writes the value of a new key to stdout or to the file: alone, or with the whole object."""
    value = get_path(key, "spec.key")
    if not isinstance(value, str) or not value:
        raise ClientError(f"the server created {name_of(key)} but did not return its value; rotate it to get one")
    write(f"{value}\n".encode() if output is Output.TABLE else encode_data(key, output))
    if file is None or file == Path("-"):
        print_note(f"this is the value of the key {name_of(key)}; it is shown only once")
    else:
        print_note(f"the value of the key {name_of(key)} is in {file}; it is not shown again")
