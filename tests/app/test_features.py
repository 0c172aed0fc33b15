"""app.features: what the features add to the server, and in which order."""

from dataclasses import replace
from pathlib import Path

import pytest

from fairlead.admission import FilteredRule, Phase, Rule, rule_name
from fairlead.app.background import build_leader_services
from fairlead.app.features import enabled_features, join_features
from fairlead.core.call import CONSOLE, Call, Reply
from fairlead.features.contract import Feature, Services
from fairlead.settings import Settings
from fairlead.settings.values import OFF
from tests.harness.services import open_services

ADMISSION_ORDER = {
    Phase.PLACE: [
        "require-active-namespace",
        "require-active-project",
        "parse-large-parameters",
    ],
    Phase.PROTECT: [
        "protect-server-secrets",
        "protect-server-leases",
        "protect-status",
        "protect-system-namespaces",
        "protect-metadata",
        "protect-cluster-exports",
        "protect-exported-keys",
        "check-abandon",
        "keep-sleep-state",
    ],
    Phase.COMPLETE: [
        "manage-project-namespace",
        "protect-ownership-labels",
        "check-users-and-teams",
        "issue-access-key",
        "restrict-cooldown-label",
        "enforce-key-limits",
        "store-component-key",
        "apply-presets",
        "require-presets",
        "default-instance-owner",
        "require-template",
        "check-import-source",
    ],
    Phase.AUTHORIZE: [
        "protect-sign-in-settings",
        "protect-trusted-clusters",
        "protect-password-secret",
        "prevent-escalation",
        "check-grants",
        "check-cluster-secret",
        "require-owner-consent",
        "check-delete-after",
        "check-virtual-cluster-secret",
        "restrict-remote-access",
        "record-chart-secret-writers",
        "record-secret-writers",
        "protect-cluster-ref",
        "check-port-shares",
    ],
    Phase.CHECK: [
        "check-block-owner-deletion",
        "touch-movable-owner",
        "check-listed-clusters",
        "check-project-fields",
        "enforce-allow-lists",
        "warn-outside-of-projects",
        "check-parameters",
        "require-chart",
        "warn-invalid-sleep",
        "check-app-instances",
        "require-app-use",
        "mark-trusted-templates",
        "prevent-deletion-while-used",
        "check-presets",
        "check-prebuilds",
        "restrict-workspace-templates",
        "warn-about-workspace-templates",
        "prevent-runner-deletion-while-used",
    ],
    Phase.FINISH: [
        "warn-missing-references",
        "release-storage-locks",
        "enforce-quotas",
    ],
}

ADDED = {
    "metrics": "metrics",
    "core objects": "admission, controllers, tasks",
    "projects": "handlers, admission, controllers",
    "users": "admission, controllers",
    "access keys": "handlers, admission, controllers, tasks",
    "single sign-on": "handlers, public_endpoints, admission, controllers, metrics",
    "workload identity": "grants, admission",
    "passwords": "handlers, endpoints, public_endpoints, admission",
    "list of settings": "endpoints",
    "logins of the command line": "endpoints, public_endpoints, grants",
    "permissions": "handlers, admission, controllers, tasks",
    "direct tokens": "handlers, public_endpoints",
    "service accounts": "handlers",
    "clusters": "handlers, find_mounts, mounts, admission, controllers, tasks, metrics",
    "local cluster": "leader_tasks",
    "agents": "handlers, public_endpoints, tasks",
    "instances": "admission, controllers",
    "apps": "admission, controllers",
    "templates": "admission, controllers",
    "workspaces": "handlers, admission, controllers, metrics",
    "migration": "handlers",
    "audit": "handlers",
    "console": "find_mounts, mounts, public_stages",
}
"""What each feature adds, in the order of the features, without an audit log."""

FIELDS = (
    "handlers",
    "endpoints",
    "public_endpoints",
    "grants",
    "find_mounts",
    "mounts",
    "public_stages",
    "admission",
    "controllers",
    "leader_tasks",
    "tasks",
    "metrics",
    "health_checks",
)


def name_of_rule(rule: Rule) -> str:
    return rule_name(rule.rule if isinstance(rule, FilteredRule) else rule)


def added_fields(feature: Feature, services: Services) -> str:
    values = {field: getattr(feature, field) for field in FIELDS}
    values["controllers"] = feature.controllers(build_leader_services(services, services.registry))
    return ", ".join(field for field in FIELDS if values[field])


async def test_each_feature_adds_what_it_declares(tmp_path: Path) -> None:
    async with open_services(Settings(data=tmp_path, local_cluster="here")) as server:
        built = [build(server.services) for build in enabled_features(server.services.settings)]
        assert {each.name: added_fields(each, server.services) for each in built} == ADDED
    assert [each.name for each in built] == list(ADDED)


async def test_admission_rules_run_in_the_order_of_phases_then_of_features(tmp_path: Path) -> None:
    async with open_services(Settings(data=tmp_path)) as server:
        by_phase = {phase: [name_of_rule(rule) for rule in rules] for phase, rules in server.features.admission.items()}
        in_order = [name_of_rule(rule) for rule in server.features.admission_rules()]
    assert by_phase == ADMISSION_ORDER
    assert in_order == [name for names in ADMISSION_ORDER.values() for name in names]


async def test_a_feature_that_is_switched_off_adds_nothing(tmp_path: Path) -> None:
    settings = Settings(data=tmp_path)
    async with open_services(settings) as server:
        assert CONSOLE in server.features.mounts
        assert not server.features.leader_tasks
    async with open_services(replace(settings, console=OFF, local_cluster="here")) as server:
        assert CONSOLE not in server.features.mounts
        assert not server.features.public_stages
        assert len(server.features.leader_tasks) == 1


async def test_the_list_of_public_endpoints_is_complete(tmp_path: Path) -> None:
    """Change this test with care: every path added here is open to the whole network. Besides, there is the endpoint
    for tokens."""
    login_endpoints = {("post", "/auth/password/login"), ("post", "/auth/key/login"), ("get", "/auth/methods")}
    login_endpoints |= {("post", f"/auth/{name}") for name in ("device", "revoke")}
    oidc_endpoints = {("get", "/.well-known/openid-configuration"), ("get", "/openid/v1/jwks")}
    agent_endpoints = {
        *(("get", f"/agents/{name}") for name in ("authority", "challenge", "session")),
        *(("post", f"/agents/{name}") for name in ("join", "key")),
    }
    sign_on_endpoints = {("get", f"/auth/*/{name}") for name in ("login", "callback", "frontchannel-logout")}
    sign_on_endpoints.add(("post", "/auth/*/backchannel-logout"))
    async with open_services(Settings(data=tmp_path)) as server:
        public = server.features.public_endpoints.keys()
    assert public == login_endpoints | oidc_endpoints | agent_endpoints | sign_on_endpoints


async def reply(call: Call) -> Reply:
    return Reply(200, b"")


def test_two_features_cannot_add_the_same_path() -> None:
    first = Feature(name="first", endpoints={("get", "/x"): reply})
    second = Feature(name="second", endpoints={("get", "/y"): reply, ("get", "/x"): reply})
    assert join_features((first,)).endpoints == first.endpoints
    with pytest.raises(ValueError, match=r"the feature second adds .*/x.*, which another feature has added already"):
        join_features((first, second))


def test_a_path_that_needs_authentication_in_one_feature_is_not_public_in_another() -> None:
    closed = Feature(name="closed", endpoints={("get", "/x"): reply})
    public = Feature(name="public", public_endpoints={("get", "/x"): reply})
    for features in ((closed, public), (public, closed)):
        with pytest.raises(ValueError, match=r"/x.* is in the endpoints of .* and in the public endpoints of"):
            join_features(features)
    other_verb = Feature(name="other verb", public_endpoints={("post", "/x"): reply})
    assert join_features((closed, other_verb)).public_endpoints == other_verb.public_endpoints
