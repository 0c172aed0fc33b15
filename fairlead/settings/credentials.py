"""Secrets that the service manager hands over as files: systemd's LoadCredential= and LoadCredentialEncrypted=.

A file `fairlead.NAME` in $CREDENTIALS_DIRECTORY has the value of a setting or of one of the other variables. Only this
process can read it, and it is in no environment that other programs could look into.
"""

from collections.abc import Collection, Mapping
from pathlib import Path

from fairlead.core.files import read_file
from fairlead.settings.sources import StartError

FOLDER_VARIABLE = "CREDENTIALS_DIRECTORY"
PREFIX = "fairlead."
MAX_BYTES = 1 << 20
"""The limit of systemd."""


def read_credentials(environment: Mapping[str, str], names: Collection[str], prefix: str) -> dict[str, str]:
    """The values by the names of their variables, `prefix` and the name in capitals. Raises StartError, FileProblem."""
    folder = environment.get(FOLDER_VARIABLE, "")
    if not folder or not Path(folder).is_dir():
        return {}
    found = {}
    for file in sorted(Path(folder).glob(f"{PREFIX}*")):
        name = file.name.removeprefix(PREFIX)
        if name not in names:
            raise StartError(f"unknown credential {file.name}; the name after the dot must be that of a setting")
        variable = prefix + name.upper()
        if environment.get(variable):
            raise StartError(f"{variable} is set, and there is a credential {file.name}; use one of them")
        if file.stat().st_size > MAX_BYTES:
            raise StartError(f"the credential {file.name} is larger than 1 MiB")
        try:
            found[variable] = (read_file(file) or b"").decode().strip()
        except UnicodeDecodeError:
            raise StartError(f"the credential {file.name} is not text") from None
    return found
