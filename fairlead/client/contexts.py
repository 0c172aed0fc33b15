"""Where logins are kept: one file of this user's, with a name for each.

`$XDG_CONFIG_HOME/fairlead/config.yaml` (else `~/.config/fairlead/config.yaml`), readable by its owner only:

    current: example
    contexts:
      example:
        url: https://fairlead.example.com
        key: fairlead_...
        authority: |
          -----BEGIN CERTIFICATE-----

`fairlead login` and `logout` write it, every other command asks `chosen` for a login. The environment may take its
place, as in CI: FAIRLEAD_URL with FAIRLEAD_KEY. A stored key is never sent to an address from there.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from fairlead.client.client import DEFAULT_GROUP, Client, normalized, read_authority
from fairlead.client.errors import ClientError
from fairlead.core import yaml
from fairlead.core.body_errors import Malformed
from fairlead.core.files import FileProblem, private_folder, read_file, write_file

URL, KEY, CA_FILE, CONTEXT = "FAIRLEAD_URL", "FAIRLEAD_KEY", "FAIRLEAD_CA_FILE", "FAIRLEAD_CONTEXT"


class NoLogin(ClientError):
    """Nobody has said which server to talk to."""


@dataclass(frozen=True, slots=True)
class Login:
    """All that it takes to talk to a server as somebody. `authority` is PEM; empty trusts the machine's authorities."""

    url: str
    key: str = field(default="", repr=False)
    authority: str = ""
    insecure: bool = False
    group: str = DEFAULT_GROUP

    def client(self) -> Client:
        return Client(self.url, self.key, authority=self.authority, insecure=self.insecure, group=self.group)


@dataclass(frozen=True, slots=True)
class Contexts:
    """The file as a value."""

    current: str = ""
    contexts: dict[str, Login] = field(default_factory=dict)

    def with_login(self, name: str, login: Login) -> Contexts:
        """It is the current one from now on."""
        return Contexts(name, self.contexts | {name: login})

    def without(self, name: str) -> Contexts:
        rest = {each: login for each, login in self.contexts.items() if each != name}
        return Contexts("" if self.current == name else self.current, rest)


@dataclass(frozen=True, slots=True)
class Chosen:
    """A login and the name that it is kept under, empty where it came from the environment."""

    name: str
    login: Login


def contexts_path(environment: Mapping[str, str] = os.environ) -> Path:
    given = environment.get("XDG_CONFIG_HOME", "")
    # The XDG specification has relative paths ignored.
    if given.startswith("/"):
        return Path(given) / "fairlead" / "config.yaml"
    try:
        return Path.home() / ".config" / "fairlead" / "config.yaml"
    except RuntimeError as error:
        raise FileProblem("this user has no home folder; set XDG_CONFIG_HOME to a folder for logins") from error


def load(path: Path) -> Contexts:
    """What the file holds; nothing where there is none."""
    content = read_file(path)
    if content is None:
        return Contexts()
    try:
        value, _ = yaml.decode(content)
        return msgspec.convert({} if value is None else value, Contexts)
    except (Malformed, msgspec.ValidationError) as error:
        # A validation error names the place and the types; it does not quote the value.
        problem = str(error) if isinstance(error, msgspec.ValidationError) else "not YAML"
        raise FileProblem(f"{path}: {problem}; mend it, or remove it and log in again") from None


def save(path: Path, contexts: Contexts) -> None:
    """In a folder and a file that are closed to everybody else."""
    private_folder(path.parent)
    logins = {name: _worth_saying(login) for name, login in contexts.contexts.items()}
    write_file(path, yaml.encode({"current": contexts.current, "contexts": logins}))


def _worth_saying(login: Login) -> dict[str, Any]:
    """The file is for people, too: what a login has by default is left out."""
    plain = asdict(Login(login.url))
    return {name: value for name, value in asdict(login).items() if name == "url" or value != plain[name]}


def chosen(name: str | None, environment: Mapping[str, str] = os.environ) -> Chosen:
    """The login to use: the named context, else what the environment says, else the current context."""
    kept = load(contexts_path(environment))
    if name is not None:
        return Chosen(name, _named(kept, name))
    if url := environment.get(URL):
        return Chosen("", _from_environment(url, environment))
    current = environment.get(CONTEXT) or kept.current
    if not current:
        raise NoLogin(_nothing_chosen(kept))
    login = _named(kept, current)
    if ca_file := environment.get(CA_FILE):
        login = replace(login, authority=read_authority(Path(ca_file)))
    if key := environment.get(KEY):
        return Chosen("", replace(login, key=key))
    return Chosen(current, login)


def _nothing_chosen(kept: Contexts) -> str:
    if not kept.contexts:
        return f"no login yet; log in with `fairlead login URL`, or set {URL} and {KEY}"
    return (
        f"no login is the current one; choose with --context or {CONTEXT} (there are: {_names(kept)}), or log in again"
    )


def _names(kept: Contexts) -> str:
    return ", ".join(sorted(kept.contexts)) or "none"


def _named(kept: Contexts, name: str) -> Login:
    login = kept.contexts.get(name)
    if login is None:
        advice = f"log in with `fairlead login URL --name {name}`"
        raise NoLogin(f"no login named {name!r} (there are: {_names(kept)}); {advice}")
    return login


def _from_environment(url: str, environment: Mapping[str, str]) -> Login:
    key = environment.get(KEY)
    if not key:
        raise NoLogin(f"{URL} is set, but {KEY} is not; set both, or neither to use a login of `fairlead login`")
    ca_file = environment.get(CA_FILE)
    return Login(normalized(url), key, read_authority(Path(ca_file)) if ca_file else "")


def default_name(url: str) -> str:
    """What a login is called unless somebody says otherwise: the server's host, with its port unless it is 443."""
    return normalized(url).removeprefix("https://").removesuffix(":443")
