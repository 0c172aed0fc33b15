"""`fairlead login`: logs in, and stores the login for the other commands.

By default the user allows the login in the console (`browser_login.py`), and the command gets a key that it refreshes.
Otherwise the key comes from the terminal, stdin, FAIRLEAD_KEY, a kubeconfig, or the server in exchange for a password.
Nothing is sent before the server's certificate is trusted, by a CA or because the user has confirmed its fingerprint.
"""

import os
import webbrowser
from dataclasses import replace
from urllib.parse import urlsplit

from fairlead.cli.access.browser_login import console_url, has_browser, log_in_with_browser, log_in_with_code
from fairlead.cli.access.context import revoke_login
from fairlead.cli.access.keys import expiry_time
from fairlead.cli.access.login_target import LoginOptions, LoginTarget, check_options, select_target
from fairlead.cli.access.whoami import identity
from fairlead.cli.ui import prompts
from fairlead.cli.ui.flags import options_from
from fairlead.cli.ui.output import print_note
from fairlead.cli.ui.session import report_errors
from fairlead.client import ApiStatusError, CertificateError, ClientError, Unreachable
from fairlead.client.client import normalize_url
from fairlead.client.contexts import KEY_ENV, URL_ENV, Login, contexts_path, load_contexts, save_contexts
from fairlead.client.login_sessions import LoginSession, delete_session, load_session, save_session
from fairlead.client.tls import fetch_certificate, fingerprint
from fairlead.core.objects import Object, get_path

DEFAULT_PORT = 8443
"""The port that a server listens on, unless it is configured otherwise."""

PASSWORD_LOGIN_PATH = "/auth/password/login"


@options_from(LoginOptions)
def command(options: LoginOptions) -> None:
    """Log in to a server, and store the login for the other commands.

    Without flags, opens the console in a browser, or shows a code for it. Without an address, renews the current login.
    After `fairlead up` on this machine: `fairlead login --kubeconfig ~/.local/share/fairlead/admin.kubeconfig`
    """
    with report_errors():
        check_options(options)
        target = select_target(options)
        login, name = _verify_certificate(target), target.name
        console = _find_console(login, options)
        if console is not None:
            _save_session(name, login, _log_in_through_console(login, console, options))
            return
        login = (
            _login_with_password(login, options)
            if options.user
            else replace(login, key=login.key or _read_key(login, options))
        )
        who = _check_key(login)
        _save_login(name, replace(login, expires=_read_expiry(login, who)), " ".join(identity(who)))


def _find_console(login: Login, options: LoginOptions) -> str | None:
    """The URL of the console, if the login is through it; None if it is with a key or a password."""
    has_key = options.key or options.key_stdin or options.key_prompt or options.user or options.kubeconfig
    if has_key or (not options.device and (_environment_key(login) or not prompts.is_interactive())):
        return None
    console = console_url(login)
    if console is None and options.device:
        raise ClientError(f"{login.url} does not support --device; log in with a key or with --user")
    return console


def _log_in_through_console(login: Login, console: str, options: LoginOptions) -> LoginSession:
    if options.device or not has_browser():
        return log_in_with_code(login, console)
    return log_in_with_browser(login, console, webbrowser.open)


def _verify_certificate(target: LoginTarget) -> Login:
    """Verifies the server's certificate. On a terminal, the user can replace the CA of an earlier login.

    A certificate that was accepted by its fingerprint expires, and a CA can be replaced: a stored one must not be in
    the way then. But it may also be another server that has got the address, so nothing is replaced without a question.
    """
    try:
        return _verify_or_ask(target.login)
    except CertificateError as problem:
        if not (target.has_stored_ca and problem.unknown_authority and prompts.is_interactive()):
            raise
        login = replace(target.login, authority="")
        print_note(f"The certificate of {login.url} is not signed by the CA of the earlier login.")
        verified = _verify_or_ask(login)
        if not verified.authority and not prompts.ask_yes_no("Trust the CAs of this machine instead?"):
            raise
        return verified


def _verify_or_ask(login: Login) -> Login:
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
        return _verify_or_ask(replace(login, authority=certificate))
    return login


def _environment_key(login: Login) -> str:
    """The key in FAIRLEAD_KEY. With FAIRLEAD_URL, it is for that server only, and sent to no other."""
    key = os.environ.get(KEY_ENV, "")
    url = os.environ.get(URL_ENV)
    return key if key and (not url or normalize_url(url) == login.url) else ""


def _read_key(login: Login, options: LoginOptions) -> str:
    if options.key:
        print_note("warning: the key is now in the shell history; use --key-stdin to avoid that")
        return options.key
    if options.key_stdin:
        return prompts.read_secret_from_stdin("key").strip()
    if key := _environment_key(login):
        return key
    if os.environ.get(KEY_ENV):
        print_note(f"{KEY_ENV} is not used: it is for the server in {URL_ENV}, which is not {login.url}")
    return prompts.prompt_secret("access key", f"use --device, --key-stdin or {KEY_ENV}, or log in with --user").strip()


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


def _check_key(login: Login) -> Object:
    """Who the key authenticates as. Raises ClientError if the server does not accept the key."""
    with login.create_client() as client:
        try:
            return client.whoami()
        except ApiStatusError as problem:
            if problem.code != 401:
                raise
            advice = "check that it is complete; if it is disabled or has expired, get it enabled or use another key"
            raise ClientError(f"{login.url} does not accept this key ({problem.message}); {advice}") from None


def _read_expiry(login: Login, who: Object) -> str:
    """When the key in use expires; empty if that is not fixed or not known: a key with a scope may not read itself."""
    name = str(who.get("accessKey") or "")
    if not name:  # a credential that is no access key, such as the token of a service account
        return ""
    try:
        with login.create_client() as client:
            key = client.get("ownedaccesskeys", name)
    except ApiStatusError:
        return ""
    end = expiry_time(key)
    return "" if end is None or get_path(key, "spec.ttlAfterLastActivity") else end.isoformat()


def _save_session(name: str, login: Login, session: LoginSession) -> None:
    """Stores a login through the console. The session that it replaces is read before its file is overwritten."""
    who = _check_key(replace(login, key=session.key))
    previous = load_contexts(contexts_path()).contexts.get(name)
    if previous is not None and previous.session and load_session(previous.session) is not None:
        _revoke_previous(previous)
    save_session(name, session)
    _save_login(name, replace(login, key="", session=name), " ".join(identity(who)))


def _save_login(name: str, login: Login, identity_text: str) -> None:
    path = contexts_path()
    stored = load_contexts(path)
    previous = stored.contexts.get(name)
    save_contexts(path, stored.with_login(name, login))
    print_note(f"logged in to {login.url} as {identity_text}; the login is stored as {name!r} in {path}")
    if previous is None or previous.url != login.url or previous.session == login.session != "":
        return
    if previous.session or previous.key not in ("", login.key):
        _revoke_previous(previous)
        if previous.session:
            delete_session(previous.session)


def _revoke_previous(previous: Login) -> None:
    """Revokes what was issued for the replaced login."""
    try:
        print_note(f"previous login: {revoke_login(previous)}")
    except ClientError as problem:
        print_note(f"warning: the key of the previous login was not revoked ({problem})")
