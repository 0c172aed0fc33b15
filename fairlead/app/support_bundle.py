"""The content of a support bundle: what helps to understand an installation, and no secrets.

Objects are counted, never read. Settings that could contain a password are shortened. On top of that, the known
secrets of the installation, and texts that look like one, are replaced in every file.
"""

import asyncio
import base64
import json
import os
import platform
import re
import ssl
import sys
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import asdict
from http.client import HTTPException, HTTPSConnection
from importlib.metadata import PackageNotFoundError, distributions
from pathlib import Path
from urllib.parse import unquote

import yaml

from fairlead import __version__
from fairlead.app.doctor import CONNECT_TIMEOUT, STORE_TIMEOUT, count_objects
from fairlead.core.files import FileProblem
from fairlead.settings import Settings, variable
from fairlead.settings.description import shorten_url, shorten_value
from fairlead.storage.contract import StoreUnavailable
from fairlead.storage.open import scheme_of

REDACTED = "[REDACTED]"
MAX_LOG_BYTES = 5 << 20
MAX_METRICS_BYTES = 5 << 20
MIN_SECRET_LENGTH = 6
"""Shorter texts would hide parts of ordinary words."""
SECRET_FILES = ("*.keys", "*.key", "tls/*.key")
KUBECONFIGS = "*.kubeconfig*"
SECRET_VARIABLES = ("pepper", "encryption_keys", "etcd_password", "key", "runner_key")

_SECRET_NAMES = (
    r"(?:password|passwd|passphrase|secret|token|access[_-]?key|api[_-]?key|private[_-]?key|pepper|code[_-]?verifier)"
)
"""Names end with one of them: `clientSecret`, `FAIRLEAD_ETCD_PASSWORD`."""
_PATTERNS = tuple(
    re.compile(pattern)
    for pattern in (
        r"(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
        r"(?i)(?P<kept>authorization\\*[\"']?\s*[=:]\s*\\*[\"']?(?:[a-z]+\s+)?)[^\s\"',}\\]+",
        r"(?i)(?<=bearer )[A-Za-z0-9._~+/=-]{8,}",
        r"(?i)(?<=basic )[A-Za-z0-9+/=_-]{8,}",
        r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*",
        # A password in a URL may contain slashes. It ends at the last @ before the next URL, which keeps this linear.
        r"(?<=://)(?:[^\s\"'/@:]*:(?:(?!://)[^\s\"'])*|[^/\s\"'@]+)(?=@)",
        r"\bfairlead_[A-Za-z0-9_-]{16,}",
        # A quoted value ends at the same quote with as many backslashes: JSON may be a string in JSON.
        rf"(?i)(?P<kept>{_SECRET_NAMES}\\*[\"']?\s*[=:]\s*\[?)"
        r"(?:(?P<opening>b?(?P<quote>\\*[\"']))(?:(?!(?<!\\)(?P=quote))[^\n])+|[^\s\"',}&]+)",
        # The code of OAuth, in a query or long and with a digit. Other codes, such as those of HTTP, are no secrets.
        r"(?i)(?P<kept>[?&]code=|(?<![\w-])code=(?=[^\s\"'&]{1,2048}&))[^\s\"'&]+",
        r"(?i)(?P<kept>(?<![\w-])code\\*[\"']?\s*[=:]\s*\[?\\*[\"']?)(?=[^\s\"'&,}\\\d]{0,64}\d)[^\s\"'&,}\\]{16,}",
    )
)


async def collect(settings: Settings, logs: Iterable[Path]) -> dict[str, str]:
    """The files of the bundle, by name. What cannot be had is replaced by the reason."""
    redact = Redactor(find_secrets(settings, os.environ))
    files = {
        "versions.json": _encode(_describe_versions()),
        "machine.json": _encode(_describe_machine(settings)),
        "settings.json": _encode(describe_settings(settings)),
        "objects.json": _encode(await _count(settings)),
        "metrics.txt": await asyncio.to_thread(_read_metrics, settings),
        **{f"logs/{number}-{path.name}": _read_tail(path) for number, path in enumerate(logs, 1)},
    }
    return {name: redact(text) for name, text in files.items()}


class Redactor:
    """Replaces known secrets, and texts that look like one."""

    def __init__(self, secrets: Iterable[str]) -> None:
        # The longest first: one secret may contain another one.
        usable = sorted({each for each in secrets if len(each) >= MIN_SECRET_LENGTH}, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, usable))) if usable else None

    def __call__(self, text: str) -> str:
        if self._known is not None:
            text = self._known.sub(REDACTED, text)
        for pattern in _PATTERNS:
            text = pattern.sub(_replace, text)
        return text


def _replace(match: re.Match[str]) -> str:
    groups = match.groupdict()
    return f"{groups.get('kept') or ''}{groups.get('opening') or ''}{REDACTED}"


def find_secrets(settings: Settings, environment: Mapping[str, str]) -> set[str]:
    """The secrets of this installation: from its files, from variables, and from the URL of the store."""
    texts = [environment.get(variable(name), "") for name in SECRET_VARIABLES]
    paths = [path for pattern in SECRET_FILES for path in settings.data.glob(pattern)]
    if settings.tls_key is not None:
        paths.append(settings.tls_key)
    for path in paths:
        try:
            texts.append(path.read_text(errors="replace"))
        except OSError:
            continue
    found = {part for text in texts for part in _split_secret(text)}
    found |= _read_credentials(settings.data.glob(KUBECONFIGS))
    user_info = settings.store_url.partition("://")[2].partition("?")[0].rpartition("@")[0]
    password = user_info.partition(":")[2]
    return found | {password, unquote(password)}


def _split_secret(text: str) -> set[str]:
    """A file or variable as a whole, its lines, and what separators divide. PEM markers and names are no secrets."""
    if "-----BEGIN" in text:
        return {line for line in text.splitlines() if line and not line.startswith("-----")}
    parts = {text.strip(), *text.splitlines(), *re.split(r"[\s,:;=]+", text)}
    return {part.strip() for part in parts if len(part.strip()) >= 16}


def _read_credentials(kubeconfigs: Iterable[Path]) -> set[str]:
    """All values of users: keys, passwords, and certificates with their private keys."""
    found = set()
    for path in kubeconfigs:
        try:
            users = (yaml.safe_load(path.read_text()) or {}).get("users") or []
            found |= {str(value) for user in users for value in user["user"].values()}
        except (OSError, yaml.YAMLError, AttributeError, KeyError, TypeError):
            continue
    return found | {base64.b64encode(each.encode()).decode() for each in found}


def describe_settings(settings: Settings) -> dict[str, object]:
    values = {name: shorten_value(value) for name, value in asdict(settings).items()}
    names = sorted(name for name in os.environ if name.startswith("FAIRLEAD_"))
    return {"settings": values | {"store": shorten_url(settings.store_url)}, "variablesThatAreSet": names}


def _describe_versions() -> dict[str, object]:
    packages = {}
    for each in distributions():
        try:
            packages[each.name] = each.version
        except (PackageNotFoundError, KeyError):
            continue
    return {"fairlead": __version__, "python": sys.version, "packages": dict(sorted(packages.items()))}


def _describe_machine(settings: Settings) -> dict[str, object]:
    folder = next(each for each in (settings.data, *settings.data.parents) if each.exists())
    disk = os.statvfs(folder)
    pages = os.sysconf("SC_PHYS_PAGES")
    size = os.sysconf("SC_PAGE_SIZE")
    return {
        "system": platform.platform(),
        "cpus": os.cpu_count(),
        "memoryBytes": pages * size,
        "diskBytes": disk.f_blocks * disk.f_frsize,
        "diskFreeBytes": disk.f_bavail * disk.f_frsize,
        "load": os.getloadavg(),
        "dataFolder": _describe_files(settings.data),
    }


def _describe_files(folder: Path) -> dict[str, object]:
    """Files that vanish meanwhile are left out: a running server removes some, such as the log of SQLite."""
    files = {}
    for path in sorted(folder.glob("*")):
        try:
            found = path.stat()
        except OSError:
            continue
        files[path.name] = {"bytes": found.st_size, "mode": oct(found.st_mode & 0o7777)}
    return dict(files)


async def _count(settings: Settings) -> dict[str, object]:
    if scheme_of(settings.store_url) == "memory":
        return {"error": "an in-memory store can only be read by its server"}
    try:
        async with asyncio.timeout(STORE_TIMEOUT):
            return {"counts": dict(sorted((await count_objects(settings)).items()))}
    except TimeoutError:
        return {"error": f"no answer within {STORE_TIMEOUT:.0f} seconds"}
    except (StoreUnavailable, ValueError, FileProblem) as error:
        return {"error": str(error)}


def _read_metrics(settings: Settings) -> str:
    key = _read_admin_key(settings.data / "admin.kubeconfig")
    host = "127.0.0.1" if settings.listen in ("0.0.0.0", "::") else settings.listen
    authority = settings.data / "tls" / "ca.crt"
    if not key or not authority.exists():
        return "not read: there is no admin.kubeconfig with a key, or no generated certificate\n"
    # The key is sent, so the server must prove that it is the one that this folder belongs to.
    try:
        context = ssl.create_default_context(cafile=str(authority))
        with closing(HTTPSConnection(host, settings.port, timeout=CONNECT_TIMEOUT, context=context)) as connection:
            connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {key}"})
            response = connection.getresponse()
            text = response.read(MAX_METRICS_BYTES).decode(errors="replace")
    except (OSError, HTTPException) as error:
        return f"not read: {error}\n"
    return text if response.status == 200 else f"not read: status {response.status}\n"


def _read_admin_key(path: Path) -> str:
    try:
        return str(yaml.safe_load(path.read_text())["users"][0]["user"]["token"])
    except (OSError, yaml.YAMLError, KeyError, IndexError, TypeError):
        return ""


def _read_tail(path: Path) -> str:
    """The last lines. Raises FileProblem: a file that was asked for must not be missing silently."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - MAX_LOG_BYTES))
            content = file.read(MAX_LOG_BYTES)
    except OSError as error:
        raise FileProblem(f"{path}: {error.strerror}") from error
    if size > MAX_LOG_BYTES:
        content = content.partition(b"\n")[2]  # the first line may be incomplete, and a secret in it unrecognizable
    return content.decode(errors="replace")


def _encode(value: object) -> str:
    return json.dumps(value, indent=2) + "\n"
