"""`fairlead login`: find out that a key works, and keep it for the other commands.

A key comes from the terminal, from stdin, from FAIRLEAD_KEY, from a kubeconfig, or from the server in exchange for a
password. The server's certificate is checked from the first byte on: nothing is sent to a server that nobody vouches
for, be it an authority or the person who has compared a fingerprint.
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
        typer.Option("--ca-file", help="PEM file with the authority of the server's certificate.", show_default=False),
    ] = None
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Do not check the server's certificate. Never over a network.")
    ] = False


@dataclass(frozen=True, slots=True)
class Asked:
    url: Annotated[
        str | None, typer.Argument(help="Address of the server, like https://127.0.0.1:8443.", show_default=False)
    ] = None
    key: Annotated[
        str | None,
        typer.Option("--key", help="Access key. Shells keep it; --key-stdin or the prompt do not.", show_default=False),
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
            help="Take address, authority and key from this kubeconfig's current context.",
            show_default=False,
        ),
    ] = None
    trust: Trusting = Trusting()
    name: Annotated[
        str | None, typer.Option("--name", help="Name to keep the login under.", show_default="the server's host")
    ] = None
    group: Annotated[
        str, typer.Option("--api-group", help="API group of the server's management kinds, if it was changed.")
    ] = DEFAULT_GROUP


@takes(Asked)
def command(asked: Asked) -> None:
    """Log in to a server, and keep the login for the other commands.

    Without a flag, asks for an access key. After [bold]fairlead up[/bold] on this machine:
    [bold]fairlead login --kubeconfig ~/.local/share/fairlead/admin.kubeconfig[/bold]
    """
    with failures_told():
        _check(asked)
        login = _trusted(_address(asked))
        login = _with_password(login, asked) if asked.user else replace(login, key=login.key or _key(asked))
        who = _answer(login)
        _keep(asked.name or default_name(login.url), login, who)


def _check(asked: Asked) -> None:
    given = [
        name
        for name, value in (
            ("--key", asked.key),
            ("--key-stdin", asked.key_stdin),
            ("--user", asked.user),
            ("--kubeconfig", asked.kubeconfig),
        )
        if value
    ]
    if len(given) > 1:
        raise WrongUsage(f"{' and '.join(given)} are different ways to log in; choose one")
    if asked.password_stdin and not asked.user:
        raise WrongUsage("--password-stdin is the password of a user; name the user with --user")
    if asked.trust.ca_file and asked.trust.insecure:
        raise WrongUsage("--ca-file checks the certificate and --insecure does not; choose one")
    if not asked.url and not asked.kubeconfig:
        own = own_kubeconfig()
        here = f"; {own_server(own)}" if own else ""
        raise WrongUsage(f"name the server, like `fairlead login https://127.0.0.1:8443`{here}")


def _address(asked: Asked) -> Login:
    try:
        return _named(asked)
    except ClientError as problem:
        raise WrongUsage(str(problem)) from None


def _named(asked: Asked) -> Login:
    """The server and whom to trust for it; with a key already where a kubeconfig had one."""
    found = login_of(asked.kubeconfig) if asked.kubeconfig else Login(normalized(asked.url or ""))
    if asked.url and asked.kubeconfig:
        found = replace(found, url=normalized(asked.url))
    ca_file = asked.trust.ca_file or (Path(os.environ[CA_FILE]) if os.environ.get(CA_FILE) else None)
    if ca_file and not asked.trust.insecure:
        found = replace(found, authority=read_authority(ca_file))
    if asked.trust.insecure:
        note(f"warning: whoever is between you and {found.url} can read and change everything (--insecure)")
        found = replace(found, authority="", insecure=True)
    return replace(found, group=asked.group)


def _trusted(login: Login) -> Login:
    """The login with a certificate that holds. One that nobody knows is shown to the person, who may accept it."""
    try:
        with replace(login, key="").client() as client:
            client.send("GET", "/version")
    except Untrusted as problem:
        if login.authority or not problem.unknown_authority or not prompts.can_ask():
            raise
        certificate = presented_certificate(login.url)
        note(f"{login.url} shows a certificate from an authority that this machine does not know.")
        note(f"SHA-256 fingerprint: {fingerprint(certificate)}")
        note("On the server: openssl x509 -noout -fingerprint -sha256 -in DATA/tls/server.crt")
        if not prompts.agreed("Is it the same?"):
            raise
        return _trusted(replace(login, authority=certificate))
    return login


def _key(asked: Asked) -> str:
    if asked.key:
        note("warning: the shell keeps this key in its history; --key-stdin does not")
        return asked.key
    if asked.key_stdin:
        return prompts.secret_from_stdin("key").strip()
    if key := os.environ.get(KEY):
        return key
    return prompts.secret("access key", f"give it with --key-stdin or {KEY}, or log in with --user").strip()


def _with_password(login: Login, asked: Asked) -> Login:
    if asked.password_stdin:
        password = prompts.secret_from_stdin("password")
    else:
        password = prompts.secret("password", "give it with --password-stdin")
    try:
        with login.client() as client:
            answer = client.send("POST", PASSWORD_LOGIN, {"username": asked.user, "password": password})
    except ApiProblem as problem:
        raise ClientError(f"{login.url} did not let {asked.user} in: {problem.message}; try again") from None
    key = answer.get("accessKey")
    if not isinstance(key, str) or not key:
        raise ClientError(f"{login.url} answered the password without a key; is it a Fairlead server of this version?")
    return replace(login, key=key)


def _answer(login: Login) -> str:
    """Who the server says that this key is."""
    with login.client() as client:
        try:
            return " ".join(identity(client.whoami()))
        except ApiProblem as problem:
            if problem.code != 401:
                raise
            advice = "copy it again; if it was disabled or has expired, have somebody enable it or make another one"
            raise ClientError(f"{login.url} does not accept this key ({problem.message}); {advice}") from None


def _keep(name: str, login: Login, who: str) -> None:
    path = contexts_path()
    kept = load(path)
    before = kept.contexts.get(name)
    save(path, kept.with_login(name, login))
    note(f"logged in to {login.url} as {who}; the login is kept as {name!r} in {path}")
    if before and before.key not in ("", login.key) and before.url == login.url:
        _end(before)


def _end(before: Login) -> None:
    """A key that was made for the login before this one is of no use to anybody now."""
    try:
        note(f"the login before: {end_login_key(before)}")
    except ClientError as problem:
        note(f"warning: the key of the login before was not ended ({problem})")
