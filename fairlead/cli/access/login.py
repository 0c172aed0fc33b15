"""`fairlead login`: verifies an access key and stores it for the other commands.

The key comes from the terminal, stdin, FAIRLEAD_KEY, a kubeconfig, or the server in exchange for a password. Nothing is
sent before the server's certificate is trusted, by a CA or because the user has confirmed its fingerprint.
"""

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from fairlead.cli.access.logout import end_login_key
from fairlead.cli.access.whoami import identity
from fairlead.cli.ui import prompts
from fairlead.cli.ui.flags import takes
from fairlead.cli.ui.output import note
from fairlead.cli.ui.session import WrongUsage, failures_told, own_kubeconfig, own_server
from fairlead.client import DEFAULT_GROUP, ApiProblem, ClientError, Untrusted
from fairlead.client.client import normalized, read_authority
from fairlead.client.contexts import CA_FILE, KEY, Login, contexts_path, default_name, load, save
from fairlead.client.kubeconfig import login_of
from fairlead.client.tls import fingerprint, presented_certificate

PASSWORD_LOGIN = "/auth/password/login"


@dataclass(frozen=True, slots=True)
class Trusting:
    ca_file: Annotated[
        Path | None,
        typer.Option("--ca-file", help="PEM file with the CA of the server's certificate.", show_default=False),
    ] = None
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Do not verify the server's certificate. Never use it over a network.")
    ] = False


@dataclass(frozen=True, slots=True)
class Asked:
    url: Annotated[
        str | None, typer.Argument(help="Address of the server, like https://127.0.0.1:8443.", show_default=False)
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
    trust: Trusting = Trusting()
    name: Annotated[
        str | None, typer.Option("--name", help="Name of the stored login.", show_default="the server's host")
    ] = None
    group: Annotated[
        str, typer.Option("--api-group", help="The server's setting api_group, if it is not the default.")
    ] = DEFAULT_GROUP


@takes(Asked)
def command(asked: Asked) -> None:
    """Log in to a server, and store the login for the other commands.

    Without flags, prompts for an access key. After [bold]fairlead up[/bold] on this machine:
    [bold]fairlead login --kubeconfig ~/.local/share/fairlead/admin.kubeconfig[/bold]
    """
    with failures_told():
        _check(asked)
        login = _trusted(_address(asked))
        login = _with_password(login, asked) if asked.user else replace(login, key=login.key or _key(asked))
        who = _answer(login)
        _keep(asked.name or default_name(login.url), login, who)


def _check(asked: Asked) -> None:
    methods = [
        name
        for name, value in (
            ("--key", asked.key),
            ("--key-stdin", asked.key_stdin),
            ("--user", asked.user),
            ("--kubeconfig", asked.kubeconfig),
        )
        if value
    ]
    if len(methods) > 1:
        raise WrongUsage(f"{' and '.join(methods)} are different ways to log in; choose one")
    if asked.password_stdin and not asked.user:
        raise WrongUsage("--password-stdin requires a user; set it with --user")
    if asked.trust.ca_file and asked.trust.insecure:
        raise WrongUsage("--ca-file verifies the certificate and --insecure does not; choose one")
    if not asked.url and not asked.kubeconfig:
        local = own_kubeconfig()
        hint = f"; {own_server(local)}" if local else ""
        raise WrongUsage(f"set the URL of the server, like `fairlead login https://127.0.0.1:8443`{hint}")


def _address(asked: Asked) -> Login:
    try:
        return _named(asked)
    except ClientError as problem:
        raise WrongUsage(str(problem)) from None


def _named(asked: Asked) -> Login:
    """The server's URL and CA from the flags, with the key if a kubeconfig has one."""
    login = login_of(asked.kubeconfig) if asked.kubeconfig else Login(normalized(asked.url or ""))
    if asked.url and asked.kubeconfig:
        login = replace(login, url=normalized(asked.url))
    ca_file = asked.trust.ca_file or (Path(os.environ[CA_FILE]) if os.environ.get(CA_FILE) else None)
    if ca_file and not asked.trust.insecure:
        login = replace(login, authority=read_authority(ca_file))
    if asked.trust.insecure:
        note(f"warning: connections to {login.url} can be intercepted and modified (--insecure)")
        login = replace(login, authority="", insecure=True)
    return replace(login, group=asked.group)


def _trusted(login: Login) -> Login:
    """Verifies the server's certificate. On a terminal, the user can accept an unknown CA by its fingerprint."""
    try:
        with replace(login, key="").client() as client:
            client.send("GET", "/version")
    except Untrusted as problem:
        if login.authority or not problem.unknown_authority or not prompts.can_ask():
            raise
        certificate = presented_certificate(login.url)
        note(f"The certificate of {login.url} is signed by an unknown CA.")
        note(f"SHA-256 fingerprint: {fingerprint(certificate)}")
        note("On the server: openssl x509 -noout -fingerprint -sha256 -in DATA/tls/server.crt")
        if not prompts.agreed("Do the fingerprints match?"):
            raise
        return _trusted(replace(login, authority=certificate))
    return login


def _key(asked: Asked) -> str:
    if asked.key:
        note("warning: the key is now in the shell history; use --key-stdin to avoid that")
        return asked.key
    if asked.key_stdin:
        return prompts.secret_from_stdin("key").strip()
    if key := os.environ.get(KEY):
        return key
    return prompts.secret("access key", f"use --key-stdin or {KEY}, or log in with --user").strip()


def _with_password(login: Login, asked: Asked) -> Login:
    if asked.password_stdin:
        password = prompts.secret_from_stdin("password")
    else:
        password = prompts.secret("password", "use --password-stdin")
    try:
        with login.client() as client:
            response = client.send("POST", PASSWORD_LOGIN, {"username": asked.user, "password": password})
    except ApiProblem as problem:
        raise ClientError(f"{login.url} rejected the login of {asked.user}: {problem.message}; try again") from None
    key = response.get("accessKey")
    if not isinstance(key, str) or not key:
        raise ClientError(f"{login.url} did not return a key for the login; is it a Fairlead server of this version?")
    return replace(login, key=key)


def _answer(login: Login) -> str:
    """The identity that the server returns for the key."""
    with login.client() as client:
        try:
            return " ".join(identity(client.whoami()))
        except ApiProblem as problem:
            if problem.code != 401:
                raise
            advice = "check that it is complete; if it is disabled or has expired, get it enabled or use another key"
            raise ClientError(f"{login.url} does not accept this key ({problem.message}); {advice}") from None


def _keep(name: str, login: Login, who: str) -> None:
    path = contexts_path()
    stored = load(path)
    previous = stored.contexts.get(name)
    save(path, stored.with_login(name, login))
    note(f"logged in to {login.url} as {who}; the login is stored as {name!r} in {path}")
    if previous and previous.key not in ("", login.key) and previous.url == login.url:
        _end(previous)


def _end(previous: Login) -> None:
    """Revokes the key that was issued for the replaced login."""
    try:
        note(f"previous login: {end_login_key(previous)}")
    except ClientError as problem:
        note(f"warning: the key of the previous login was not revoked ({problem})")
