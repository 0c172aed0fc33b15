"""The flags of `fairlead login`, and the server that they select.

The address is the argument, else FAIRLEAD_URL. Without one, the login to renew is a stored one: its address, CA and API
group are used again. With the address of a stored login, its CA is.
"""

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from fairlead.cli.ui.completion import complete_logins
from fairlead.cli.ui.flags import flag
from fairlead.cli.ui.output import print_note
from fairlead.cli.ui.session import UsageError, find_local_kubeconfig, local_server_hint
from fairlead.client import DEFAULT_GROUP, ClientError
from fairlead.client.client import normalize_url, read_ca_file
from fairlead.client.contexts import (
    CA_FILE_ENV,
    CONTEXT_ENV,
    URL_ENV,
    Contexts,
    Login,
    SelectedLogin,
    contexts_path,
    default_context_name,
    load_contexts,
    select_login,
)
from fairlead.client.kubeconfig import login_from_kubeconfig


@dataclass(frozen=True, slots=True)
class TlsOptions:
    ca_file: Annotated[Path | None, flag("--ca-file", help="PEM file with the CA of the server's certificate.")] = None
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Do not verify the server's certificate. Never use it over a network.")
    ] = False


@dataclass(frozen=True, slots=True)
class LoginOptions:
    url: Annotated[
        str | None,
        typer.Argument(
            help="Address of the server, like fairlead.example.com or 127.0.0.1:8443.",
            show_default="that of the current login",
        ),
    ] = None
    key: Annotated[
        str | None, flag("--key", help="Access key. Ends up in the shell history; prefer --key-stdin or the prompt.")
    ] = None
    key_stdin: Annotated[bool, typer.Option("--key-stdin", help="Read the access key from stdin.")] = False
    key_prompt: Annotated[
        bool, typer.Option("--key-prompt", help="Prompt for an access key instead of opening the console.")
    ] = False
    device: Annotated[
        bool, typer.Option("--device", help="Show a code to type into the console, in a browser on any machine.")
    ] = False
    user: Annotated[str | None, flag("--user", help="Log in with this user's password instead of a key.")] = None
    password_stdin: Annotated[
        bool, typer.Option("--password-stdin", help="With --user: read the password from stdin.")
    ] = False
    kubeconfig: Annotated[
        Path | None, flag("--kubeconfig", help="Use address, CA and key of a context of this kubeconfig.")
    ] = None
    context: Annotated[
        str | None,
        flag(
            "--context",
            help="With --kubeconfig, the context in that file; else the stored login to renew.",
            metavar="NAME",
            default="the current one",
            complete=complete_logins,
        ),
    ] = None
    tls: TlsOptions = TlsOptions()
    name: Annotated[str | None, flag("--name", help="Name of the stored login.", default="the server's host")] = None
    group: Annotated[
        str | None,
        flag(
            "--api-group",
            help="The server's setting api_group, if it is not the default.",
            default="that of an earlier login at the server",
        ),
    ] = None


def check_options(options: LoginOptions) -> None:
    methods = [
        name
        for name, value in (
            ("--key", options.key),
            ("--key-stdin", options.key_stdin),
            ("--key-prompt", options.key_prompt),
            ("--device", options.device),
            ("--user", options.user),
            ("--kubeconfig", options.kubeconfig),
        )
        if value
    ]
    if len(methods) > 1:
        raise UsageError(f"{' and '.join(methods)} are different ways to log in; choose one")
    if options.password_stdin and not options.user:
        raise UsageError("--password-stdin requires a user; set it with --user")
    if options.context is not None and options.url and not options.kubeconfig:
        raise UsageError("--context selects a stored login with its address, or a context of --kubeconfig; choose one")
    if options.tls.ca_file and options.tls.insecure:
        raise UsageError("--ca-file verifies the certificate and --insecure does not; choose one")


@dataclass(frozen=True, slots=True)
class LoginTarget:
    """A server, and the name of the login to store. `has_stored_ca`: the CA is that of an earlier login."""

    login: Login
    name: str
    has_stored_ca: bool = False


def select_target(options: LoginOptions) -> LoginTarget:
    try:
        return _target_from_options(options)
    except ClientError as problem:
        raise UsageError(str(problem)) from None


def _target_from_options(options: LoginOptions) -> LoginTarget:
    """The server's URL and CA from the flags, with the key if a kubeconfig has one, or from an earlier login."""
    stored = load_contexts(contexts_path())
    earlier, name, url = None, options.name, _select_url(options)
    if options.kubeconfig:
        login = login_from_kubeconfig(options.kubeconfig, options.context)
        login = replace(login, url=normalize_url(url)) if url else login
    elif url:
        login = Login(normalize_url(url))
        earlier = _find_earlier_login(stored, login.url, options)
    else:
        selected = _select_earlier_login(stored, options)
        earlier, name = selected.login, options.name or selected.name
        login = Login(earlier.url, insecure=earlier.insecure)
    login, has_stored_ca = _with_tls_options(login, options, earlier)
    group = options.group or (earlier.group if earlier else DEFAULT_GROUP)
    return LoginTarget(replace(login, group=group), name or default_context_name(login.url, stored), has_stored_ca)


def _with_tls_options(login: Login, options: LoginOptions, earlier: Login | None) -> tuple[Login, bool]:
    """The login with the CA, and whether the CA is that of the earlier login. A CA replaces a stored --insecure."""
    ca_file = options.tls.ca_file or (Path(os.environ[CA_FILE_ENV]) if os.environ.get(CA_FILE_ENV) else None)
    if options.tls.insecure or (login.insecure and not ca_file):
        source = "the kubeconfig" if options.kubeconfig else "the earlier login"
        reason = "--insecure" if options.tls.insecure else f"insecure, as in {source}; use --ca-file to change that"
        print_note(f"warning: connections to {login.url} can be intercepted and modified ({reason})")
        return replace(login, authority="", insecure=True), False
    if ca_file:
        return replace(login, authority=read_ca_file(ca_file), insecure=False), False
    if earlier is not None and earlier.authority:
        return replace(login, authority=earlier.authority), True
    return login, False


def _select_url(options: LoginOptions) -> str | None:
    """The address without a stored login. FAIRLEAD_URL takes precedence over the current login, as in other commands:
    FAIRLEAD_KEY belongs to it."""
    return options.url or (None if options.context or options.kubeconfig else os.environ.get(URL_ENV))


def _find_earlier_login(stored: Contexts, url: str, options: LoginOptions) -> Login | None:
    """A stored login at the same server: that of the same name, else the current one, else any with a CA."""
    logins = {name: login for name, login in stored.contexts.items() if login.url == url}
    preferred = (options.name or default_context_name(url, stored), stored.current)
    found = next((logins[name] for name in preferred if name in logins), None)
    return found or next((login for login in logins.values() if login.authority), None)


def _select_earlier_login(stored: Contexts, options: LoginOptions) -> SelectedLogin:
    """The stored login to renew: that of --context or --name, else the current one."""
    name = options.context or (options.name if options.name in stored.contexts else None)
    name = name or os.environ.get(CONTEXT_ENV) or stored.current
    if name:
        return select_login(name)
    local = find_local_kubeconfig()
    hint = f"; {local_server_hint(local)}" if local else ""
    raise UsageError(f"set the URL of the server, like `fairlead login 127.0.0.1:8443`{hint}")
