"""Data of every release: this version starts on it, nothing is lost, and it has the current version afterwards."""

import asyncio
import base64
import json
import tarfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fairlead.app.data_migrations import MIGRATIONS
from fairlead.app.maintenance import copy_store, restore_backup
from fairlead.kinds import KINDS
from fairlead.storage.data_version import DataVersion, load_version, parse_release
from fairlead.storage.open import open_store
from tests.harness.replicas import STORES, read_log, store_address
from tests.harness.server_process import MANAGEMENT, Server, running_server
from tests.upgrade.make_fixture import CREATED_FIRST, core_objects, management_objects

FIXTURES = sorted((Path(__file__).parent / "fixtures").glob("*.tar.gz"), key=lambda path: parse_release(path.name))
CLUSTER_ROLES = f"{MANAGEMENT}/apis/rbac.authorization.k8s.io/v1/clusterroles"
SECRET_FILES = ("pepper.key", "encryption.keys", "seal.keys")
NOT_IN_FIXTURES = {"events", "configs"}
"""Events expire, and the one Config exists in each installation."""

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Fixture:
    """A copy of the data of a release. `version` is the version that the data has in the beginning."""

    folder: Path
    manifest: Object
    version: int


def database_url(folder: Path) -> str:
    return f"sqlite:{folder}/fairlead.db"


def read_version(url: str) -> DataVersion | None:
    async def read() -> DataVersion | None:
        store = await open_store(url)
        try:
            return (await load_version(store))[0]
        finally:
            await store.close()

    return asyncio.run(read())


def unpack(archive: Path, folder: Path) -> Fixture:
    folder.mkdir(mode=0o700)
    with tarfile.open(archive) as content:
        for member in content:
            file = content.extractfile(member)
            assert file is not None and "/" not in member.name
            write_private(folder / member.name, file.read())
    version = read_version(database_url(folder))
    manifest = json.loads((folder / "manifest.json").read_text())
    return Fixture(folder, manifest, version.version if version is not None else 0)


def write_private(path: Path, content: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(content)


@pytest.fixture(scope="module", params=FIXTURES, ids=lambda path: path.name.removesuffix(".tar.gz"))
def fixture(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Fixture:
    return unpack(request.param, tmp_path_factory.mktemp("upgrade") / "data")


@pytest.fixture(scope="module")
def server(fixture: Fixture) -> Iterator[Server]:
    with running_server(fixture.folder) as server:
        yield server


def check_objects(server: Server, manifest: Object) -> None:
    """All objects have the uid and the content that they had, and maybe more fields."""
    with server.client(manifest["keys"]["admin"]) as client:
        for expected in manifest["objects"]:
            found = client.get(expected["path"])
            assert found.status_code == 200, (expected["path"], found.text)
            assert found.json()["metadata"]["uid"] == expected["uid"]
            check_included(expected["content"], found.json(), expected["path"])


def check_included(expected: Any, found: Any, where: str) -> None:
    if isinstance(expected, dict):
        assert isinstance(found, dict), where
        for name, value in expected.items():
            assert name in found, f"{where}: {name}"
            check_included(value, found[name], f"{where}: {name}")
    else:
        assert found == expected, where


def test_nothing_is_lost_and_secrets_are_decrypted(server: Server, fixture: Fixture) -> None:
    check_objects(server, fixture.manifest)
    paths = [each["path"] for each in fixture.manifest["objects"]]
    assert any("/secrets/" in path for path in paths)


def test_keys_and_passwords_are_valid(server: Server, fixture: Fixture) -> None:
    selves = f"{MANAGEMENT}/apis/management.service.sh/v1/selves"
    body = {"apiVersion": "management.service.sh/v1", "kind": "Self"}
    for user, key in fixture.manifest["keys"].items():
        with server.client(key) as client:
            answer = client.post(selves, json=body)
        assert (answer.status_code, answer.json()["status"]["user"]["name"]) == (201, user), answer.text
    with server.client(None) as client:
        login = client.post("/auth/password/login", json={"username": "ada", "password": fixture.manifest["password"]})
        wrong = client.post("/auth/password/login", json={"username": "ada", "password": "wrong"})
    assert (login.status_code, wrong.status_code) == (200, 401)


def permissions(rules: list[Object]) -> set[tuple[str, str, str]]:
    return {
        (group, resource, verb)
        for rule in rules
        for group in rule.get("apiGroups", ())
        for resource in rule.get("resources", ())
        for verb in rule["verbs"]
    }


@pytest.mark.parametrize("name", ["admin", "edit", "view"])
def test_default_roles_get_new_kinds_and_edits_stay(server: Server, fixture: Fixture, name: str) -> None:
    with server.client(fixture.manifest["keys"]["admin"]) as client:
        role = client.get(f"{CLUSTER_ROLES}/{name}").json()
    current = permissions(role["rules"])
    defaults = permissions(json.loads(role["metadata"]["annotations"]["service.sh/offered-rules"]))
    edited = fixture.manifest["editedRoles"].get(name)
    if edited is not None:
        assert role["rules"][: len(edited)] == edited
    removed = {each for each in defaults if each[1] == "secrets"} if edited is not None else set()
    assert defaults - current == removed - current == removed
    assert ("management.service.sh", "spaceinstances", "list") in current


def test_the_data_has_the_current_version_and_there_is_a_backup_of_the_old_one(
    server: Server, fixture: Fixture, tmp_path: Path
) -> None:
    assert server.stop() == 0
    version = read_version(database_url(fixture.folder))
    assert version is not None
    assert (version.version, version.migration) == (len(MIGRATIONS), None)
    backups = [*(fixture.folder / "backups").glob("*")]
    assert len(backups) == (fixture.version < len(MIGRATIONS))
    for backup in backups:
        check_backup(fixture, backup, tmp_path / "restored")


def check_backup(fixture: Fixture, backup: Path, folder: Path) -> None:
    """The backup is the way back: with the secrets of the fixture, it is the old data again."""
    folder.mkdir(mode=0o700)
    for name in SECRET_FILES:
        if (fixture.folder / name).exists():
            write_private(folder / name, (fixture.folder / name).read_bytes())
    asyncio.run(restore_backup(str(backup), database_url(folder)))
    version = read_version(database_url(folder))
    assert (version.version if version is not None else 0) == fixture.version
    with running_server(folder) as server:
        check_objects(server, fixture.manifest)


def replica_secrets(folder: Path) -> dict[str, str]:
    """The secrets of a data folder as replicas get them."""
    keys = next(folder / name for name in ("encryption.keys", "seal.keys") if (folder / name).exists())
    pepper = base64.b64encode((folder / "pepper.key").read_bytes()).decode()
    lines = [line for line in keys.read_text().splitlines() if line and not line.startswith("#")]
    return {"encryption_keys": " ".join(lines), "pepper": pepper}


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("archive", FIXTURES, ids=lambda path: path.name.removesuffix(".tar.gz"))
def test_replicas_that_start_together_on_old_data_migrate_it_once(archive: Path, store: str, tmp_path: Path) -> None:
    """The data is that of a single server, copied to a shared store by this version."""
    old = unpack(archive, tmp_path / "old")
    url = store_address(store, tmp_path)
    asyncio.run(copy_store(database_url(old.folder), url))
    with ExitStack() as stack, ThreadPoolExecutor(2) as pool:

        def start(name: str) -> Server:
            settings = {"store": url, "log_level": "info", "log_format": "json", **replica_secrets(old.folder)}
            return stack.enter_context(running_server(tmp_path / name, **settings))

        servers = [*pool.map(start, ("first", "second"))]
        for server in servers:
            check_objects(server, old.manifest)
        events = [line["event"] for server in servers for line in read_log(server)]
        assert events.count("migrating the data") == (old.version < len(MIGRATIONS))


def test_the_next_fixture_will_have_every_kind() -> None:
    """Add a kind that was added since to `make_fixture.py`."""
    created = {plural for plural, _ in (*core_objects(), *management_objects("demo"))} | CREATED_FIRST
    stored = {kind.plural for kind in KINDS if kind.persisted and "create" in kind.verbs and kind.conversion is None}
    assert stored - NOT_IN_FIXTURES == created
