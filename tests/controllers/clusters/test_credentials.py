"""Tests of `fairlead.controllers.clusters.credentials`: stored tokens and client certificates are renewed and tried,
and those that expire are reported, on virtual time."""

import asyncio
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import jwt
import pytest
import yaml

from fairlead.controllers.clusters.credentials import (
    RENEWAL_ANNOTATION,
    RENEWAL_DISABLED,
    ClusterCredentialController,
)
from fairlead.controllers.clusters.kubeconfig_files import FILE_ANNOTATION
from fairlead.core.objects import Object
from fairlead.registry.conditions import find_condition
from fairlead.registry.kind import MANAGEMENT_GROUP
from fairlead.upstream.address_policy import AddressPolicy
from fairlead.upstream.clusters import KubeconfigRef, UpstreamRegistry
from fairlead.upstream.credential import read_credential
from fairlead.upstream.errors import TimedOut
from fairlead.upstream.kubeconfig import parse_kubeconfig
from fairlead.upstream.upstream import Limits, Upstream
from tests.controllers.clusters.cluster_fixture import CONFIG, cluster_status, list_events
from tests.fake_cluster.certificates import PemPair, get_authority
from tests.fake_cluster.credentials import CERTIFICATE_REQUESTS, InProcessUpstream, IssuingCluster
from tests.fake_cluster.token_reviews import TokenReviews
from tests.harness.controllers import running_controllers
from tests.harness.eventually import eventually
from tests.harness.registry import NAMESPACE, RegistryFixture

HOUR, DAY = 3600, 86_400
ACCOUNT = ("kube-system", "fairlead")
REF = KubeconfigRef(NAMESPACE, "s", "config")


class InProcessUpstreams(UpstreamRegistry):
    """Upstreams with the stored credential, to an IssuingCluster in this process."""

    def __init__(self, api: RegistryFixture, cluster: IssuingCluster) -> None:
        policy = AddressPolicy((), lambda: ())
        super().__init__(api.registry, MANAGEMENT_GROUP, NAMESPACE, policy, Limits())
        self._cluster = cluster

    def system_upstream(self, name: str) -> Upstream:
        endpoint = parse_kubeconfig(self.read_kubeconfig(REF))
        return cast(Upstream, InProcessUpstream(self._cluster, endpoint))

    def open_trial_upstream(self, ref: KubeconfigRef, kubeconfig: bytes) -> Upstream:
        return cast(Upstream, InProcessUpstream(self._cluster, parse_kubeconfig(kubeconfig)))


def build_kubeconfig(**user: Any) -> bytes:
    """One with a second context, whose credential is none of ours."""
    cluster = {
        "server": "https://berlin.example.com:6443",
        "certificate-authority-data": b64encode(get_authority().pem.encode()).decode(),
    }
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": name, "context": {"cluster": "c", "user": name}} for name in ("other", "here")],
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "other", "user": {"token": "untouched"}}, {"name": "here", "user": user}],
    }
    return yaml.safe_dump(content).encode()


def encode_secret(kubeconfig: bytes) -> Object:
    return {"config": b64encode(kubeconfig).decode(), "note": b64encode(b"kept").decode()}


def stored_kubeconfig(api: RegistryFixture) -> bytes:
    secret = api.get("Secret", "s")
    assert secret is not None
    return b64decode(secret["data"]["config"])


def stored_token(api: RegistryFixture) -> str:
    return parse_kubeconfig(stored_kubeconfig(api)).token


def lifetime(token: str) -> int:
    claims = jwt.decode(token, options={"verify_signature": False})
    return int(claims["exp"] - claims["iat"])


def expiry(api: RegistryFixture) -> Object:
    """The condition, or nothing."""
    return find_condition(cluster_status(api), "CredentialExpires") or {}


def facts(api: RegistryFixture) -> Object:
    return cluster_status(api).get("credentialExpiry") or {}


@pytest.fixture
def cluster(api: RegistryFixture) -> IssuingCluster:
    tokens = TokenReviews(now=lambda: api.clock.now().timestamp())
    tokens.add_account(*ACCOUNT)
    return IssuingCluster(tokens)


@asynccontextmanager
async def controller(
    api: RegistryFixture, cluster: IssuingCluster, *, follows_files: bool = False
) -> AsyncIterator[None]:
    upstreams = InProcessUpstreams(api, cluster)
    async with running_controllers(
        api,
        ClusterCredentialController(api.registry, MANAGEMENT_GROUP, NAMESPACE, upstreams, follows_files=follows_files),
    ):
        yield


async def connect(api: RegistryFixture, kubeconfig: bytes, **fields: Any) -> None:
    await api.create("Secret", "s", data=encode_secret(kubeconfig))
    await api.create("Cluster", "berlin", **{"spec": {"config": CONFIG}, **fields})


async def connect_with_token(api: RegistryFixture, cluster: IssuingCluster, seconds: int, **fields: Any) -> str:
    token = cluster.tokens.issue(*ACCOUNT, seconds=seconds)
    await connect(api, build_kubeconfig(token=token), **fields)
    return token


async def test_a_token_is_renewed_at_half_of_its_life_again_and_again(
    api: RegistryFixture, cluster: IssuingCluster
) -> None:
    async with controller(api, cluster):
        first = await connect_with_token(api, cluster, 2 * DAY)
        await asyncio.sleep(DAY - 60)
        assert stored_token(api) == first
        assert facts(api)["state"] == "Valid" and facts(api)["renewalTimestamp"] == "2026-01-03T03:04:05Z"
        await asyncio.sleep(120)
        second = stored_token(api)
        assert second != first and lifetime(second) == 2 * DAY
        for _ in range(30):
            await asyncio.sleep(DAY)
            assert cluster.tokens.review(stored_token(api)).get("authenticated")
            assert not expiry(api)
        assert 30 <= cluster.count() <= 32
        assert ("Normal", "CredentialRenewed") in list_events(api)


async def test_the_rest_of_the_kubeconfig_and_of_the_secret_is_kept(
    api: RegistryFixture, cluster: IssuingCluster
) -> None:
    async with controller(api, cluster):
        first = await connect_with_token(api, cluster, 2 * DAY)
        before = yaml.safe_load(stored_kubeconfig(api))
        await asyncio.sleep(DAY + 60)
        after = yaml.safe_load(stored_kubeconfig(api))
        assert after["users"][1]["user"]["token"] != first
        after["users"][1]["user"]["token"] = first
        assert after == before
        secret = api.get("Secret", "s")
        assert secret is not None and b64decode(secret["data"]["note"]) == b"kept"


async def test_a_token_of_an_hour_is_replaced_by_one_of_a_day(api: RegistryFixture, cluster: IssuingCluster) -> None:
    async with controller(api, cluster):
        await connect_with_token(api, cluster, HOUR)
        await asyncio.sleep(HOUR / 2 + 60)
        assert lifetime(stored_token(api)) == DAY


@pytest.mark.parametrize(
    ("seconds", "left"), [(2 * DAY, 2 * DAY), (40 * DAY, 40 * DAY / 2)], ids=["at once", "at half of its life"]
)
async def test_a_missing_right_is_reported_days_ahead_and_costs_nothing(
    api: RegistryFixture, cluster: IssuingCluster, seconds: int, left: float
) -> None:
    """A short token is checked at once; of a long one, half of its life is left when it is reported."""
    cluster.may_create_tokens = False
    async with controller(api, cluster):
        token = await connect_with_token(api, cluster, seconds)
        await asyncio.sleep(seconds - left + 60)
        condition = expiry(api)
        assert (condition["status"], condition["reason"]) == ("True", "RenewalForbidden")
        assert "fairlead cluster role renewal" in condition["message"]
        assert "kube-system/fairlead" in condition["message"]
        assert facts(api)["state"] == "Expiring"
        assert stored_token(api) == token
        assert list_events(api).count(("Warning", "RenewalForbidden")) == 1
        cluster.may_create_tokens = True
        await eventually(lambda: not expiry(api), 2 * HOUR)


async def test_a_token_that_is_not_renewed_expires_with_an_event(api: RegistryFixture, cluster: IssuingCluster) -> None:
    cluster.may_create_tokens = False
    async with controller(api, cluster):
        await connect_with_token(api, cluster, 2 * DAY)
        await asyncio.sleep(2 * DAY + 120)
        assert (expiry(api)["reason"], facts(api)["state"]) == ("Expired", "Expired")
        assert "fairlead cluster add berlin --agent" in expiry(api)["message"]
        assert ("Warning", "Expired") in list_events(api)
        before = len(cluster.requests)
        await asyncio.sleep(10 * HOUR)
        assert len(cluster.requests) - before <= 11


async def test_a_renewal_that_fails_for_a_while_is_repeated(api: RegistryFixture, cluster: IssuingCluster) -> None:
    async with controller(api, cluster):
        first = await connect_with_token(api, cluster, 2 * DAY)
        await asyncio.sleep(HOUR)
        cluster.error = TimedOut("no answer within ten seconds")
        await asyncio.sleep(DAY)
        assert expiry(api)["reason"] == "RenewalFailed"
        assert stored_token(api) == first
        cluster.error = None
        await eventually(lambda: stored_token(api) != first, 2 * HOUR)
        await eventually(lambda: not expiry(api))


async def test_a_renewal_that_fails_once_is_not_reported(api: RegistryFixture, cluster: IssuingCluster) -> None:
    async with controller(api, cluster):
        first = await connect_with_token(api, cluster, 2 * DAY)
        await asyncio.sleep(DAY - 30)
        cluster.error = TimedOut("no answer within ten seconds")
        await asyncio.sleep(60)
        cluster.error = None
        await eventually(lambda: stored_token(api) != first, 120)
        assert not expiry(api)
        assert ("Warning", "RenewalFailed") not in list_events(api)


@pytest.mark.parametrize("hours", [-40, -13, -7, 7, 13, 40])
async def test_a_cluster_with_another_clock_is_not_lost_and_gets_few_requests(
    api: RegistryFixture, cluster: IssuingCluster, hours: int
) -> None:
    cluster.tokens.now = lambda: api.clock.now().timestamp() + hours * HOUR
    async with controller(api, cluster):
        await connect_with_token(api, cluster, DAY)
    for _ in range(4):
        async with controller(api, cluster):  # a restart
            for _ in range(24):
                await asyncio.sleep(HOUR)
                assert cluster.tokens.review(stored_token(api)).get("authenticated")
    assert 7 <= cluster.count() <= (4 * 12 if hours == -40 else 16)
    assert ("Warning", "RenewalFailed") not in list_events(api)


@pytest.mark.parametrize(("hours", "how"), [(-13, "behind"), (13, "ahead of")])
async def test_a_clock_that_is_far_off_is_reported(
    api: RegistryFixture, cluster: IssuingCluster, hours: int, how: str
) -> None:
    cluster.tokens.now = lambda: api.clock.now().timestamp() + hours * HOUR
    async with controller(api, cluster):
        await connect_with_token(api, cluster, DAY)
        await asyncio.sleep(DAY)
        assert expiry(api)["reason"] == "ClocksDiffer"
        assert f"the clock of the cluster is 13.0 hours {how} that of this server" in expiry(api)["message"]


async def test_a_token_that_is_bound_to_an_object_stays_bound_to_it(
    api: RegistryFixture, cluster: IssuingCluster
) -> None:
    async with controller(api, cluster):
        first = cluster.tokens.issue(*ACCOUNT, pod="p", seconds=2 * DAY)
        await connect(api, build_kubeconfig(token=first))
        await asyncio.sleep(DAY + 120)
        second = jwt.decode(stored_token(api), options={"verify_signature": False})
        assert stored_token(api) != first
        assert second["kubernetes.io"]["pod"] == {"name": "p", "uid": cluster.tokens.pods[ACCOUNT[0], "p"]}
        del cluster.tokens.pods[ACCOUNT[0], "p"]
        await asyncio.sleep(DAY + 120)
        assert expiry(api)["reason"] == "RenewalFailed"
        assert "no other token for the Pod p, which the stored one is bound to and ends with" in expiry(api)["message"]
        assert "store a token that is bound to no object" in expiry(api)["message"]


@pytest.mark.parametrize(
    "break_token",
    [
        lambda cluster: setattr(cluster, "edit_token", lambda token: f"{token[:-4]}AAAA"),
        lambda cluster: setattr(cluster, "edit_token", lambda token: "opaque"),
        lambda cluster: setattr(cluster, "edit_token", lambda token: "in two\nlines"),
        lambda cluster: setattr(cluster, "edit_token", lambda token: ""),
    ],
    ids=["a bad signature", "no end", "a line break", "empty"],
)
async def test_a_new_token_that_does_not_work_is_never_stored(
    api: RegistryFixture, cluster: IssuingCluster, break_token: Any
) -> None:
    break_token(cluster)
    async with controller(api, cluster):
        first = await connect_with_token(api, cluster, 2 * DAY)
        await asyncio.sleep(DAY + 120)
        assert cluster.count() >= 1
        assert stored_token(api) == first
        assert expiry(api)["reason"] == "RenewalFailed"
        assert first not in str(cluster_status(api))


async def test_a_token_of_another_account_is_never_stored(api: RegistryFixture, cluster: IssuingCluster) -> None:
    cluster.tokens.add_account("kube-system", "other")
    cluster.edit_token = lambda token: cluster.tokens.issue("kube-system", "other", seconds=9 * DAY)
    async with controller(api, cluster):
        first = await connect_with_token(api, cluster, 2 * DAY)
        await asyncio.sleep(DAY + 120)
        assert stored_token(api) == first
        assert "another user" in expiry(api)["message"]


async def test_without_self_reviews_the_new_token_is_tried_with_the_version(
    api: RegistryFixture, cluster: IssuingCluster
) -> None:
    cluster.serves_self_reviews = False
    async with controller(api, cluster):
        first = await connect_with_token(api, cluster, 2 * DAY)
        await asyncio.sleep(DAY + 120)
        second = stored_token(api)
        assert second != first
    tried = [each.header("authorization") for each in cluster.requests if each.path == "/version"]
    assert tried == [f"Bearer {second}"]


async def test_a_server_that_dies_between_request_and_store_loses_nothing(
    api: RegistryFixture, cluster: IssuingCluster
) -> None:
    died = asyncio.Event()

    async def die() -> None:
        died.set()
        await asyncio.sleep(1e9)

    async with controller(api, cluster):
        first = await connect_with_token(api, cluster, 2 * DAY)
        await asyncio.sleep(DAY - HOUR)
        cluster.before_response = lambda request: api.store.before.append(die) if request.method == "POST" else None
        await asyncio.wait_for(died.wait(), 2 * HOUR)
    cluster.before_response = lambda request: None
    api.store.before.clear()
    assert stored_token(api) == first
    async with controller(api, cluster):
        await eventually(lambda: stored_token(api) != first)
        assert cluster.tokens.review(stored_token(api)).get("authenticated")


async def test_of_two_renewals_at_once_one_counts_and_works(api: RegistryFixture, cluster: IssuingCluster) -> None:
    """Only the leader runs controllers. A former leader that does not know yet that it is none loses the race."""
    async with controller(api, cluster), controller(api, cluster):
        first = await connect_with_token(api, cluster, 2 * DAY)
        await asyncio.sleep(DAY + 120)
        assert stored_token(api) != first
        assert list_events(api).count(("Normal", "CredentialRenewed")) == 1
        assert cluster.tokens.review(stored_token(api)).get("authenticated")
        assert not expiry(api)


async def test_a_credential_that_a_person_stores_meanwhile_is_kept(
    api: RegistryFixture, cluster: IssuingCluster
) -> None:
    other = cluster.tokens.issue(*ACCOUNT, seconds=30 * DAY)

    async def replace() -> None:
        await api.patch("Secret", "s", lambda obj: obj.update(data=encode_secret(build_kubeconfig(token=other))))

    def once(request: Any) -> None:
        cluster.before_response = lambda request: None
        api.store.before.append(replace)

    async with controller(api, cluster):
        await connect_with_token(api, cluster, 2 * DAY)
        await asyncio.sleep(DAY - HOUR)
        cluster.before_response = once
        await asyncio.sleep(2 * HOUR)
        assert stored_token(api) == other
        assert cluster.count() == 1


async def test_a_writer_that_restores_the_old_token_is_reported_not_fought(
    api: RegistryFixture, cluster: IssuingCluster
) -> None:
    async with controller(api, cluster):
        first = await connect_with_token(api, cluster, 2 * DAY)
        await asyncio.sleep(DAY + 120)
        await api.patch("Secret", "s", lambda obj: obj.update(data=encode_secret(build_kubeconfig(token=first))))
        await asyncio.sleep(3 * HOUR)
        assert (stored_token(api), cluster.count()) == (first, 1)
        assert expiry(api)["reason"] == "RenewalOverwritten"


async def test_a_cluster_that_gives_shorter_tokens_now_keeps_the_long_one_until_it_is_nearly_over(
    api: RegistryFixture, cluster: IssuingCluster
) -> None:
    cluster.max_seconds = 2 * DAY
    async with controller(api, cluster):
        first = await connect_with_token(api, cluster, 40 * DAY)
        await asyncio.sleep(38 * DAY)
        assert stored_token(api) == first and not expiry(api)
        await asyncio.sleep(1.5 * DAY)
        assert lifetime(stored_token(api)) == 2 * DAY


async def test_a_cluster_with_the_annotation_is_not_renewed_but_reported(
    api: RegistryFixture, cluster: IssuingCluster
) -> None:
    async with controller(api, cluster):
        meta = {"annotations": {RENEWAL_ANNOTATION: RENEWAL_DISABLED}}
        first = await connect_with_token(api, cluster, 40 * DAY, metadata=meta)
        await asyncio.sleep(25 * DAY)
        assert not expiry(api)
        assert "renewalTimestamp" not in facts(api)
        await asyncio.sleep(2 * DAY)
        assert expiry(api)["reason"] == "ExpiresSoon"
        assert (stored_token(api), cluster.count()) == (first, 0)


async def test_a_token_that_the_kubelet_renews_is_left_alone(api: RegistryFixture, cluster: IssuingCluster) -> None:
    async with controller(api, cluster):
        first = await connect_with_token(api, cluster, HOUR, spec={"config": CONFIG, "local": True})
        await asyncio.sleep(HOUR * 0.85)
        assert not expiry(api)
        await asyncio.sleep(HOUR * 0.1)
        assert (expiry(api)["reason"], stored_token(api)) == ("ExpiresSoon", first)


@pytest.mark.parametrize("token", ["opaque", "a.b.c"])
async def test_a_credential_without_a_known_end_is_unlimited(
    api: RegistryFixture, cluster: IssuingCluster, token: str
) -> None:
    async with controller(api, cluster):
        await connect(api, build_kubeconfig(token=token))
        await eventually(lambda: facts(api) == {"type": "token", "state": "Unlimited"})
        await asyncio.sleep(99 * DAY)
        assert not expiry(api) and not cluster.requests


async def test_the_condition_ends_with_a_new_credential_and_with_an_agent(
    api: RegistryFixture, cluster: IssuingCluster
) -> None:
    cluster.may_create_tokens = False
    async with controller(api, cluster):
        await connect_with_token(api, cluster, 2 * DAY)
        await eventually(lambda: expiry(api))
        token = cluster.tokens.issue(*ACCOUNT, seconds=99 * DAY)
        await api.patch("Secret", "s", lambda obj: obj.update(data=encode_secret(build_kubeconfig(token=token))))
        await eventually(lambda: not expiry(api))
        assert facts(api)["state"] == "Valid"
        await api.patch("Cluster", "berlin", lambda obj: obj["spec"].update(networkPeer=True))
        await eventually(lambda: not facts(api))


NAME, GROUP = "fairlead-berlin", "fairlead-servers"


async def connect_with_certificate(api: RegistryFixture, cluster: IssuingCluster, seconds: int, *groups: str) -> str:
    pair = cluster.issue_certificate(NAME, seconds, *groups)
    await connect(api, build_kubeconfig(**encode_pair(pair)))
    return pair.certificate


def encode_pair(pair: PemPair) -> dict[str, str]:
    return {
        "client-certificate-data": b64encode(pair.certificate.encode()).decode(),
        "client-key-data": b64encode(pair.key.encode()).decode(),
    }


def stored_certificate(api: RegistryFixture) -> str:
    return parse_kubeconfig(stored_kubeconfig(api)).client_certificate


async def test_a_client_certificate_is_renewed_for_the_same_subject_with_a_new_key(
    api: RegistryFixture, cluster: IssuingCluster
) -> None:
    async with controller(api, cluster):
        first = await connect_with_certificate(api, cluster, 40 * DAY, GROUP)
        key = parse_kubeconfig(stored_kubeconfig(api)).client_key
        await asyncio.sleep(19 * DAY)
        assert stored_certificate(api) == first and facts(api)["type"] == "certificate"
        await asyncio.sleep(2 * DAY)
        second = stored_certificate(api)
        assert second != first
        assert parse_kubeconfig(stored_kubeconfig(api)).client_key != key
        credential = read_credential(parse_kubeconfig(stored_kubeconfig(api)))
        assert (credential.user, credential.groups) == (NAME, (GROUP,))
        assert credential.lifetime is not None and credential.lifetime.days >= 40
        assert not expiry(api)
    assert cluster.count(CERTIFICATE_REQUESTS) == 1
    (request,) = cluster.signing_requests.values()
    assert request["status"]["conditions"][0]["reason"] == "RenewedByFairlead"
    assert "PRIVATE KEY" not in str([each.body for each in cluster.requests])


@pytest.mark.parametrize(
    "denied",
    [("create", "certificatesigningrequests"), ("approve", "signers"), ("update", "certificatesigningrequests")],
)
async def test_without_the_rights_no_request_is_left_and_the_condition_names_them(
    api: RegistryFixture, cluster: IssuingCluster, denied: tuple[str, str]
) -> None:
    cluster.denied = (denied,)
    async with controller(api, cluster):
        first = await connect_with_certificate(api, cluster, 10 * DAY)
        await asyncio.sleep(60)
        assert expiry(api)["reason"] == "RenewalForbidden"
        await asyncio.sleep(6 * DAY)
        assert all(word in expiry(api)["message"] for word in ("certificatesigningrequests/approval", "approve"))
        assert (stored_certificate(api), cluster.signing_requests) == (first, {})


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda cluster: setattr(cluster, "signs", False), "not signed the new client certificate within 30 seconds"),
        (lambda cluster: setattr(cluster, "edit_certificate", lambda pem: "no certificate"), "cannot be used"),
        (
            lambda cluster: setattr(
                cluster, "edit_certificate", lambda pem: cluster.issue_certificate("other", 99 * DAY).certificate
            ),
            "cannot be used",
        ),
    ],
    ids=["no signer", "no certificate", "for another key"],
)
async def test_a_new_certificate_that_does_not_work_is_never_stored(
    api: RegistryFixture, cluster: IssuingCluster, edit: Any, message: str
) -> None:
    edit(cluster)
    async with controller(api, cluster):
        first = await connect_with_certificate(api, cluster, 10 * DAY)
        await asyncio.sleep(5 * DAY + 120)
        assert stored_certificate(api) == first
        assert expiry(api)["reason"] == "RenewalFailed" and message in expiry(api)["message"]


async def test_a_certificate_of_the_masters_is_reported_without_a_request(
    api: RegistryFixture, cluster: IssuingCluster
) -> None:
    """No cluster signs another one."""
    async with controller(api, cluster):
        await connect_with_certificate(api, cluster, 40 * DAY, "system:masters")
        await asyncio.sleep(25 * DAY)
        assert not expiry(api)
        await asyncio.sleep(2 * DAY)
        assert expiry(api)["reason"] == "ExpiresSoon" and "system:masters" in expiry(api)["message"]
        assert not cluster.requests


async def test_a_token_from_a_file_is_reported_but_not_replaced(api: RegistryFixture, cluster: IssuingCluster) -> None:
    async with controller(api, cluster, follows_files=True):
        token = cluster.tokens.issue(*ACCOUNT, seconds=2 * DAY)
        meta = {"annotations": {FILE_ANNOTATION: "berlin"}}
        await api.create("Secret", "s", metadata=meta, data=encode_secret(build_kubeconfig(token=token)))
        await api.create("Cluster", "berlin", spec={"config": CONFIG})
        await asyncio.sleep(DAY + 120)
        assert (stored_token(api), cluster.count()) == (token, 0)
        assert expiry(api)["reason"] == "ExpiresSoon" and "follows a file" in expiry(api)["message"]


async def test_a_server_without_a_folder_of_files_renews_a_token_whose_secret_names_one(
    api: RegistryFixture, cluster: IssuingCluster
) -> None:
    async with controller(api, cluster):
        token = cluster.tokens.issue(*ACCOUNT, seconds=2 * DAY)
        meta = {"annotations": {FILE_ANNOTATION: "berlin"}}
        await api.create("Secret", "s", metadata=meta, data=encode_secret(build_kubeconfig(token=token)))
        await api.create("Cluster", "berlin", spec={"config": CONFIG})
        await asyncio.sleep(DAY + 120)
        assert stored_token(api) != token
        assert not expiry(api)
