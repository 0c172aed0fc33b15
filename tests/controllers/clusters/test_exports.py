"""The controller that keeps cluster Secrets of Argo CD in the cluster that declares it."""

import asyncio
import copy
import json
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from fairlead.controllers.clusters import exports
from fairlead.controllers.clusters.exports import (
    KEY_SECONDS,
    MAX_KEYS,
    OVERLAP_SECONDS,
    RESYNC_SECONDS,
    ClusterExportController,
)
from fairlead.controllers.instances.cluster_access import ClusterAccess
from fairlead.core.cluster_exports import Gateways
from fairlead.core.objects import Object, get_path, name_of
from fairlead.core.user import CONTROLLER_USER
from fairlead.registry.kind import MANAGEMENT_GROUP
from fairlead.registry.write_options import WriteOptions, server_write_options
from fairlead.upstream.clusters import NotConnected
from fairlead.upstream.errors import TimedOut, Unreachable, UpstreamError
from fairlead.upstream.kube_client import RemoteApiError
from tests.fake_cluster.kube import FakeKube, InMemoryClusterApi
from tests.harness.auth import PEPPER, AuthFixture, open_auth
from tests.harness.controllers import running_controllers
from tests.harness.eventually import eventually

SECRETS = "/api/v1/namespaces/argocd/secrets"
BERLIN = f"{SECRETS}/fairlead-berlin"
DECLARED = {"service.sh/export-argocd": "argocd", "service.sh/export-user": "ada"}
HOUR = 3600.0


def read_token(secret: Object) -> str:
    token: str = json.loads(b64decode(secret["data"]["config"]))["bearerToken"]
    return token


class WritingApi(InMemoryClusterApi):
    """A cluster that refuses some writes, or whose answers to them are lost."""

    def __init__(self, access: "FakeAccess") -> None:
        super().__init__(access.kube, access.error)
        self._access = access

    async def create(self, path: str, body: Object) -> Object:
        return self._answer(await super().create(path, body))

    async def patch(self, path: str, body: Object) -> Object:
        self._refuse(path)
        return self._answer(await super().patch(path, body))

    async def check_apply(self, path: str, body: Object) -> Object:
        self._refuse(path)
        return await super().check_apply(path, body)

    def _refuse(self, path: str) -> None:
        if path in self._access.refused_patches:
            raise RemoteApiError(self._access.refused_patches[path], "Invalid", "refused by the test")

    def _answer(self, stored: Object) -> Object:
        if self._access.lost_answers:
            error, *self._access.lost_answers = self._access.lost_answers
            self._access.unanswered.append(copy.deepcopy(stored))
            raise error
        return stored


@dataclass
class FakeAccess:
    """Replaces ClusterAccess: every cluster is the same Kubernetes."""

    kube: FakeKube
    error: UpstreamError | None = None
    missing: NotConnected | None = None
    """Why there is no connection to the cluster at all."""
    lost_answers: Sequence[UpstreamError | RemoteApiError] = ()
    """What the next writes fail with after they were stored."""
    unanswered: list[Object] = field(default_factory=list)
    """What these have stored."""
    refused_patches: dict[str, int] = field(default_factory=dict)
    """Paths, and the status that PATCH requests for them get."""
    names: set[str] = field(default_factory=set)

    def cluster_api(self, name: str, impersonate_user: str = "") -> InMemoryClusterApi:
        if self.missing is not None:
            raise self.missing
        self.names.add(name)
        return WritingApi(self)


@dataclass
class ExportFixture:
    auth: AuthFixture
    kube: FakeKube
    access: FakeAccess
    url: str = "https://fairlead.example.com"

    async def add_cluster(
        self, name: str, labels: Object | None = None, annotations: Object | None = None, **spec: Any
    ) -> None:
        meta = {"labels": labels or {}, "annotations": annotations or {}}
        body = self.auth.api.build_object("Cluster", name, metadata=meta, spec=spec)
        await self.auth.api.submit("Cluster", body, WriteOptions(CONTROLLER_USER, "tests"))

    async def declare(self, **more: str) -> None:
        await self.add_cluster("hub", annotations={**DECLARED, **more})

    async def add_key(self, meta: Object, cluster: str) -> None:
        scope = {"rules": [{"requestTargets": ["Cluster"], "cluster": cluster}]}
        body = self.auth.api.build_object("OwnedAccessKey", "made", metadata=meta, spec={"user": "ada", "scope": scope})
        await self.auth.api.submit("OwnedAccessKey", body, WriteOptions(CONTROLLER_USER, "tests"))

    async def edit_cluster(self, name: str, change: Callable[[Object], object]) -> None:
        def edit(obj: Object) -> None:
            change(obj["metadata"])

        await self.auth.api.patch("Cluster", name, edit, WriteOptions(CONTROLLER_USER, "tests"))

    async def remove_cluster(self, name: str) -> None:
        await self.auth.api.delete("Cluster", name)

    def exported(self) -> set[str]:
        return {path.rpartition("/fairlead-")[2] for path in self.kube.objects if path.startswith(SECRETS)}

    def labels(self, name: str) -> dict[str, str]:
        found: dict[str, str] = self.kube.objects[f"{SECRETS}/fairlead-{name}"]["metadata"]["labels"]
        return found

    def token(self, path: str = BERLIN) -> str:
        return read_token(self.kube.objects[path])

    def keys(self, cluster: str = "berlin") -> list[Object]:
        found = [self.auth.stored_key(name) for name in self.auth.api.list_names("OwnedAccessKey")]
        return [each for each in found if each["metadata"]["labels"]["service.sh/export-cluster"] == cluster]

    def condition(self) -> tuple[str, str]:
        hub = self.auth.api.get("Cluster", "hub") or {}
        found = [each for each in get_path(hub, "status.conditions") or () if each["type"] == "Exported"]
        return (found[0]["status"], found[0]["reason"]) if found else ("", "")

    def message(self) -> str:
        hub = self.auth.api.get("Cluster", "hub") or {}
        return str(next(each["message"] for each in get_path(hub, "status.conditions") if each["type"] == "Exported"))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        controller = ClusterExportController(
            registry=self.auth.registry,
            api_group=MANAGEMENT_GROUP,
            clusters=cast(ClusterAccess, self.access),
            gateways=lambda: Gateways(self.url, "the CA", "u-install"),
            digest=PEPPER.digest,
        )
        async with running_controllers(self.auth.api, controller):
            yield


@pytest.fixture
async def export() -> AsyncIterator[ExportFixture]:
    async with open_auth() as auth:
        kube = FakeKube()
        kube.add_object("/api/v1/namespaces/argocd")
        yield ExportFixture(auth, kube, FakeAccess(kube))


async def test_each_cluster_gets_a_secret_whose_key_the_server_accepts(export: ExportFixture) -> None:
    await export.add_cluster("berlin", {"env": "prod"})
    await export.declare()
    async with export.running():
        await eventually(lambda: export.condition() == ("True", "Exported"))
    assert export.exported() == {"berlin", "hub"}
    secret = export.kube.objects[BERLIN]
    assert secret["metadata"]["labels"]["argocd.argoproj.io/secret-type"] == "cluster"
    assert secret["metadata"]["labels"]["env"] == "prod"
    assert b64decode(secret["data"]["server"]) == b"https://fairlead.example.com/kubernetes/cluster/berlin"
    user = export.auth.authenticator.authenticate_token(export.token())
    assert (user.name, user.key) == ("ada", secret["metadata"]["annotations"]["service.sh/access-key"])
    assert user.scope is not None
    assert [(rule.targets, rule.cluster) for rule in user.scope.rules] == [(("Cluster",), "berlin")]
    assert export.access.names == {"hub"}


async def test_the_selector_decides_and_labels_that_change_are_followed(export: ExportFixture) -> None:
    await export.add_cluster("berlin", {"env": "prod"})
    await export.add_cluster("oslo", {"env": "test"})
    await export.declare(**{"service.sh/export-selector": "env=prod"})
    async with export.running():
        await eventually(lambda: export.exported() == {"berlin"})
        await export.edit_cluster("oslo", lambda meta: meta["labels"].update(env="prod", tier="1"))
        await eventually(lambda: export.exported() == {"berlin", "oslo"})
        await export.edit_cluster("berlin", lambda meta: meta["labels"].update(env="test"))
        await eventually(lambda: export.exported() == {"oslo"} and not export.keys())
        assert export.labels("oslo")["tier"] == "1"
        await export.edit_cluster("oslo", lambda meta: meta["labels"].pop("tier"))
        await eventually(lambda: "tier" not in export.labels("oslo"))


async def test_a_removed_cluster_loses_its_secret_and_its_keys(export: ExportFixture) -> None:
    await export.add_cluster("berlin")
    await export.declare()
    async with export.running():
        await eventually(lambda: "berlin" in export.exported())
        token = export.token()
        await export.remove_cluster("berlin")
        await eventually(lambda: export.exported() == {"hub"} and not export.keys())
        assert not export.auth.accepts(token)


async def test_keys_of_the_command_line_end_with_their_cluster_too(export: ExportFixture) -> None:
    await export.add_cluster("berlin")
    uid = (export.auth.api.get("Cluster", "berlin") or {})["metadata"]["uid"]
    meta = {
        "labels": {"service.sh/export": "argocd", "service.sh/export-cluster": "berlin"},
        "annotations": {"service.sh/export-cluster-uid": uid},
    }
    await export.add_key(meta, "berlin")
    async with export.running():
        await asyncio.sleep(HOUR)
        assert export.keys()
        await export.remove_cluster("berlin")
        await eventually(lambda: not export.keys())


async def test_keys_of_the_plugin_end_with_their_cluster_although_they_do_not_have_its_uid(
    export: ExportFixture,
) -> None:
    await export.add_cluster("berlin")
    await asyncio.sleep(2.0)
    meta = {"labels": {"service.sh/export": "clusterprofile", "service.sh/export-cluster": "berlin"}}
    await export.add_key(meta, "berlin")
    async with export.running():
        await asyncio.sleep(HOUR)
        assert export.keys()
    await export.remove_cluster("berlin")
    await asyncio.sleep(2.0)
    await export.add_cluster("berlin")  # another one of the same name
    async with export.running():
        await eventually(lambda: not export.keys())


async def test_a_key_whose_owner_has_changed_its_scope_is_replaced(export: ExportFixture) -> None:
    await export.add_cluster("berlin")
    await export.declare()
    async with export.running():
        await eventually(lambda: export.condition() == ("True", "Exported"))
        first = export.token()
        (key,) = export.keys()
        scope = {"rules": [{"requestTargets": ["Cluster"], "cluster": "berlin", "verbs": ["get"]}]}
        await export.auth.update_spec("OwnedAccessKey", name_of(key), CONTROLLER_USER, scope=scope)
        await eventually(lambda: export.token() != first, HOUR)
        await asyncio.sleep(OVERLAP_SECONDS + RESYNC_SECONDS)
        assert not export.auth.accepts(first)
        assert export.auth.accepts(export.token())


async def test_a_key_is_replaced_at_half_of_its_life_and_the_former_one_ends_later(export: ExportFixture) -> None:
    await export.add_cluster("berlin")
    await export.declare()
    async with export.running():
        await eventually(lambda: "berlin" in export.exported())
        first = export.token()
        await asyncio.sleep(KEY_SECONDS / 2 - HOUR)
        assert export.token() == first
        await asyncio.sleep(HOUR + 600)
        second = export.token()
        assert second != first
        assert export.auth.accepts(first)
        assert export.auth.accepts(second)
        await asyncio.sleep(OVERLAP_SECONDS)
        assert not export.auth.accepts(first)
        assert export.token() == second
        assert len(export.keys()) == 1


async def test_a_secret_of_others_is_never_changed(export: ExportFixture) -> None:
    foreign = export.kube.add_object(BERLIN, data={"server": "mine"})
    before = json.dumps(foreign)
    await export.add_cluster("berlin")
    await export.declare()
    async with export.running():
        await eventually(lambda: export.condition() == ("False", "ForeignSecret"))
        assert "1 of 2 clusters are exported" in export.message()
        assert "fairlead-berlin" in export.message()
        assert json.dumps(export.kube.objects[BERLIN]) == before
        assert export.keys() == []
        export.kube.remove_object(BERLIN)
        await eventually(lambda: export.condition() == ("True", "Exported"))
    assert "berlin" in export.exported()


async def test_another_installation_keeps_its_secrets(export: ExportFixture) -> None:
    meta = {
        "labels": {"service.sh/export": "argocd", "argocd.argoproj.io/secret-type": "cluster"},
        "annotations": {"service.sh/installation": "another"},
    }
    export.kube.add_object(f"{SECRETS}/fairlead-of-theirs", metadata=meta)
    await export.declare()
    async with export.running():
        await eventually(lambda: export.condition() == ("True", "Exported"))
    assert export.exported() == {"hub", "of-theirs"}


async def test_missing_rights_are_a_condition_and_leave_no_keys(export: ExportFixture) -> None:
    export.kube.failing_paths[SECRETS] = 403
    await export.add_cluster("berlin")
    await export.declare()
    async with export.running():
        await eventually(lambda: export.condition() == ("False", "Forbidden"))
        assert "may not get, list, create, patch and delete Secrets" in export.message()
        assert export.keys() == []
        export.kube.failing_paths.clear()
        await eventually(lambda: export.condition() == ("True", "Exported"))
    events = [
        export.auth.api.resource("Event").get_cached("default", each) for each in export.auth.api.list_names("Event")
    ]
    reasons = {json.loads(each.body)["reason"] for each in events if each is not None}
    assert {"Forbidden", "Exported"} <= reasons


async def test_a_secret_that_cannot_be_written_keeps_the_former_key(export: ExportFixture) -> None:
    await export.add_cluster("berlin")
    await export.declare()
    async with export.running():
        await eventually(lambda: export.condition() == ("True", "Exported"))
        first = export.token()
        export.access.error = Unreachable("it is off")
        await asyncio.sleep(KEY_SECONDS * 0.75)
        assert export.condition() == ("False", "NotConnected")
        assert export.auth.accepts(first)
        assert len(export.keys()) == 1
        export.access.error = None
        await eventually(lambda: export.token() != first)
        assert export.auth.accepts(export.token())


async def test_a_destination_without_a_kubeconfig_is_tried_again_when_it_is_online(export: ExportFixture) -> None:
    export.access.missing = NotConnected("SecretNotFound", "there is no Secret")
    await export.add_cluster("berlin")
    await export.declare()
    async with export.running():
        await eventually(lambda: export.condition() == ("False", "NotConnected"))
        await asyncio.sleep(HOUR)
        export.access.missing = None

        def connect(obj: Object) -> None:
            obj["status"]["online"] = True

        await export.auth.api.patch("Cluster", "hub", connect, server_write_options("status"))
        await eventually(lambda: export.condition() == ("True", "Exported"), RESYNC_SECONDS / 100)


async def test_what_others_change_in_a_secret_is_repaired_and_what_they_add_stays(export: ExportFixture) -> None:
    await export.add_cluster("berlin")
    await export.declare()
    async with export.running():
        await eventually(lambda: export.condition() == ("True", "Exported"))
        first = export.token()
        data = export.kube.objects[BERLIN]["data"]
        data.update(server=b64encode(b"https://evil.example.com").decode(), shard="MQ==")
        await asyncio.sleep(HOUR)
        secret = export.kube.objects[BERLIN]
        assert b64decode(secret["data"]["server"]).endswith(b"/kubernetes/cluster/berlin")
        assert secret["data"]["shard"] == "MQ=="
        assert export.token() == first
        secret["data"]["config"] = b64encode(b'{"bearerToken": "wrong"}').decode()
        await asyncio.sleep(HOUR)
        assert export.auth.accepts(export.token())
        export.kube.remove_object(BERLIN)
        await asyncio.sleep(HOUR)
        assert export.auth.accepts(export.token())


async def test_a_key_that_was_revoked_is_replaced_at_once(export: ExportFixture) -> None:
    await export.add_cluster("berlin")
    await export.declare()
    async with export.running():
        await eventually(lambda: export.condition() == ("True", "Exported"))
        first = export.token()
        (key,) = export.keys()
        await export.auth.api.delete("OwnedAccessKey", key["metadata"]["name"])
        await eventually(lambda: export.token() != first)


async def test_without_the_annotation_everything_is_removed(export: ExportFixture) -> None:
    await export.add_cluster("berlin")
    await export.declare()
    async with export.running():
        await eventually(lambda: export.condition() == ("True", "Exported"))
        await export.edit_cluster("hub", lambda meta: meta.update(annotations={}))
        await eventually(lambda: not export.exported() and not export.keys() and not export.keys("hub"))
        await eventually(lambda: export.condition() == ("", ""))


async def test_another_namespace_gets_the_secrets_and_the_former_one_loses_them(export: ExportFixture) -> None:
    await export.add_cluster("berlin")
    await export.declare()
    async with export.running():
        await eventually(lambda: export.condition() == ("True", "Exported"))
        moved = {**DECLARED, "service.sh/export-argocd": "gitops"}
        await export.edit_cluster("hub", lambda meta: meta.update(annotations=moved))
        path = BERLIN.replace("argocd", "gitops")
        await eventually(lambda: path in export.kube.objects and not export.exported())
        assert export.auth.accepts(export.token(path))


async def test_a_former_namespace_that_refuses_does_not_keep_the_new_one_waiting(export: ExportFixture) -> None:
    await export.add_cluster("berlin")
    await export.declare()
    async with export.running():
        await eventually(lambda: export.condition() == ("True", "Exported"))
        first = export.token()
        export.kube.failing_paths[SECRETS] = 403
        moved = {**DECLARED, "service.sh/export-argocd": "gitops"}
        await export.edit_cluster("hub", lambda meta: meta.update(annotations=moved))
        path = BERLIN.replace("argocd", "gitops")
        await eventually(lambda: path in export.kube.objects and "the namespace gitops" in export.message())
        assert export.condition() == ("True", "Exported")
        assert export.auth.accepts(export.token(path))
        assert not export.auth.accepts(first)


async def test_without_the_annotation_keys_are_revoked_also_if_the_cluster_is_not_reached(
    export: ExportFixture,
) -> None:
    await export.add_cluster("berlin")
    await export.declare()
    async with export.running():
        await eventually(lambda: export.condition() == ("True", "Exported"))
        export.access.error = Unreachable("it is off")
        await export.edit_cluster("hub", lambda meta: meta.update(annotations={}))
        await eventually(lambda: not export.keys() and not export.keys("hub"))
        await eventually(lambda: export.condition() == ("", ""))


async def test_keys_are_revoked_also_if_the_cluster_refuses(export: ExportFixture) -> None:
    await export.add_cluster("berlin", {"env": "prod"})
    await export.add_cluster("oslo", {"env": "prod"})
    await export.declare(**{"service.sh/export-selector": "env=prod"})
    async with export.running():
        await eventually(lambda: export.condition() == ("True", "Exported"))
        export.kube.failing_paths[SECRETS] = 500
        narrowed = {**DECLARED, "service.sh/export-selector": "env=test"}
        await export.edit_cluster("hub", lambda meta: meta.update(annotations=narrowed))
        await eventually(lambda: not export.keys() and not export.keys("oslo"))
        await eventually(lambda: export.condition() == ("False", "ExportFailed"))
        export.kube.failing_paths.clear()
        await eventually(lambda: not export.exported())


@pytest.mark.parametrize("namespace", ["kube-system", "..", ""])
async def test_a_key_with_the_marks_of_the_server_leads_it_nowhere(export: ExportFixture, namespace: str) -> None:
    export.kube.failing_paths["/namespaces/kube-system/"] = 403
    await export.add_cluster("berlin")
    await export.declare()
    uid = (export.auth.api.get("Cluster", "berlin") or {})["metadata"]["uid"]
    meta = {
        "labels": {
            **{"service.sh/export": "argocd", "service.sh/export-cluster": "berlin"},
            "service.sh/export-destination": "hub",
        },
        "annotations": {"service.sh/export-cluster-uid": uid, "service.sh/export-namespace": namespace},
    }
    await export.add_key(meta, "berlin")
    async with export.running():
        await eventually(lambda: export.condition() == ("True", "Exported"))
    assert export.exported() == {"berlin", "hub"}
    assert export.auth.accepts(export.token())
    targets = {target for _, target in export.kube.request_log}
    assert not {each for each in targets if "/.." in each or "//" in each}


async def test_one_secret_that_is_refused_does_not_keep_the_others_waiting(export: ExportFixture) -> None:
    await export.add_cluster("berlin")
    await export.declare()
    async with export.running():
        await eventually(lambda: export.condition() == ("True", "Exported"))
        first, hub = export.token(), export.token(f"{SECRETS}/fairlead-hub")
        export.access.refused_patches[BERLIN] = 422
        await asyncio.sleep(KEY_SECONDS / 2 + HOUR / 2)
        assert export.condition() == ("False", "ExportFailed")
        assert export.token() == first
        assert export.auth.accepts(first)
        assert len(export.keys()) == 1
        second = export.token(f"{SECRETS}/fairlead-hub")
        assert second != hub
        assert export.auth.accepts(second)


@pytest.mark.parametrize(
    "error", [TimedOut("lost"), RemoteApiError(504, "Timeout", "lost")], ids=lambda error: type(error).__name__
)
async def test_a_key_that_was_written_counts_although_the_answer_was_lost(
    export: ExportFixture, error: UpstreamError | RemoteApiError
) -> None:
    await export.add_cluster("berlin")
    export.access.lost_answers = [error]
    await export.declare()
    async with export.running():
        await eventually(lambda: export.condition() == ("True", "Exported"))
        assert_last_unanswered_counts(export)
        export.access.lost_answers = [error]
        await asyncio.sleep(KEY_SECONDS / 2 + 1.0)
        await eventually(lambda: len(export.access.unanswered) == 2, 2 * HOUR)
        await asyncio.sleep(2 * HOUR)
        assert_last_unanswered_counts(export)
        assert len(export.keys()) == 1


def assert_last_unanswered_counts(export: ExportFixture) -> None:
    """The key that was written is the one that is in the Secret, and accepted."""
    written = export.access.unanswered[-1]
    token = read_token(written)
    assert export.token(f"{SECRETS}/{name_of(written)}") == token
    assert export.auth.accepts(token)


@pytest.mark.parametrize("url", ["https://127.0.0.1:8443", "https://[::1]:8443", "https://localhost"])
async def test_addresses_that_pods_do_not_reach_are_said(export: ExportFixture, url: str) -> None:
    export.url = url
    await export.add_cluster("berlin")
    await export.declare()
    async with export.running():
        await eventually(lambda: export.condition() == ("True", "Exported"))
    assert f"{url} is a loopback address, which pods do not reach; set public_url" in export.message()


async def test_an_address_that_pods_reach_is_nothing_to_say(export: ExportFixture) -> None:
    await export.declare()
    async with export.running():
        await eventually(lambda: export.condition() == ("True", "Exported"))
    assert export.message() == "1 clusters are exported to the namespace argocd"


async def test_the_keys_end_with_the_destination_also_while_no_server_runs(export: ExportFixture) -> None:
    await export.add_cluster("berlin")
    await export.declare()
    async with export.running():
        await eventually(lambda: export.condition() == ("True", "Exported"))
    await export.remove_cluster("hub")
    async with export.running():
        await eventually(lambda: not export.keys() and not export.keys("hub"))


@pytest.mark.parametrize(
    ("annotations", "reason", "text"),
    [
        ({"service.sh/export-user": "nobody"}, "UserNotFound", 'no active user "nobody"'),
        ({"service.sh/export-user": ""}, "UserNotFound", "service.sh/export-user"),
        ({"service.sh/export-selector": "a=="}, "Exported", ""),
        ({"service.sh/export-selector": "a in"}, "InvalidExport", "service.sh/export-selector is not valid"),
    ],
)
async def test_what_is_wrong_is_said(
    export: ExportFixture, annotations: dict[str, str], reason: str, text: str
) -> None:
    await export.declare(**annotations)
    async with export.running():
        await eventually(lambda: export.condition()[1] == reason)
        assert text in export.message()


async def test_nothing_is_written_through_a_kubeconfig_that_others_may_replace(export: ExportFixture) -> None:
    """As earlier versions have accepted it."""
    await export.add_cluster("hub", None, DECLARED, config={"secretName": "s", "secretNamespace": "service-p-web"})
    async with export.running():
        await eventually(lambda: export.condition() == ("False", "InvalidExport"))
    assert "move the Secret to service-system" in export.message()
    assert export.exported() == set()
    assert export.keys("hub") == []


@pytest.mark.parametrize("former", [{}, {**DECLARED, "service.sh/export-argocd": "gitops"}], ids=["none", "another"])
async def test_what_a_former_annotation_has_led_to_is_removed_although_no_server_ran_when_it_was_changed(
    export: ExportFixture, former: dict[str, str]
) -> None:
    await export.add_cluster("berlin")
    await export.declare()
    async with export.running():
        await eventually(lambda: export.condition() == ("True", "Exported"))
    keys = {name_of(each) for each in [*export.keys(), *export.keys("hub")]}
    await export.edit_cluster("hub", lambda meta: meta.update(annotations=former))
    async with export.running():
        await eventually(lambda: not export.exported())
        await eventually(lambda: export.condition() == (("True", "Exported") if former else ("", "")))
        assert not keys & {name_of(each) for each in [*export.keys(), *export.keys("hub")]}


async def test_keys_whose_export_has_no_condition_are_found_too(export: ExportFixture) -> None:
    await export.add_cluster("berlin")
    await export.declare()
    async with export.running():
        await eventually(lambda: export.condition() == ("True", "Exported"))
    await export.edit_cluster("hub", lambda meta: meta.update(annotations={}))
    await export.auth.api.patch("Cluster", "hub", lambda obj: obj.update(status={}), server_write_options("status"))
    async with export.running():
        await eventually(lambda: not export.exported() and not export.keys() and not export.keys("hub"))


async def test_the_condition_of_a_former_export_ends_although_no_server_ran(export: ExportFixture) -> None:
    await export.declare(**{"service.sh/export-user": "nobody"})
    async with export.running():
        await eventually(lambda: export.condition() == ("False", "UserNotFound"))
    await export.edit_cluster("hub", lambda meta: meta.update(annotations={}))
    async with export.running():
        await eventually(lambda: export.condition() == ("", ""))


async def test_a_change_of_a_cluster_leads_to_its_secret_alone(export: ExportFixture) -> None:
    names = [f"c{number}" for number in range(20)]
    for name in names:
        await export.add_cluster(name)
    await export.declare()
    async with export.running():
        await eventually(lambda: export.condition() == ("True", "Exported"))
        export.kube.request_log.clear()
        await export.edit_cluster("c7", lambda meta: meta.update(labels={"env": "prod"}))
        await eventually(lambda: export.labels("c7").get("env") == "prod")
        await export.add_cluster("new")
        await eventually(lambda: "new" in export.exported())
        await export.remove_cluster("c9")
        await eventually(lambda: "c9" not in export.exported())
        await eventually(lambda: export.message().startswith("21 clusters"))
        paths = {target.partition("?")[0] for _, target in export.kube.request_log}
        assert paths <= {SECRETS, *(f"{SECRETS}/fairlead-{each}" for each in ("c7", "new", "c9"))}
        assert not [target for method, target in export.kube.request_log if method == "GET" and "?" in target]


async def test_what_the_server_writes_about_the_destination_leads_to_no_request(export: ExportFixture) -> None:
    await export.add_cluster("berlin")
    await export.declare()
    async with export.running():
        await eventually(lambda: export.condition() == ("True", "Exported"))
        export.kube.request_log.clear()
        for number in range(5):

            def probe(obj: Object, number: int = number) -> None:
                obj["status"]["lastProbeTime"] = f"2026-01-02T03:04:0{number}Z"

            await export.auth.api.patch("Cluster", "hub", probe, server_write_options("status"))
            await asyncio.sleep(1.0)
        assert export.kube.request_log == []


async def test_a_cluster_that_refuses_gets_no_keys_and_ever_fewer_requests(export: ExportFixture) -> None:
    for name in ("berlin", "oslo", "hub"):
        export.access.refused_patches[f"{SECRETS}/fairlead-{name}"] = 403
    await export.add_cluster("berlin")
    await export.add_cluster("oslo")
    await export.declare()
    async with export.running():
        await eventually(lambda: export.condition() == ("False", "Forbidden"))
        assert "forbids the Secret fairlead-berlin in the namespace argocd" in export.message()
        revision = export.auth.api.view.revision
        export.kube.request_log.clear()
        await asyncio.sleep(HOUR)
        assert export.auth.api.view.revision == revision
        lists = [target for method, target in export.kube.request_log if "labelSelector" in target]
        assert HOUR / RESYNC_SECONDS <= len(lists) <= HOUR / RESYNC_SECONDS + 5
        export.access.refused_patches.clear()
        await eventually(lambda: export.condition() == ("True", "Exported"), HOUR)


async def test_where_others_restore_an_old_secret_keys_do_not_pile_up(export: ExportFixture) -> None:
    await export.add_cluster("berlin")
    await export.declare()
    async with export.running():
        await eventually(lambda: export.condition() == ("True", "Exported"))
        old = copy.deepcopy(export.kube.objects[BERLIN])
        (key,) = export.keys()
        await export.auth.api.delete("OwnedAccessKey", name_of(key))
        made = set[str]()
        for _ in range(144):  # half a day
            export.kube.objects[BERLIN] = copy.deepcopy(old)
            await asyncio.sleep(RESYNC_SECONDS)
            assert len(export.keys()) <= MAX_KEYS
            made.update(map(name_of, export.keys()))
        assert len(made) <= 12 + MAX_KEYS
        assert export.condition() == ("False", "SecretOverwritten")
        assert "the Secrets fairlead-berlin: leave these out of what they restore or deploy" in export.message()
        await asyncio.sleep(2 * OVERLAP_SECONDS)
        assert export.condition() == ("True", "Exported")
        assert export.auth.accepts(export.token())
        assert len(export.keys()) == 1


async def test_secrets_are_listed_in_pages(export: ExportFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exports, "PAGE_ITEMS", 2)
    for number in range(4):
        await export.add_cluster(f"c{number}")
    await export.declare()
    async with export.running():
        await eventually(lambda: export.condition() == ("True", "Exported"))
        gone = copy.deepcopy(export.kube.objects[f"{SECRETS}/fairlead-hub"])
        export.kube.add_object(f"{SECRETS}/fairlead-past", metadata={**gone["metadata"], "name": "fairlead-past"})
        export.kube.request_log.clear()
        await eventually(lambda: "past" not in export.exported(), HOUR)
        lists = [target for method, target in export.kube.request_log if "labelSelector" in target]
        assert len(lists) == 3
        assert all("limit=2" in each for each in lists)


@pytest.mark.parametrize(
    ("status", "reason", "text"),
    [
        (401, "ExportFailed", "rejects the stored credential; store a valid one"),
        (403, "Forbidden", "may not get, list, create, patch and delete Secrets in the namespace argocd; bind a Role"),
        (404, "NamespaceNotFound", "the namespace argocd does not exist in the cluster"),
        (422, "ExportFailed", "HTTP status 422; look there for a policy or a quota"),
        (503, "ExportFailed", "HTTP status 503; check its API server"),
    ],
)
async def test_what_the_cluster_answers_is_explained(
    export: ExportFixture, status: int, reason: str, text: str
) -> None:
    export.kube.failing_paths[SECRETS] = status
    await export.declare()
    async with export.running():
        await eventually(lambda: export.condition() == ("False", reason))
    assert text in export.message()


@pytest.mark.parametrize(
    ("status", "reason", "text"),
    [
        (403, "Forbidden", "bind a Role, or change the policy"),
        (404, "NamespaceNotFound", "the namespace argocd does not exist in the cluster; install Argo CD there"),
        (409, "ExportFailed", "another program has changed it at the same time, and the server tries again"),
        (422, "ExportFailed", "the Secret fairlead-berlin in the namespace argocd with HTTP status 422; look there"),
        (503, "ExportFailed", "check its API server"),
    ],
)
async def test_why_a_single_secret_is_missing_is_said(
    export: ExportFixture, status: int, reason: str, text: str
) -> None:
    export.access.refused_patches[BERLIN] = status
    await export.add_cluster("berlin")
    await export.declare()
    async with export.running():
        await eventually(lambda: export.condition() == ("False", reason))
    assert export.message().startswith("1 of 2 clusters are exported; ")
    assert text in export.message()
    assert export.exported() == {"hub"}


async def test_an_idle_fleet_writes_nothing(export: ExportFixture) -> None:
    await export.add_cluster("berlin")
    await export.declare()
    async with export.running():
        await eventually(lambda: export.condition() == ("True", "Exported"))
        revision = export.auth.api.view.revision
        export.kube.request_log.clear()
        await asyncio.sleep(HOUR)
        assert export.auth.api.view.revision == revision
        methods: set[Any] = {method for method, _ in export.kube.request_log}
        assert methods == {"GET"}
