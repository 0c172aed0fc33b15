"""Follows kubeconfigs in files, which another program keeps current: a mounted Secret of a vault, or a login that a
timer refreshes.

A Secret in the system namespace with the annotation below is kept in line with a file in the folder that the operator
has set (`cluster_kubeconfig_folder`): its key `config`, and nothing else of it. Only administrators write Secrets of
that namespace, and the annotation has no effect elsewhere. A file that leads out of the folder, or is no kubeconfig
that the server accepts, changes nothing. Clusters refer to the Secret as to any other. Each replica needs the files:
the leader reads them.
"""

import asyncio
from base64 import b64encode
from collections.abc import Iterable
from pathlib import Path

import structlog

from fairlead.core.files import FileProblem, read_file
from fairlead.core.objects import Object, annotations_of
from fairlead.registry.codec import decode
from fairlead.registry.conditions import record_event
from fairlead.registry.registry import Registry
from fairlead.registry.write_options import server_write_options
from fairlead.storage.contract import Key
from fairlead.storage.view.view import Entry
from fairlead.upstream.clusters import DEFAULT_KUBECONFIG_KEY
from fairlead.upstream.kubeconfig import InvalidKubeconfig, parse_kubeconfig

FILE_ANNOTATION = "service.sh/kubeconfig-file"
INTERVAL_SECONDS = 10.0

log = structlog.get_logger(__name__)


class UnusableFile(Exception):
    """Why a file is not used. The message has no path but the one in the annotation."""


def kubeconfig_file(secret: Object) -> str:
    """The file that a Secret follows; empty for none."""
    return str(annotations_of(secret).get(FILE_ANNOTATION) or "")


class KubeconfigFileController:
    name, workers = "kubeconfig-files", 4

    def __init__(self, registry: Registry, namespace: str, folder: Path) -> None:
        self.watches = (("", "secrets"),)
        self._registry = registry
        self._secrets = registry.resource("", "secrets")
        self._namespace = namespace
        self._folder = folder
        self._problems: dict[Key, str] = {}

    def keys_for(self, key: Key, entry: Entry | None) -> Iterable[Key]:
        is_ours = key[2] == self._namespace and entry is not None and kubeconfig_file(decode(entry))
        return (key,) if is_ours else ()

    async def reconcile(self, key: Key) -> float | None:
        entry = self._secrets.get_cached(self._namespace, key[3])
        secret = decode(entry) if entry is not None else {}
        name = kubeconfig_file(secret) if entry is not None else ""
        if not name:
            self._problems.pop(key, None)
            return None
        try:
            content = await asyncio.to_thread(read_kubeconfig_file, self._folder, name)
        except UnusableFile as error:
            await self._report(key, secret, str(error))
            return INTERVAL_SECONDS
        self._problems.pop(key, None)
        await self._store(key[3], name, b64encode(content).decode())
        return INTERVAL_SECONDS

    async def _store(self, secret_name: str, file: str, text: str) -> None:
        def edit(secret: Object) -> Object:
            data = secret.get("data") or {}
            if kubeconfig_file(secret) != file or data.get(DEFAULT_KUBECONFIG_KEY) == text:
                return secret
            return {**secret, "data": {**data, DEFAULT_KUBECONFIG_KEY: text}}

        await self._secrets.modify(self._namespace, secret_name, edit, server_write_options())

    async def _report(self, key: Key, secret: Object, problem: str) -> None:
        """Once, not in every round."""
        if self._problems.get(key) != problem:
            self._problems[key] = problem
            log.warning("a kubeconfig file is not used", secret=key[3], reason=problem)
            await record_event(self._registry, secret, "KubeconfigFileNotUsed", problem, type="Warning")


def read_kubeconfig_file(folder: Path, name: str) -> bytes:
    """Reads a file below the folder, also through links that stay in it. Raises UnusableFile."""
    root = folder.resolve()
    try:
        path = (root / name).resolve()
    except (OSError, RuntimeError, ValueError):  # links without an end; a name that no file can have
        raise UnusableFile(f"the file {name!a} cannot be found: its name or a link on the way is not valid") from None
    if not path.is_relative_to(root) or path == root:
        raise UnusableFile(f'the file "{name}" is not in the folder of the setting cluster_kubeconfig_folder')
    try:
        content = read_file(path)
    except FileProblem:
        raise UnusableFile(f'the file "{name}" cannot be read; make it readable for the server') from None
    if content is None:
        raise UnusableFile(f'there is no file "{name}" in the folder of the setting cluster_kubeconfig_folder')
    try:
        parse_kubeconfig(content)
    except InvalidKubeconfig as error:
        raise UnusableFile(f'the file "{name}" cannot be used: {error}') from None
    return content
