"""The files and options with which OpenSSH reaches a workspace: a key, a certificate, the host keys, a configuration.

The server signs the key for five minutes and says which host keys the workspace has. So nothing is trusted on first
use, and no key is stored in a workspace.
"""

import os
import re
import shlex
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fairlead.client import Client, ClientError
from fairlead.core.files import FileProblem, ensure_private_folder, read_file, write_file
from fairlead.core.objects import get_path

WORKSPACES = "devpodworkspaceinstances"
SUFFIX = "fairlead"
KEY_FILE = "id_ed25519"
USER_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")
HOST_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
KEY_LINE = re.compile(r"[a-z0-9@.-]{1,64} [A-Za-z0-9+/=]{1,16384}")


@dataclass(frozen=True, slots=True)
class Place:
    """A workspace, as commands name it."""

    name: str
    project: str
    context: str | None
    namespace: str = ""
    """That of the project. Empty: commands ask the server for it, which takes another request."""

    @property
    def host(self) -> str:
        """The name for ssh: `desk.demo.fairlead`."""
        host = f"{self.name}.{self.project}.{SUFFIX}"
        if not HOST_NAME.fullmatch(host):
            raise ClientError(f"{self.name!r} in {self.project!r} is not a workspace; use names as shown in lists")
        return host

    def command(self, *words: str) -> str:
        """A command line of this program for the configuration of ssh, where `%` begins a token."""
        flags = ["--project", self.project]
        if HOST_NAME.fullmatch(self.namespace):  # else a line break could begin another line of the configuration
            flags += ["--namespace", self.namespace]
        if self.context:
            flags += ["--context", self.context]
        parts = (sys.executable, "-m", "fairlead", "workspace", *words, self.name, *flags)
        return shlex.join(parts).replace("%", "%%")


@dataclass(frozen=True, slots=True)
class SshFiles:
    """The files of one workspace, in a folder that only its owner can read."""

    folder: Path
    host: str

    @property
    def key(self) -> Path:
        return self.folder / KEY_FILE

    @property
    def certificate(self) -> Path:
        return self.folder / f"{self.host}-cert.pub"

    @property
    def known_hosts(self) -> Path:
        return self.folder / f"{self.host}.known_hosts"

    @property
    def user(self) -> Path:
        """A part of a configuration, with the user to log in as."""
        return self.folder / f"{self.host}.user"

    def request_certificate(self, client: Client, name: str, namespace: str) -> str:
        """Writes all files, and returns the user to log in as, empty if it is not known."""
        public_key = ensure_key(self.key)
        body = {"spec": {"publicKey": public_key}}
        response = client.invoke_action(WORKSPACES, name, "sshcertificate", body, namespace=namespace)
        certificate = _require_line(get_path(response, "status.certificate"))
        host_keys = [_require_line(each) for each in get_path(response, "status.hostKeys") or ()]
        user = get_path(response, "status.user") or ""
        if user and not USER_NAME.fullmatch(str(user)):
            raise ClientError("the server returned an invalid user name; is it a Fairlead server?")
        write_file(self.known_hosts, "".join(f"{self.host} {each}\n" for each in host_keys).encode())
        write_file(self.user, f"User {user}\n".encode() if user else b"")
        write_file(self.certificate, f"{certificate}\n".encode())
        return str(user)


def ensure_key(path: Path) -> str:
    """The public key of the private key in a file, which is created if there is none. Commands may do so at once."""
    from fairlead.core.crypto.ssh_certificates import InvalidSshKey, find_public_key, generate_private_key

    content = read_file(path)
    if content is None:
        _create_file(path, generate_private_key().encode())
        content = read_file(path) or b""
    try:
        return find_public_key(content.decode("ascii", "replace"))
    except InvalidSshKey as error:
        raise FileProblem(f"{path}: {error}; remove it, and it is created again") from None


def _create_file(path: Path, content: bytes) -> None:
    """Leaves a file alone that another process has created meanwhile."""
    descriptor, draft = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        with suppress(FileExistsError):
            os.link(draft, path)
    finally:
        os.unlink(draft)


def _require_line(value: object) -> str:
    if not isinstance(value, str) or not KEY_LINE.fullmatch(value):
        raise ClientError("the server did not return an SSH certificate and host keys; is it a Fairlead server?")
    return value


def build_options(files: SshFiles, proxy: str) -> Mapping[str, str]:
    """Options of ssh. The agent of the user is neither used nor, unless the user wants it, forwarded."""
    return {
        "ProxyCommand": proxy,
        "IdentityFile": _quote(files.key),
        "CertificateFile": _quote(files.certificate),
        "IdentitiesOnly": "yes",
        "UserKnownHostsFile": _quote(files.known_hosts),
        "GlobalKnownHostsFile": "none",
        "StrictHostKeyChecking": "yes",
        "UpdateHostKeys": "no",
        "PreferredAuthentications": "publickey",
        "ConnectTimeout": "0",
        "ServerAliveInterval": "15",
        "ServerAliveCountMax": "3",
        "ForwardAgent": "no",
    }


def build_config(places: Sequence[Place], folder: Path) -> str:
    """The configuration for workspaces. Each is named: a pattern would pass any name to a shell."""
    blocks = ["# Written by `fairlead workspace ssh-config`, which replaces it.\n"]
    for place in places:
        files = SshFiles(folder, place.host)
        options = build_options(files, place.command("ssh-proxy"))
        lines = "".join(f"    {name} {value}\n" for name, value in options.items())
        prepare = place.command("ssh-prepare").replace('"', '\\"')
        match = f'Match originalhost {place.host} exec "{prepare}"\n    Include {_quote(files.user)}\n'
        blocks.append(f"Host {place.host}\n{lines}{match}")
    return "\n".join(blocks)


def include_config(config: Path, own: Path) -> bool:
    """Makes ssh read a configuration: adds a line at the top of the user's own. Returns whether it was missing."""
    line = f"Include {_quote(own)}"
    content = (read_file(config) or b"").decode(errors="surrogateescape")
    if line in content.splitlines():
        return False
    ensure_private_folder(config.parent)
    target = config.resolve()  # it may be a link into a folder with the user's settings
    write_file(target, f"{line}\n\n{content}".rstrip("\n").encode(errors="surrogateescape") + b"\n")
    return True


def _quote(path: Path) -> str:
    text = str(path).replace("%", "%%")
    if '"' in text or "\n" in text:
        raise FileProblem(f"{path}: ssh does not accept quotes in paths; use another folder")
    return f'"{text}"'
