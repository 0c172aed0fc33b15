"""The host key of each workspace.

Keys are derived from one secret of the runner and the uid of the workspace. So each workspace has a key of its own,
from which nothing follows for others, and there is nothing to store or to delete for each of them.
"""

import secrets
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fairlead.core.crypto.ssh_certificates import encode_private_key, encode_public_key
from fairlead.core.files import FileProblem, read_file, write_file

SECRET_FILE = "ssh-host-secret"
SECRET_BYTES = 32


@dataclass(frozen=True, slots=True)
class HostKey:
    """Both in the format of OpenSSH; `public` is one line."""

    private: bytes = field(repr=False)
    public: str


class HostKeys:
    def __init__(self, state_folder: Path) -> None:
        self._path = state_folder / SECRET_FILE
        self._secret = b""

    def get(self, uid: str) -> HostKey:
        """Raises FileProblem."""
        derived = HKDF(SHA256(), SECRET_BYTES, salt=None, info=b"ssh host key " + uid.encode())
        key = Ed25519PrivateKey.from_private_bytes(derived.derive(self._load_secret()))
        return HostKey(encode_private_key(key), encode_public_key(key.public_key()))

    def _load_secret(self) -> bytes:
        if not self._secret:
            content = read_file(self._path)
            if content is None:
                content = secrets.token_bytes(SECRET_BYTES)
                write_file(self._path, content)
            if len(content) != SECRET_BYTES:
                raise FileProblem(f"{self._path}: is damaged; remove it, and all workspaces get new host keys")
            self._secret = content
        return self._secret
