"""Stored logins: a file with named contexts, like a kubeconfig.

`$XDG_CONFIG_HOME/fairlead/config.yaml` (else `~/.config/fairlead/config.yaml`), readable by its owner only:

    current: example
    contexts:
      example:
        url: https://fairlead.example.com
        key: fairlead_...
        authority: |
          -----BEGIN CERTIFICATE-----

A login through the console has `session: NAME` instead of a key: its key is short-lived, and in a file of its own
(`login_sessions.py`).

`fairlead login` and `logout` write it, other commands call `select_login`. In CI, the environment variables
FAIRLEAD_URL and FAIRLEAD_KEY replace it. A stored key is never sent to the URL in FAIRLEAD_URL.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from fairlead.client.client import DEFAULT_GROUP, Client, normalize_url, read_ca_file
from fairlead.client.errors import ClientError
from fairlead.core.body_errors import Malformed
from fairlead.core.files import FileProblem, ensure_private_folder, read_file, write_file

URL_ENV, KEY_ENV, CA_FILE_ENV, CONTEXT_ENV = "FAIRLEAD_URL", "FAIRLEAD_KEY", "FAIRLEAD_CA_FILE", "FAIRLEAD_CONTEXT"


class NotLoggedIn(ClientError):
    """No server and key are configured."""


@dataclass(frozen=True, slots=True)
class Login:
    """URL, access key and TLS options of a server. `authority`: CA in PEM; empty to trust the system's CAs.

    `session` is the name of the file with the key and its refresh token; empty if the key does not change. `expires` is
    when the key expires, in RFC 3339; empty if that is not known, or if each use of the key defers it.
    """

    url: str
    key: str = field(default="", repr=False)
    authority: str = ""
    insecure: bool = False
    group: str = DEFAULT_GROUP
    session: str = ""
    expires: str = ""

    def create_client(self, key: str | None = None) -> Client:
        """A client with the key of the login, which is refreshed while the client is in use, or with another key."""
        source = (self.current_key if self.session else self.key) if key is None else key
        return Client(self.url, source, authority=self.authority, insecure=self.insecure, group=self.group)

    def current_key(self) -> str:
        """A key that is valid now. Refreshes it if needed, which raises ClientError if the login has ended."""
        if not self.session:
            return self.key
        from fairlead.client.login_sessions import current_session

        return current_session(self).key

    def stored_key(self) -> str:
        """The key as it is stored, without a request. Raises ClientError if it has to be refreshed."""
        if not self.session:
            return self.key
        from fairlead.client.login_sessions import fresh_session

        return fresh_session(self).key


@dataclass(frozen=True, slots=True)
class Contexts:
    """The content of the file."""

    current: str = ""
    contexts: dict[str, Login] = field(default_factory=dict)

    def with_login(self, name: str, login: Login) -> Contexts:
        """Adds or replaces a login, and makes it the current one."""
        return Contexts(name, self.contexts | {name: login})

    def without_login(self, name: str) -> Contexts:
        rest = {each: login for each, login in self.contexts.items() if each != name}
        return Contexts("" if self.current == name else self.current, rest)


@dataclass(frozen=True, slots=True)
class SelectedLogin:
    """A login and the name of its context, which is empty if the environment was used."""

    name: str
    login: Login


def contexts_path(environment: Mapping[str, str] = os.environ) -> Path:
    config_home = environment.get("XDG_CONFIG_HOME", "")
    # The XDG specification says to ignore relative paths.
    if config_home.startswith("/"):
        return Path(config_home) / "fairlead" / "config.yaml"
    try:
        return Path.home() / ".config" / "fairlead" / "config.yaml"
    except RuntimeError as error:
        raise FileProblem("this user has no home directory; set XDG_CONFIG_HOME to a directory for logins") from error


def load_contexts(path: Path) -> Contexts:
    """Loads the file. Empty if it does not exist."""
    from fairlead.core import yaml

    content = read_file(path)
    if content is None:
        return Contexts()
    try:
        value, _ = yaml.decode(content)
        return msgspec.convert({} if value is None else value, Contexts)
    except (Malformed, msgspec.ValidationError) as error:
        # A validation error names the path and the types, and does not quote the value.
        problem = str(error) if isinstance(error, msgspec.ValidationError) else "not YAML"
        raise FileProblem(f"{path}: {problem}; fix it, or remove it and log in again") from None


def save_contexts(path: Path, contexts: Contexts) -> None:
    """Writes the file. Directory and file are accessible to their owner only."""
    from fairlead.core import yaml

    ensure_private_folder(path.parent)
    logins = {name: _non_default_fields(login) for name, login in contexts.contexts.items()}
    write_file(path, yaml.encode({"current": contexts.current, "contexts": logins}))


def _non_default_fields(login: Login) -> dict[str, Any]:
    """Omits default values, to keep the file readable."""
    defaults = asdict(Login(login.url))
    return {name: value for name, value in asdict(login).items() if name == "url" or value != defaults[name]}


def select_login(name: str | None, environment: Mapping[str, str] = os.environ) -> SelectedLogin:
    """Selects the login: the named context, else the environment, else the current context."""
    stored = load_contexts(contexts_path(environment))
    if name is not None:
        return SelectedLogin(name, _get_login(stored, name))
    if url := environment.get(URL_ENV):
        return SelectedLogin("", _login_from_environment(url, environment))
    current = environment.get(CONTEXT_ENV) or stored.current
    if not current:
        raise NotLoggedIn(_no_current_message(stored))
    login = _get_login(stored, current)
    if ca_file := environment.get(CA_FILE_ENV):
        login = replace(login, authority=read_ca_file(Path(ca_file)))
    if key := environment.get(KEY_ENV):
        return SelectedLogin("", replace(login, key=key, session=""))
    return SelectedLogin(current, login)


def _no_current_message(contexts: Contexts) -> str:
    if not contexts.contexts:
        return f"no login yet; log in with `fairlead login URL`, or set {URL_ENV} and {KEY_ENV}"
    return (
        f"no current login; select one with --context or {CONTEXT_ENV} (available: {_context_names(contexts)}), "
        "or log in again"
    )


def _context_names(contexts: Contexts) -> str:
    return ", ".join(sorted(contexts.contexts)) or "none"


def _get_login(contexts: Contexts, name: str) -> Login:
    login = contexts.contexts.get(name)
    if login is None:
        advice = f"log in with `fairlead login URL --name {name}`"
        raise NotLoggedIn(f"no login named {name!r} (available: {_context_names(contexts)}); {advice}")
    return login


def _login_from_environment(url: str, environment: Mapping[str, str]) -> Login:
    key = environment.get(KEY_ENV)
    if not key:
        raise NotLoggedIn(f"{URL_ENV} is set, but {KEY_ENV} is not; set both, or neither to use a stored login")
    ca_file = environment.get(CA_FILE_ENV)
    return Login(normalize_url(url), key, read_ca_file(Path(ca_file)) if ca_file else "")


def default_context_name(url: str, stored: Contexts) -> str:
    """The default name of a login: the server's host, with its port unless that is 443, like `127.0.0.1-8443`.

    Earlier versions named it `127.0.0.1:8443`. A login with such a name keeps it.
    """
    address = normalize_url(url).removeprefix("https://").removesuffix(":443")
    return address if address in stored.contexts else replace_separators(address)


def replace_separators(name: str) -> str:
    """The name without colons, slashes and brackets, which shells, completion and file names do not take well."""
    return re.sub(r"[^\w.-]+", "-", name).strip("-")
