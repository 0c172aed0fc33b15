"""The agent's direct endpoint, connected to a fake cluster: authentication, authorization and impersonation headers."""

from pathlib import Path

import pytest

from fairlead.agent.control_plane import ControlPlaneError
from fairlead.core.errors import Expired, Forbidden, Unauthorized, Unavailable
from tests.fake_cluster.server import FakeCluster
from tests.harness.agent import (
    ADA,
    build_configuration,
    configuration_without_ada,
    open_agent,
    parse_body,
    sign_scoped_token,
)
from tests.harness.direct_tokens import INVALID_TOKENS, VALID_TOKEN, token_with_claims, token_with_private_claims

PODS = "/kubernetes/cluster/api/v1/namespaces/demo/pods"
SPACE_PODS = "/kubernetes/project/web/space/s/api/v1/namespaces/web-s/pods"
ONE_CLUSTER = {"clusters": [{"cluster": "berlin"}]}


async def test_a_valid_token_is_forwarded_as_its_user(tmp_path: Path, fake_cluster: FakeCluster) -> None:
    async with open_agent(tmp_path, fake_cluster) as endpoint:
        reply = await endpoint.send(f"{PODS}?limit=5")
        assert reply.status == 200, reply.body
        (received,) = fake_cluster.requests
        assert (received.method, received.target) == ("GET", "/api/v1/namespaces/demo/pods?limit=5")
        assert received.header("impersonate-user") == "fairlead:ada"
        assert received.header("authorization") == "Bearer fake-token"
        assert VALID_TOKEN not in str(received.headers)


async def test_t41_invalid_tokens_are_rejected_and_a_valid_one_works(tmp_path: Path, fake_cluster: FakeCluster) -> None:
    tokens = {
        reason: token for reason, token in INVALID_TOKENS.items() if token == token.strip()
    }  # a header value has no surrounding whitespace
    async with open_agent(tmp_path, fake_cluster) as endpoint:
        accepted = {
            reason for reason, token in tokens.items() if (await endpoint.send(PODS, token)).status not in (401, 403)
        }
        assert accepted == set() and len(tokens) >= 50
        assert fake_cluster.requests == []
        assert (await endpoint.send(PODS)).status == 200


async def test_a_request_without_a_bearer_token_gets_401(tmp_path: Path, fake_cluster: FakeCluster) -> None:
    async with open_agent(tmp_path, fake_cluster) as endpoint:
        reply = await endpoint.send(PODS, None)
        assert reply.status == 401 and "fairlead token create" in parse_body(reply)["message"]
        assert (await endpoint.send(PODS, None, authorization=f"Basic {VALID_TOKEN}")).status == 401


async def test_t13_a_token_for_another_cluster_is_rejected(tmp_path: Path, fake_cluster: FakeCluster) -> None:
    async with open_agent(tmp_path, fake_cluster) as endpoint:
        assert (await endpoint.send(PODS, sign_scoped_token(ONE_CLUSTER))).status == 200
        for clusters in ({"berlin": "uid-of-an-earlier-berlin"}, {}, {"oslo": "uid-of-berlin"}):
            assert (await endpoint.send(PODS, sign_scoped_token(ONE_CLUSTER, clusters))).status == 403
        assert (await endpoint.send(PODS, sign_scoped_token({"clusters": [{"cluster": "oslo"}]}))).status == 403
        rule = {"rules": [{"cluster": "berlin", "verbs": ["list"]}]}
        assert (await endpoint.send(PODS, sign_scoped_token(rule))).status == 200
        assert (await endpoint.send(PODS, sign_scoped_token(rule, {}))).status == 403


async def test_t13_a_user_without_the_verb_use_on_the_cluster_gets_403(
    tmp_path: Path, fake_cluster: FakeCluster
) -> None:
    """A token without a scope is valid at every agent, so the operator of another agent could replay it here."""
    async with open_agent(tmp_path, fake_cluster) as endpoint:
        endpoint.control_plane.config = build_configuration(allowed=["uid-of-bob"])
        await endpoint.config_cache.refresh()
        for token in (VALID_TOKEN, sign_scoped_token(ONE_CLUSTER)):
            reply = await endpoint.send(PODS, token)
            assert reply.status == 403 and 'the verb "use"' in parse_body(reply)["message"]
            assert endpoint.last_call.decision is not None and not endpoint.last_call.decision.allowed
        assert fake_cluster.requests == []
        assert (await endpoint.send(SPACE_PODS)).status == 200, "the space has its own permissions"


async def test_t13_a_user_without_the_verb_use_on_the_space_gets_403(tmp_path: Path, fake_cluster: FakeCluster) -> None:
    async with open_agent(tmp_path, fake_cluster) as endpoint:
        (space,) = build_configuration()["spaces"]
        endpoint.control_plane.config = build_configuration(spaces=[{**space, "allowed": []}])
        await endpoint.config_cache.refresh()
        assert (await endpoint.send(SPACE_PODS)).status == 403
        assert (await endpoint.send(PODS)).status == 200


async def test_t13_teams_and_administrators_without_a_user_object_have_access(
    tmp_path: Path, fake_cluster: FakeCluster
) -> None:
    team_token = token_with_claims(
        sub="service:team:ops",
        groups=["service:team:ops"],
        **{"service.sh": {"uid": "uid-of-ops", "name": "ops", "kind": "Team", "gen": 0}},
    )
    private = {"uid": "", "name": "root", "kind": "ServiceAdmin", "gen": 0}
    admin_token = token_with_claims(sub="root", groups=["system:masters"], **{"service.sh": private})
    non_admin_token = token_with_claims(sub="root", groups=["devs"], **{"service.sh": private})
    async with open_agent(tmp_path, fake_cluster) as endpoint:
        assert [(await endpoint.send(PODS, token)).status for token in (team_token, admin_token, non_admin_token)] == [
            200,
            200,
            403,
        ]
        endpoint.control_plane.config = build_configuration(allowed=[])
        await endpoint.config_cache.refresh()
        assert [(await endpoint.send(PODS, token)).status for token in (team_token, admin_token)] == [403, 200]


async def test_an_open_stream_ends_when_its_user_loses_access_to_the_cluster(
    tmp_path: Path, fake_cluster: FakeCluster
) -> None:
    async with open_agent(tmp_path, fake_cluster) as endpoint:
        assert (await endpoint.send(PODS)).status == 200
        endpoint.last_call.recheck()
        endpoint.control_plane.config = build_configuration(allowed=[])
        await endpoint.config_cache.refresh()
        with pytest.raises(Forbidden):
            endpoint.last_call.recheck()


async def test_a_scoped_token_whose_scope_was_removed_is_rejected(tmp_path: Path, fake_cluster: FakeCluster) -> None:
    async with open_agent(tmp_path, fake_cluster) as endpoint:
        assert (
            await endpoint.send(PODS, token_with_private_claims(clusters={"berlin": "uid-of-berlin"}))
        ).status == 200
        assert (await endpoint.send(PODS, token_with_claims(aud=["service.sh/direct-scoped"]))).status == 401


@pytest.mark.parametrize(
    "audiences",
    [
        ["service.sh/direct"],
        ["service.sh/direct", "service.sh/direct/nowhere"],
        ["service.sh/direct", "service.sh/direct/uid-of-oslo"],
        ["service.sh/direct", "service.sh/direct/uid-of-berlin2", "service.sh/direct/UID-OF-BERLIN"],
        ["service.sh/direct", "service.sh/direct/berlin"],
        ["service.sh/direct", "service.sh/direct//uid-of-berlin"],
    ],
)
async def test_t13_a_token_without_a_scope_is_valid_only_at_the_clusters_in_its_audience(
    tmp_path: Path, fake_cluster: FakeCluster, audiences: list[str]
) -> None:
    async with open_agent(tmp_path, fake_cluster) as endpoint:
        reply = await endpoint.send(PODS, token_with_claims(aud=audiences))
        assert reply.status == 403 and 'this token is not valid for cluster "berlin"' in parse_body(reply)["message"]
        assert "for other clusters" in endpoint.last_call.annotations["service.sh/token-rejected"]
        assert fake_cluster.requests == []
        with_this_cluster = [*audiences, "service.sh/direct/uid-of-berlin"]
        assert (await endpoint.send(PODS, token_with_claims(aud=with_this_cluster))).status == 200


async def test_the_scope_of_a_token_is_checked_on_every_request(tmp_path: Path, fake_cluster: FakeCluster) -> None:
    async with open_agent(tmp_path, fake_cluster) as endpoint:
        read_only = sign_scoped_token({"rules": [{"cluster": "berlin", "verbs": ["get", "list"]}]})
        assert (await endpoint.send(PODS, read_only)).status == 200
        reply = await endpoint.send(PODS, read_only, "POST")
        assert reply.status == 403
        assert 'User "ada" cannot create resource "pods" in API group ""' in parse_body(reply)["message"]
        assert 'does not allow "create" on "pods" in namespace "demo" of cluster' in parse_body(reply)["message"]
        review = "/kubernetes/cluster/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        assert (await endpoint.send("/kubernetes/cluster/apis", read_only)).status == 200
        assert (await endpoint.send(review, read_only, "POST")).status == 200
        assert (await endpoint.send(SPACE_PODS, sign_scoped_token(ONE_CLUSTER))).status == 403
        assert (
            await endpoint.send(SPACE_PODS, sign_scoped_token({"spaces": [{"project": "web", "space": "s"}]}))
        ).status == 200
        assert (
            await endpoint.send(PODS, sign_scoped_token({"spaces": [{"project": "web", "space": "s"}]}))
        ).status == 403


async def test_a_space_gives_access_to_its_namespace_only(tmp_path: Path, fake_cluster: FakeCluster) -> None:
    async with open_agent(tmp_path, fake_cluster) as endpoint:
        assert (await endpoint.send(SPACE_PODS)).status == 200
        assert fake_cluster.requests[-1].target == "/api/v1/namespaces/web-s/pods"
        for path in ("/api/v1/namespaces/demo/pods", "/api/v1/pods", "/api/v1/namespaces"):
            assert (await endpoint.send(f"/kubernetes/project/web/space/s{path}")).status == 403
        assert (await endpoint.send("/kubernetes/project/web/space/other/version")).status == 404


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/", 404),
        ("/api/v1/pods", 404),
        ("/kubernetes/management/apis", 404),
        ("/kubernetes/project/web/virtualcluster/v/version", 501),
        ("/kubernetes/cluster/../management", 400),
        ("/kubernetes/cluster//api", 400),
        ("/kubernetes/cluster/api%2fv1", 400),
    ],
)
async def test_a_path_that_is_not_served_gets_a_status_object(
    path: str, status: int, tmp_path: Path, fake_cluster: FakeCluster
) -> None:
    async with open_agent(tmp_path, fake_cluster) as endpoint:
        reply = await endpoint.send(path)
        assert (reply.status, parse_body(reply)["kind"]) == (status, "Status")
        assert fake_cluster.requests == []


@pytest.mark.parametrize("name", ["impersonate-user", "impersonate-group", "impersonate-extra-x", "impersonate-"])
async def test_t19_impersonation_headers_are_rejected(name: str, tmp_path: Path, fake_cluster: FakeCluster) -> None:
    async with open_agent(tmp_path, fake_cluster) as endpoint:
        reply = await endpoint.send(PODS, VALID_TOKEN, "GET", **{name: "bob"})
        assert reply.status == 403
        assert "cannot authorize impersonation" in parse_body(reply)["message"]
        assert endpoint.last_call.user is not None and endpoint.last_call.user.name == "ada"
        assert endpoint.last_call.decision is not None and not endpoint.last_call.decision.allowed
        assert fake_cluster.requests == []


async def test_proxy_headers_do_not_change_the_user(tmp_path: Path, fake_cluster: FakeCluster) -> None:
    async with open_agent(tmp_path, fake_cluster) as endpoint:
        assert (
            await endpoint.send(PODS, VALID_TOKEN, "GET", **{"x-remote-user": "root", "impersonate_user": "root"})
        ).status == 200
        (received,) = fake_cluster.requests
        assert received.header("impersonate-user") == "fairlead:ada" and "root" not in str(received.headers)


async def test_a_token_issued_during_impersonation_names_the_impersonator(
    tmp_path: Path, fake_cluster: FakeCluster
) -> None:
    extra = "impersonate-extra-service.sh%2fimpersonator"
    async with open_agent(tmp_path, fake_cluster) as endpoint:
        assert (await endpoint.send(PODS, VALID_TOKEN)).status == 200
        assert not any("extra" in name for name, _ in fake_cluster.requests[-1].headers)
        private = {"kind": "User", "name": "ada", "uid": ADA["uid"], "gen": 3, "originalRequester": "root"}
        assert (await endpoint.send(PODS, token_with_claims(**{"service.sh": private}))).status == 200
        assert fake_cluster.requests[-1].header("impersonate-user") == "fairlead:ada"
        assert [value for name, value in fake_cluster.requests[-1].headers if name == extra] == ["fairlead:root"]


async def test_tokens_of_deleted_users_and_revoked_tokens_are_rejected(
    tmp_path: Path, fake_cluster: FakeCluster
) -> None:
    async with open_agent(tmp_path, fake_cluster) as endpoint:
        assert (await endpoint.send(PODS)).status == 200
        revoked = build_configuration(identities={"users": [{**ADA, "generation": 4}], "teams": []})
        recreated = build_configuration(identities={"users": [{**ADA, "uid": "another-ada"}], "teams": []})
        for config in (configuration_without_ada(), revoked, recreated):
            endpoint.control_plane.config = config
            await endpoint.config_cache.refresh()
            assert (await endpoint.send(PODS)).status == 401


async def test_groups_that_the_user_has_left_are_dropped(tmp_path: Path, fake_cluster: FakeCluster) -> None:
    token = token_with_claims(groups=["service:user:ada", "service:team:ops", "service:admins"])
    async with open_agent(tmp_path, fake_cluster) as endpoint:
        await endpoint.send(PODS, token)
        groups = {value for name, value in fake_cluster.requests[-1].headers if name == "impersonate-group"}
        assert groups == {"fairlead:service:user:ada", "fairlead:service:team:ops", "system:authenticated"}
        endpoint.control_plane.config = build_configuration(identities={"users": [{**ADA, "groups": []}], "teams": []})
        await endpoint.config_cache.refresh()
        await endpoint.send(PODS, token)
        groups = {value for name, value in fake_cluster.requests[-1].headers if name == "impersonate-group"}
        assert groups == {"fairlead:service:user:ada", "system:authenticated"}


async def test_the_server_sets_the_identity_prefix(tmp_path: Path, fake_cluster: FakeCluster) -> None:
    async with open_agent(tmp_path, fake_cluster) as endpoint:
        for prefix in ("corp:", ""):
            endpoint.control_plane.config = build_configuration(clusterIdentityPrefix=prefix)
            await endpoint.config_cache.refresh()
            assert (await endpoint.send(PODS)).status == 200
            assert fake_cluster.requests[-1].header("impersonate-user") == f"{prefix}ada"
            groups = {value for name, value in fake_cluster.requests[-1].headers if name == "impersonate-group"}
            assert groups == {f"{prefix}service:user:ada", "system:authenticated"}


async def test_administrators_are_forwarded_as_the_group_that_clusters_bind(
    tmp_path: Path, fake_cluster: FakeCluster
) -> None:
    """Tokens of earlier versions carry the groups as the server names them."""
    async with open_agent(tmp_path, fake_cluster) as endpoint:
        endpoint.control_plane.config = build_configuration(
            identities={"users": [{**ADA, "groups": ["system:masters"]}], "teams": []}
        )
        await endpoint.config_cache.refresh()
        for group in ("service:admins", "system:masters"):
            await endpoint.send(PODS, token_with_claims(groups=["service:user:ada", group, "system:nodes"]))
            groups = [value for name, value in fake_cluster.requests[-1].headers if name == "impersonate-group"]
            assert groups == ["fairlead:service:user:ada", "fairlead:service:admins", "system:authenticated"]


async def test_a_team_is_identified_by_its_uid(tmp_path: Path, fake_cluster: FakeCluster) -> None:
    ops = {"kind": "Team", "name": "ops", "uid": "uid-of-ops", "gen": 0}
    groups = ["service:team:ops", "system:authenticated", "service:admins"]

    def build_team_token(**changes: str) -> str:
        return token_with_claims(sub="service:team:ops", groups=groups, **{"service.sh": {**ops, **changes}})

    async with open_agent(tmp_path, fake_cluster) as endpoint:
        assert (await endpoint.send(PODS, build_team_token())).status == 200
        assert fake_cluster.requests[-1].header("impersonate-user") == "fairlead:service:team:ops"
        assert "service:admins" not in str(fake_cluster.requests[-1].headers)
        assert (await endpoint.send(PODS, build_team_token(uid="another"))).status == 401
        assert (await endpoint.send(PODS, build_team_token(name="dev"))).status == 401


async def test_an_unknown_user_triggers_one_refresh_of_the_config(tmp_path: Path, fake_cluster: FakeCluster) -> None:
    async with open_agent(tmp_path, fake_cluster) as endpoint:
        endpoint.control_plane.config = configuration_without_ada()
        await endpoint.config_cache.refresh()
        endpoint.control_plane.config = build_configuration()
        endpoint.clock.tick(10)
        request_count = len(endpoint.control_plane.requested_etags)
        assert (await endpoint.send(PODS)).status == 200
        for _ in range(3):
            assert (await endpoint.send(PODS, token_with_private_claims(name="eve", uid="uid-of-eve"))).status == 401
        assert len(endpoint.control_plane.requested_etags) == request_count + 1


async def test_an_open_stream_ends_when_its_token_is_no_longer_valid(tmp_path: Path, fake_cluster: FakeCluster) -> None:
    async with open_agent(tmp_path, fake_cluster) as endpoint:
        assert (
            await endpoint.send(PODS, token_with_claims(groups=["service:user:ada", "service:team:ops"]))
        ).status == 200
        recheck = endpoint.last_call.recheck
        recheck()
        endpoint.control_plane.config = build_configuration(identities={"users": [{**ADA, "groups": []}], "teams": []})
        await endpoint.config_cache.refresh()
        with pytest.raises(Expired):
            recheck()
        endpoint.control_plane.config = configuration_without_ada()
        await endpoint.config_cache.refresh()
        with pytest.raises(Unauthorized):
            recheck()


async def test_a_token_expires_while_it_is_in_use(tmp_path: Path, fake_cluster: FakeCluster) -> None:
    async with open_agent(tmp_path, fake_cluster) as endpoint:
        endpoint.control_plane.error = ControlPlaneError("down")
        assert (await endpoint.send(PODS)).status == 200
        endpoint.clock.tick(3599)
        assert (await endpoint.send(PODS)).status == 200
        endpoint.clock.tick(61)
        with pytest.raises((Unauthorized, Unavailable)):
            endpoint.last_call.recheck()


async def test_a_valid_token_works_while_the_server_is_down(tmp_path: Path, fake_cluster: FakeCluster) -> None:
    async with open_agent(tmp_path, fake_cluster) as endpoint:
        endpoint.control_plane.error = ControlPlaneError("down")
        await endpoint.config_cache.refresh()
        endpoint.clock.tick(600)
        assert (await endpoint.send(PODS)).status == 200


async def test_health_and_version_are_served_without_authentication(tmp_path: Path, fake_cluster: FakeCluster) -> None:
    async with open_agent(tmp_path, fake_cluster) as endpoint:
        for path in ("/healthz", "/livez", "/readyz", "/version"):
            assert (await endpoint.send(path, None)).status == 200
        endpoint.clock.tick(3601)
        reply = await endpoint.send("/readyz", None)
        assert reply.status == 503 and reply.body.startswith(b"[-]config failed: ")
        assert (await endpoint.send("/healthz", None)).status == 200
        assert (await endpoint.send(PODS)).status == 503


async def test_the_reason_for_rejecting_a_token_is_only_in_the_audit_log(
    tmp_path: Path, fake_cluster: FakeCluster
) -> None:
    async with open_agent(tmp_path, fake_cluster) as endpoint:
        reply = await endpoint.send(PODS, INVALID_TOKENS["expired"])
        assert endpoint.last_call.annotations == {
            "service.sh/refused-by": "authentication",
            "service.sh/token-rejected": "it has expired",
        }
        assert "expired" not in str(reply.body)


async def test_activity_is_recorded_per_token(tmp_path: Path, fake_cluster: FakeCluster) -> None:
    async with open_agent(tmp_path, fake_cluster) as endpoint:
        await endpoint.send(PODS)
        await endpoint.send(PODS, INVALID_TOKENS["expired"])
        batch = endpoint.reports.next_batch()
        assert batch is not None and batch.activity == {"a-token": ("ada", "2026-01-02T03:04:05Z")}
