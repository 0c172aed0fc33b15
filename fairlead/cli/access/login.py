"""`fairlead login`: verifies an access key and stores it for the other commands.

The key comes from the terminal, stdin, FAIRLEAD_KEY, a kubeconfig, or the server in exchange for a password. Nothing is
sent before the server's certificate is trusted, by a CA or because the user has confirmed its fingerprint.
"""

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from fairlead.cli.access.logout import revoke_login_key
from fairlead.cli.access.whoami import identity
from fairlead.cli.ui import prompts
from fairlead.cli.ui.flags import options_from
from fairlead.cli.ui.output import print_note
from fairlead.cli.ui.session import UsageError, find_local_kubeconfig, local_server_hint, report_errors
from fairlead.client import DEFAULT_GROUP, ApiStatusError, CertificateError, ClientError, Unreachable
from fairlead.client.client import normalize_url, read_ca_file
from fairlead.client.contexts import (
    CA_FILE_ENV,
    KEY_ENV,
    Login,
    contexts_path,
    default_context_name,
    load_contexts,
    save_contexts,
)
from fairlead.client.kubeconfig import login_from_kubeconfig
from fairlead.client.tls import fetch_certificate, fingerprint

DEFAULT_PORT = 8443
"""The port that a server listens on, unless it is configured otherwise."""

PASSWORD_LOGIN_PATH = "/auth/password/login"


@dataclass(frozen=True, slots=True)
class TlsOptions:
    ca_file: Annotated[
        Path | None,
        typer.Option("--ca-file", help="PEM file with the CA of the server's certificate.", show_default=False),
    ] = None
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Do not verify the server's certificate. Never use it over a network.")
    ] = False


@dataclass(frozen=True, slots=True)
class LoginOptions:
    url: Annotated[
        str | None,
        typer.Argument(help="Address of the server, like fairlead.example.com or 127.0.0.1:8443.", show_default=False),
    ] = None
    key: Annotated[
        str | None,
        typer.Option(
            "--key",
            help="Access key. Ends up in the shell history; prefer --key-stdin or the prompt.",
            show_default=False,
        ),
    ] = None
    key_stdin: Annotated[bool, typer.Option("--key-stdin", help="Read the access key from stdin.")] = False
    user: Annotated[
        str | None,
        typer.Option("--user", help="Log in with this user's password instead of a key.", show_default=False),
    ] = None
    password_stdin: Annotated[
        bool, typer.Option("--password-stdin", help="With --user: read the password from stdin.")
    ] = False
    kubeconfig: Annotated[
        Path | None,
        typer.Option(
            "--kubeconfig",
            help="Use address, CA and key of this kubeconfig's current context.",
            show_default=False,
        ),
    ] = None
    tls: TlsOptions = TlsOptions()
    name: Annotated[
        str | None, typer.Option("--name", help="Name of the stored login.", show_default="the server's host")
    ] = None
    group: Annotated[
        str, typer.Option("--api-group", help="The server's setting api_group, if it is not the default.")
    ] = DEFAULT_GROUP


@options_from(LoginOptions)
def command(options: LoginOptions) -> None:
    """Log in to a server, and store the login for the other commands.

    Without flags, prompts for an access key. After `fairlead up` on this machine:
    `fairlead login --kubeconfig ~/.local/share/fairlead/admin.kubeconfig`
    """
    with report_errors():
        _check_options(options)
        login = _verify_certificate(_login_target(options))
        login = (
            _login_with_password(login, options)
            if options.user
            else replace(login, key=login.key or _read_key(options))
        )
        who = _check_key(login)
        name = options.name or default_context_name(login.url, load_contexts(contexts_path()))
        _save_login(name, login, who)


def _check_options(options: LoginOptions) -> None:
    methods = [
        name
        for name, value in (
            ("--key", options.key),
            ("--key-stdin", options.key_stdin),
            ("--user", options.user),
            ("--kubeconfig", options.kubeconfig),
        )
        if value
    ]
    if len(methods) > 1:
        raise UsageError(f"{' and '.join(methods)} are different ways to log in; choose one")
    if options.password_stdin and not options.user:
        raise UsageError("--password-stdin requires a user; set it with --user")
    if options.tls.ca_file and options.tls.insecure:
        raise UsageError("--ca-file verifies the certificate and --insecure does not; choose one")
    if not options.url and not options.kubeconfig:
        local = find_local_kubeconfig()
        hint = f"; {local_server_hint(local)}" if local else ""
        raise UsageError(f"set the URL of the server, like `fairlead login 127.0.0.1:8443`{hint}")


def _login_target(options: LoginOptions) -> Login:
    try:
        return _login_from_options(options)
    except ClientError as problem:
        raise UsageError(str(problem)) from None


def _login_from_options(options: LoginOptions) -> Login:
    """The server's URL and CA from the flags, with the key if a kubeconfig has one."""
    login = login_from_kubeconfig(options.kubeconfig) if options.kubeconfig else Login(normalize_url(options.url or ""))
    if options.url and options.kubeconfig:
        login = replace(login, url=normalize_url(options.url))
    ca_file = options.tls.ca_file or (Path(os.environ[CA_FILE_ENV]) if os.environ.get(CA_FILE_ENV) else None)
    if ca_file and not options.tls.insecure:
        login = replace(login, authority=read_ca_file(ca_file))
    if options.tls.insecure:
        print_note(f"warning: connections to {login.url} can be intercepted and modified (--insecure)")
        login = replace(login, authority="", insecure=True)
    return replace(login, group=options.group)


def _verify_certificate(login: Login) -> Login:
    """Verifies the server's certificate. On a terminal, the user can accept an unknown CA by its fingerprint."""
    try:
        with replace(login, key="").create_client() as client:
            client.send("GET", "/version")
    except Unreachable as problem:
        if not isinstance(problem, CertificateError):
            hint = "" if urlsplit(login.url).port else f"; without a port, 443 is used: try {login.url}:{DEFAULT_PORT}"
            raise Unreachable(f"{problem}{hint}") from None
        if login.authority or not problem.unknown_authority or not prompts.is_interactive():
            raise
        certificate = fetch_certificate(login.url)
        print_note(f"The certificate of {login.url} is signed by an unknown CA.")
        print_note(f"SHA-256 fingerprint: {fingerprint(certificate)}")
        print_note("On the server: openssl x509 -noout -fingerprint -sha256 -in DATA/tls/server.crt")
        if not prompts.ask_yes_no("Do the fingerprints match?"):
            raise
        return _verify_certificate(replace(login, authority=certificate))
    return login


def _read_key(options: LoginOptions) -> str:
    if options.key:
        print_note("warning: the key is now in the shell history; use --key-stdin to avoid that")
        return options.key
    if options.key_stdin:
        return prompts.read_secret_from_stdin("key").strip()
    if key := os.environ.get(KEY_ENV):
        return key
    return prompts.prompt_secret("access key", f"use --key-stdin or {KEY_ENV}, or log in with --user").strip()


def _login_with_password(login: Login, options: LoginOptions) -> Login:
    if options.password_stdin:
        password = prompts.read_secret_from_stdin("password")
    else:
        password = prompts.prompt_secret("password", "use --password-stdin")
    try:
        with login.create_client() as client:
            response = client.send("POST", PASSWORD_LOGIN_PATH, {"username": options.user, "password": password})
    except ApiStatusError as problem:
        raise ClientError(f"{login.url} rejected the login of {options.user}: {problem.message}; try again") from None
    key = response.get("accessKey")
    if not isinstance(key, str) or not key:
        raise ClientError(f"{login.url} did not return a key for the login; is it a Fairlead server of this version?")
    return replace(login, key=key)


def _check_key(login: Login) -> str:
    """The identity that the server returns for the key."""
    with login.create_client() as client:
        try:
            return " ".join(identity(client.whoami()))
        except ApiStatusError as problem:
            if problem.code != 401:
                raise
            advice = "check that it is complete; if it is disabled or has expired, get it enabled or use another key"
            raise ClientError(f"{login.url} does not accept this key ({problem.message}); {advice}") from None


def _save_login(name: str, login: Login, identity_text: str) -> None:
    path = contexts_path()
    stored = load_contexts(path)
    previous = stored.contexts.get(name)
    save_contexts(path, stored.with_login(name, login))
    print_note(f"logged in to {login.url} as {identity_text}; the login is stored as {name!r} in {path}")
    if previous and previous.key not in ("", login.key) and previous.url == login.url:
        _revoke_previous_key(previous)


def _revoke_previous_key(previous: Login) -> None:
    """Revokes the key that was issued for the replaced login."""
    try:
        print_note(f"previous login: {revoke_login_key(previous)}")
    except ClientError as problem:
        print_note(f"warning: the key of the previous login was not revoked ({problem})")
