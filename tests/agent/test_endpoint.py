"""The direct endpoint with a real connection to a cluster: who gets in, as whom, and who does not."""

from pathlib import Path

import pytest

from fairlead.agent.control_plane import ControlPlaneError
from fairlead.core.errors import Expired, Forbidden, Unauthorized, Unavailable
from tests.authn.test_direct_tokens import BAD, GOOD, claiming, standing_for
from tests.fake_cluster.server import FakeCluster
from tests.harness.agent import ADA, agent, configuration, said, scoped, without_ada

PODS = "/kubernetes/cluster/api/v1/namespaces/demo/pods"
IN_SPACE = "/kubernetes/project/web/space/s/api/v1/namespaces/web-s/pods"
ONE_CLUSTER = {"clusters": [{"cluster": "berlin"}]}


async def test_a_good_token_goes_through_as_its_user(tmp_path: Path, fake_cluster: FakeCluster) -> None:
    async with agent(tmp_path, fake_cluster) as here:
        reply = await here.ask(f"{PODS}?limit=5")
        assert reply.status == 200, reply.body
        (seen,) = fake_cluster.seen
        assert (seen.method, seen.target) == ("GET", "/api/v1/namespaces/demo/pods?limit=5")
        assert seen.header("impersonate-user") == "fairlead:ada"
        assert seen.header("authorization") == "Bearer far-token"
        assert GOOD not in str(seen.headers)


async def test_t41_bad_tokens_are_refused_and_the_good_one_works(tmp_path: Path, fake_cluster: FakeCluster) -> None:
    sent = {what: token for what, token in BAD.items() if token == token.strip()}  # a header has no blanks around it
    async with agent(tmp_path, fake_cluster) as here:
        let_in = {what for what, token in sent.items() if (await here.ask(PODS, token)).status not in (401, 403)}
        assert let_in == set() and len(sent) >= 50
        assert fake_cluster.seen == []
        assert (await here.ask(PODS)).status == 200


async def test_without_a_token_nobody_gets_in(tmp_path: Path, fake_cluster: FakeCluster) -> None:
    async with agent(tmp_path, fake_cluster) as here:
        reply = await here.ask(PODS, None)
        assert reply.status == 401 and "fairlead token create" in said(reply)["message"]
        assert (await here.ask(PODS, None, authorization=f"Basic {GOOD}")).status == 401


async def test_t13_a_token_for_another_cluster_is_refused(tmp_path: Path, fake_cluster: FakeCluster) -> None:
    async with agent(tmp_path, fake_cluster) as here:
        assert (await here.ask(PODS, scoped(ONE_CLUSTER))).status == 200
        for clusters in ({"berlin": "uid-of-an-earlier-berlin"}, {}, {"oslo": "uid-of-berlin"}):
            assert (await here.ask(PODS, scoped(ONE_CLUSTER, clusters))).status == 403
        assert (await here.ask(PODS, scoped({"clusters": [{"cluster": "oslo"}]}))).status == 403
        rule = {"rules": [{"cluster": "berlin", "verbs": ["list"]}]}
        assert (await here.ask(PODS, scoped(rule))).status == 200
        assert (await here.ask(PODS, scoped(rule, {}))).status == 403


async def test_t13_who_may_not_use_this_cluster_gets_in_with_no_token(
    tmp_path: Path, fake_cluster: FakeCluster
) -> None:
    """A token without a scope is good at every agent, so whoever runs another one could bring it here."""
    async with agent(tmp_path, fake_cluster) as here:
        here.home.config = configuration(allowed=["uid-of-bob"])
        await here.knowledge.refresh()
        for token in (GOOD, scoped(ONE_CLUSTER)):
            refused = await here.ask(PODS, token)
            assert refused.status == 403 and 'the verb "use"' in said(refused)["message"]
            assert here.last.decision is not None and not here.last.decision.allowed
        assert fake_cluster.seen == []
        assert (await here.ask(IN_SPACE)).status == 200, "the space is another matter"


async def test_t13_who_may_not_use_a_space_does_not_get_into_it(tmp_path: Path, fake_cluster: FakeCluster) -> None:
    async with agent(tmp_path, fake_cluster) as here:
        (space,) = configuration()["spaces"]
        here.home.config = configuration(spaces=[{**space, "allowed": []}])
        await here.knowledge.refresh()
        assert (await here.ask(IN_SPACE)).status == 403
        assert (await here.ask(PODS)).status == 200


async def test_t13_teams_and_administrators_without_a_user_may_use_it(
    tmp_path: Path, fake_cluster: FakeCluster
) -> None:
    team = claiming(
        sub="service:team:ops",
        groups=["service:team:ops"],
        **{"service.sh": {"uid": "uid-of-ops", "name": "ops", "kind": "Team", "gen": 0}},
    )
    private = {"uid": "", "name": "root", "kind": "ServiceAdmin", "gen": 0}
    root = claiming(sub="root", groups=["system:masters"], **{"service.sh": private})
    nobody = claiming(sub="root", groups=["devs"], **{"service.sh": private})
    async with agent(tmp_path, fake_cluster) as here:
        assert [(await here.ask(PODS, token)).status for token in (team, root, nobody)] == [200, 200, 403]
        here.home.config = configuration(allowed=[])
        await here.knowledge.refresh()
        assert [(await here.ask(PODS, token)).status for token in (team, root)] == [403, 200]


async def test_a_stream_of_somebody_who_may_no_longer_use_the_cluster_ends(
    tmp_path: Path, fake_cluster: FakeCluster
) -> None:
    async with agent(tmp_path, fake_cluster) as here:
        assert (await here.ask(PODS)).status == 200
        here.last.recheck()
        here.home.config = configuration(allowed=[])
        await here.knowledge.refresh()
        with pytest.raises(Forbidden):
            here.last.recheck()


async def test_a_scope_that_was_stripped_leaves_a_token_that_is_refused(
    tmp_path: Path, fake_cluster: FakeCluster
) -> None:
    async with agent(tmp_path, fake_cluster) as here:
        assert (await here.ask(PODS, standing_for(clusters={"berlin": "uid-of-berlin"}))).status == 200
        assert (await here.ask(PODS, claiming(aud=["service.sh/direct-scoped"]))).status == 401


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
async def test_t13_a_token_without_a_scope_is_good_at_the_clusters_that_it_is_for(
    tmp_path: Path, fake_cluster: FakeCluster, audiences: list[str]
) -> None:
    async with agent(tmp_path, fake_cluster) as here:
        reply = await here.ask(PODS, claiming(aud=audiences))
        assert reply.status == 403 and 'this token is not valid for cluster "berlin"' in said(reply)["message"]
        assert "for other clusters" in here.last.annotations["service.sh/token-rejected"]
        assert fake_cluster.seen == []
        both = [*audiences, "service.sh/direct/uid-of-berlin"]
        assert (await here.ask(PODS, claiming(aud=both))).status == 200


async def test_the_scope_is_asked_on_every_request(tmp_path: Path, fake_cluster: FakeCluster) -> None:
    async with agent(tmp_path, fake_cluster) as here:
        reads = scoped({"rules": [{"cluster": "berlin", "verbs": ["get", "list"]}]})
        assert (await here.ask(PODS, reads)).status == 200
        refused = await here.ask(PODS, reads, "POST")
        assert refused.status == 403
        assert 'User "ada" cannot create resource "pods" in API group ""' in said(refused)["message"]
        assert 'does not allow "create" on "pods" in namespace "demo" of cluster' in said(refused)["message"]
        review = "/kubernetes/cluster/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        assert (await here.ask("/kubernetes/cluster/apis", reads)).status == 200
        assert (await here.ask(review, reads, "POST")).status == 200
        assert (await here.ask(IN_SPACE, scoped(ONE_CLUSTER))).status == 403
        assert (await here.ask(IN_SPACE, scoped({"spaces": [{"project": "web", "space": "s"}]}))).status == 200
        assert (await here.ask(PODS, scoped({"spaces": [{"project": "web", "space": "s"}]}))).status == 403


async def test_a_space_is_its_namespace_and_nothing_else(tmp_path: Path, fake_cluster: FakeCluster) -> None:
    async with agent(tmp_path, fake_cluster) as here:
        assert (await here.ask(IN_SPACE)).status == 200
        assert fake_cluster.seen[-1].target == "/api/v1/namespaces/web-s/pods"
        for path in ("/api/v1/namespaces/demo/pods", "/api/v1/pods", "/api/v1/namespaces"):
            assert (await here.ask(f"/kubernetes/project/web/space/s{path}")).status == 403
        assert (await here.ask("/kubernetes/project/web/space/other/version")).status == 404


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
async def test_what_is_not_served_here_is_said(
    path: str, status: int, tmp_path: Path, fake_cluster: FakeCluster
) -> None:
    async with agent(tmp_path, fake_cluster) as here:
        reply = await here.ask(path)
        assert (reply.status, said(reply)["kind"]) == (status, "Status")
        assert fake_cluster.seen == []


@pytest.mark.parametrize("name", ["impersonate-user", "impersonate-group", "impersonate-extra-x", "impersonate-"])
async def test_t19_impersonation_that_cannot_be_checked_is_refused(
    name: str, tmp_path: Path, fake_cluster: FakeCluster
) -> None:
    async with agent(tmp_path, fake_cluster) as here:
        reply = await here.ask(PODS, GOOD, "GET", **{name: "bob"})
        assert reply.status == 403
        assert "cannot authorize impersonation" in said(reply)["message"]
        assert here.last.user is not None and here.last.user.name == "ada"
        assert here.last.decision is not None and not here.last.decision.allowed
        assert fake_cluster.seen == []


async def test_headers_of_proxies_say_nothing_about_who_asks(tmp_path: Path, fake_cluster: FakeCluster) -> None:
    async with agent(tmp_path, fake_cluster) as here:
        assert (
            await here.ask(PODS, GOOD, "GET", **{"x-remote-user": "root", "impersonate_user": "root"})
        ).status == 200
        (seen,) = fake_cluster.seen
        assert seen.header("impersonate-user") == "fairlead:ada" and "root" not in str(seen.headers)


async def test_a_token_that_was_made_while_impersonating_says_who_asked_for_it(
    tmp_path: Path, fake_cluster: FakeCluster
) -> None:
    extra = "impersonate-extra-service.sh%2fimpersonator"
    async with agent(tmp_path, fake_cluster) as here:
        assert (await here.ask(PODS, GOOD)).status == 200
        assert not any("extra" in name for name, _ in fake_cluster.seen[-1].headers)
        private = {"kind": "User", "name": "ada", "uid": ADA["uid"], "gen": 3, "originalRequester": "root"}
        assert (await here.ask(PODS, claiming(**{"service.sh": private}))).status == 200
        assert fake_cluster.seen[-1].header("impersonate-user") == "fairlead:ada"
        assert [value for name, value in fake_cluster.seen[-1].headers if name == extra] == ["fairlead:root"]


async def test_users_that_are_gone_or_have_revoked_their_tokens_are_refused(
    tmp_path: Path, fake_cluster: FakeCluster
) -> None:
    async with agent(tmp_path, fake_cluster) as here:
        assert (await here.ask(PODS)).status == 200
        revoked = configuration(identities={"users": [{**ADA, "generation": 4}], "teams": []})
        another = configuration(identities={"users": [{**ADA, "uid": "another-ada"}], "teams": []})
        for config in (without_ada(), revoked, another):
            here.home.config = config
            await here.knowledge.refresh()
            assert (await here.ask(PODS)).status == 401


async def test_groups_that_somebody_has_left_mean_nothing(tmp_path: Path, fake_cluster: FakeCluster) -> None:
    token = claiming(groups=["service:user:ada", "service:team:ops", "service:admins"])
    async with agent(tmp_path, fake_cluster) as here:
        await here.ask(PODS, token)
        groups = {value for name, value in fake_cluster.seen[-1].headers if name == "impersonate-group"}
        assert groups == {"fairlead:service:user:ada", "fairlead:service:team:ops", "system:authenticated"}
        here.home.config = configuration(identities={"users": [{**ADA, "groups": []}], "teams": []})
        await here.knowledge.refresh()
        await here.ask(PODS, token)
        groups = {value for name, value in fake_cluster.seen[-1].headers if name == "impersonate-group"}
        assert groups == {"fairlead:service:user:ada", "system:authenticated"}


async def test_the_server_says_what_names_have_in_front(tmp_path: Path, fake_cluster: FakeCluster) -> None:
    async with agent(tmp_path, fake_cluster) as here:
        for prefix in ("corp:", ""):
            here.home.config = configuration(clusterIdentityPrefix=prefix)
            await here.knowledge.refresh()
            assert (await here.ask(PODS)).status == 200
            assert fake_cluster.seen[-1].header("impersonate-user") == f"{prefix}ada"
            groups = {value for name, value in fake_cluster.seen[-1].headers if name == "impersonate-group"}
            assert groups == {f"{prefix}service:user:ada", "system:authenticated"}


async def test_administrators_come_as_the_group_that_clusters_bind(tmp_path: Path, fake_cluster: FakeCluster) -> None:
    """Tokens of earlier versions have the groups as they are at the server."""
    async with agent(tmp_path, fake_cluster) as here:
        here.home.config = configuration(identities={"users": [{**ADA, "groups": ["system:masters"]}], "teams": []})
        await here.knowledge.refresh()
        for group in ("service:admins", "system:masters"):
            await here.ask(PODS, claiming(groups=["service:user:ada", group, "system:nodes"]))
            groups = [value for name, value in fake_cluster.seen[-1].headers if name == "impersonate-group"]
            assert groups == ["fairlead:service:user:ada", "fairlead:service:admins", "system:authenticated"]


async def test_a_team_is_known_by_its_uid(tmp_path: Path, fake_cluster: FakeCluster) -> None:
    ops = {"kind": "Team", "name": "ops", "uid": "uid-of-ops", "gen": 0}
    groups = ["service:team:ops", "system:authenticated", "service:admins"]

    def of_team(**changes: str) -> str:
        return claiming(sub="service:team:ops", groups=groups, **{"service.sh": {**ops, **changes}})

    async with agent(tmp_path, fake_cluster) as here:
        assert (await here.ask(PODS, of_team())).status == 200
        assert fake_cluster.seen[-1].header("impersonate-user") == "fairlead:service:team:ops"
        assert "service:admins" not in str(fake_cluster.seen[-1].headers)
        assert (await here.ask(PODS, of_team(uid="another"))).status == 401
        assert (await here.ask(PODS, of_team(name="dev"))).status == 401


async def test_somebody_new_is_asked_for_once_and_gets_in(tmp_path: Path, fake_cluster: FakeCluster) -> None:
    async with agent(tmp_path, fake_cluster) as here:
        here.home.config = without_ada()
        await here.knowledge.refresh()
        here.home.config = configuration()
        here.clock.tick(10)
        asked = len(here.home.asked)
        assert (await here.ask(PODS)).status == 200
        for _ in range(3):
            assert (await here.ask(PODS, standing_for(name="eve", uid="uid-of-eve"))).status == 401
        assert len(here.home.asked) == asked + 1


async def test_open_streams_are_told_when_the_token_no_longer_holds(tmp_path: Path, fake_cluster: FakeCluster) -> None:
    async with agent(tmp_path, fake_cluster) as here:
        assert (await here.ask(PODS, claiming(groups=["service:user:ada", "service:team:ops"]))).status == 200
        recheck = here.last.recheck
        recheck()
        here.home.config = configuration(identities={"users": [{**ADA, "groups": []}], "teams": []})
        await here.knowledge.refresh()
        with pytest.raises(Expired):
            recheck()
        here.home.config = without_ada()
        await here.knowledge.refresh()
        with pytest.raises(Unauthorized):
            recheck()


async def test_a_token_expires_while_it_is_in_use(tmp_path: Path, fake_cluster: FakeCluster) -> None:
    async with agent(tmp_path, fake_cluster) as here:
        here.home.problem = ControlPlaneError("down")
        assert (await here.ask(PODS)).status == 200
        here.clock.tick(3599)
        assert (await here.ask(PODS)).status == 200
        here.clock.tick(61)
        with pytest.raises((Unauthorized, Unavailable)):
            here.last.recheck()


async def test_a_good_token_works_while_the_server_is_down(tmp_path: Path, fake_cluster: FakeCluster) -> None:
    async with agent(tmp_path, fake_cluster) as here:
        here.home.problem = ControlPlaneError("down")
        await here.knowledge.refresh()
        here.clock.tick(600)
        assert (await here.ask(PODS)).status == 200


async def test_how_the_endpoint_is_can_be_asked_by_anybody(tmp_path: Path, fake_cluster: FakeCluster) -> None:
    async with agent(tmp_path, fake_cluster) as here:
        for path in ("/healthz", "/livez", "/readyz", "/version"):
            assert (await here.ask(path, None)).status == 200
        here.clock.tick(3601)
        answer = await here.ask("/readyz", None)
        assert answer.status == 503 and answer.body.startswith(b"[-]config failed: ")
        assert (await here.ask("/healthz", None)).status == 200
        assert (await here.ask(PODS)).status == 503


async def test_why_a_token_was_refused_is_for_the_log_alone(tmp_path: Path, fake_cluster: FakeCluster) -> None:
    async with agent(tmp_path, fake_cluster) as here:
        reply = await here.ask(PODS, BAD["expired"])
        assert here.last.annotations == {"service.sh/token-rejected": "it has expired"}
        assert "expired" not in str(reply.body)


async def test_activity_is_noted_by_token(tmp_path: Path, fake_cluster: FakeCluster) -> None:
    async with agent(tmp_path, fake_cluster) as here:
        await here.ask(PODS)
        await here.ask(PODS, BAD["expired"])
        batch = here.reports.next_batch()
        assert batch is not None and batch.activity == {"a-token": ("ada", "2026-01-02T03:04:05Z")}
