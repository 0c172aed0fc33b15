"""kinds/clusters/config_sign_on.py: connectors and group mappings in the Config."""

from typing import Any

import pytest
import yaml

from fairlead.kinds.clusters.config import parse_settings
from fairlead.kinds.clusters.config_sign_on import MAX_CONNECTORS, RESERVED_IDS

OIDC = {"issuerURL": "https://login.example.com", "clientId": "fairlead"}


def connector(id: str = "okta", **oidc: Any) -> dict[str, Any]:
    return {"id": id, "oidc": {**OIDC, **oidc}}


def errors(*connectors: dict[str, Any], rules: Any = None) -> list[str]:
    auth: dict[str, Any] = {"connectors": list(connectors)}
    if rules is not None:
        auth["groupMappings"] = rules
    return [each.message.removeprefix("Invalid value: ") for each in parse_settings(yaml.safe_dump({"auth": auth}))[1]]


def test_a_connector_with_all_settings_is_accepted() -> None:
    full = connector(
        clientSecretRef={"namespace": "service-system", "name": "okta", "key": "secret"},
        clientAuthMethod="client_secret_post",
        scopes=["openid", "groups"],
        prompt="consent",
        extraAuthParameters={"access_type": "offline"},
        usernameClaim="upn",
        nameClaim="name",
        emailClaim="email",
        groupsClaim="realm_access.roles",
        signingAlgorithms=["RS256"],
        allowedGroups=["staff"],
        allowedDomains=["example.com"],
        requireVerifiedEmail=False,
        allowUnmapped=True,
        createUsers=False,
        refreshIntervalSeconds=60,
        maxStaleSeconds=0,
        postLogoutURLs=["https://www.example.com/bye"],
    )
    full["displayName"] = "Okta"
    rules = [
        {"connector": "okta", "value": "staff", "teams": ["core"]},
        {"id": "admins", "connector": "okta", "claim": "department", "value": "IT", "groups": ["service:admins"]},
    ]
    assert errors(full, rules=rules) == []


@pytest.mark.parametrize(
    ("oidc", "message"),
    [
        ({"issuerURL": "http://login.example.com"}, "must be an https URL"),
        ({"issuerURL": "file:///etc/passwd"}, "must be an https URL"),
        ({"issuerURL": "https://user@login.example.com"}, "must be an https URL"),
        ({"issuerURL": "https://login.example.com\\evil"}, "must be an https URL"),
        ({"issuerURL": "https://"}, "must be an https URL"),
        ({"issuerURL": "https://a:99999"}, "must be an https URL"),
        ({"issuerURL": "HTTPS://a"}, "must be an https URL"),
        ({"issuerURL": "https://a/?tenant=1"}, "must not have a query"),
        ({"issuerURL": "https://a/#x"}, "must not have a query or a fragment"),
        ({"issuerURL": "https://169.254.169.254/latest"}, "is not the address of a provider"),
        ({"issuerURL": "https://168.63.129.16"}, "is not the address of a provider"),
        ({"issuerURL": "https://[64:ff9b::a9fe:a9fe]"}, "is not the address of a provider"),
        ({"issuerURL": "https://127.0.0.1:8443"}, "is a loopback address"),
        ({"issuerURL": "https://[::1]:8443"}, "is a loopback address"),
        (
            {"issuerURL": "https://localhost"},
            "by its own address, or set allowLoopback",
        ),
        ({"clientId": ""}, "clientId: must be 1 to 512 printable"),
        ({"clientSecret": "s3cret"}, "secrets do not belong in the Config"),
        ({"clientSecretRef": {}}, "clientSecretRef.name: Required value"),
        ({"clientSecretRef": {"name": ""}}, "must be the name of a Secret"),
        ({"scopes": ["profile"]}, "must contain openid"),
        ({"scopes": ["openid", "a b"]}, "scopes[1]: must be printable ASCII"),
        ({"groupsClaim": ""}, "groupsClaim: must be the name of a claim"),
        ({"ca": "not a certificate"}, "ca: must be certificates in PEM format"),
        ({"extraAuthParameters": {"redirect_uri": "https://evil"}}, "the server sets this parameter itself"),
        ({"extraAuthParameters": {"a b": "c"}}, "is not a valid name of a parameter"),
        ({"extraAuthParameters": {"a": "b\nc"}}, "must be one line of printable text"),
        ({"signingAlgorithms": ["HS256"]}, "supported values"),
        ({"signingAlgorithms": ["none"]}, "supported values"),
        ({"signingAlgorithms": []}, "must not be empty"),
        ({"allowedGroups": []}, "so no user could sign in"),
        ({"allowedDomains": []}, "so no user could sign in"),
        ({"allowedGroups": [""]}, "must be the name of a group"),
        ({"allowedDomains": ["@corp.com"]}, "must be a domain in lower case"),
        ({"allowedDomains": ["Corp.com"]}, "must be a domain in lower case"),
        ({"refreshIntervalSeconds": 1}, "refreshIntervalSeconds"),
        ({"maxStaleSeconds": -1}, "maxStaleSeconds"),
        ({"postLogoutURLs": ["http://www.example.com"]}, "must be an https URL"),
        ({"issuerUrl": "https://a"}, "did you mean auth.connectors[].oidc.issuerURL"),
    ],
)
def test_an_invalid_connector_is_reported_with_its_path(oidc: dict[str, Any], message: str) -> None:
    found = errors(connector(**oidc))
    assert any("auth.connectors[0]" in each and message in each for each in found), found


def test_an_error_does_not_contain_a_client_secret() -> None:
    assert "s3cret" not in str(errors(connector(clientSecret="s3cret")))


def test_a_loopback_provider_needs_a_setting() -> None:
    assert errors(connector(issuerURL="https://127.0.0.1:8443", allowLoopback=True)) == []
    link_local = connector(issuerURL="https://169.254.169.254", allowLoopback=True)
    assert "is not the address of a provider" in errors(link_local)[0]


@pytest.mark.parametrize("id", ["", "Okta", "a/b", "-a", "a.b", "x" * 41, "a:b"])
def test_the_id_of_a_connector_is_a_simple_name(id: str) -> None:
    assert "must be 1 to 40 lower-case letters" in errors(connector(id))[0]


@pytest.mark.parametrize("id", sorted(RESERVED_IDS))
def test_ids_that_are_paths_of_the_server_are_reserved(id: str) -> None:
    assert f"{id} is reserved" in errors(connector(id))[0]


def test_ids_and_issuers_of_connectors_are_unique() -> None:
    found = errors(connector(), connector())
    assert any("the same id, okta" in each for each in found)
    assert any("the same oidc.issuerURL" in each for each in found)


def test_the_number_of_connectors_is_limited() -> None:
    many = [connector(f"c{each}", issuerURL=f"https://c{each}") for each in range(MAX_CONNECTORS + 1)]
    assert "auth.connectors" in errors(*many)[0]


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"connector": "other", "value": "a", "teams": ["b"]}, "there is no connector other"),
        ({"connector": "okta", "value": "", "teams": ["b"]}, "value: must not be empty"),
        ({"connector": "okta", "value": "a"}, "gives nothing; set teams or groups"),
        ({"connector": "okta", "value": "a", "teams": [""]}, "teams[0]: must be a name"),
        ({"connector": "okta", "value": "a", "claim": "", "teams": ["b"]}, "claim: must be the name of a claim"),
        ({"connector": "okta", "value": "a", "groups": ["service:user:ada"]}, "stands for one principal"),
        ({"connector": "okta", "value": "a", "groups": ["host:system:serviceaccounts:a"]}, "stands for one principal"),
        ({"connector": "okta", "teams": ["b"]}, "value: Required value"),
        ({"connector": "okta", "value": 7, "teams": ["b"]}, "must be of type string"),
    ],
)
def test_an_invalid_rule_is_reported_with_its_path(rule: dict[str, Any], message: str) -> None:
    found = errors(connector(), rules=[rule])
    assert any("auth.groupMappings[0]" in each and message in each for each in found), found


def test_the_ids_of_rules_are_unique() -> None:
    rule = {"id": "r", "connector": "okta", "value": "a", "teams": ["b"]}
    assert any("the same id, r" in each for each in errors(connector(), rules=[rule, rule]))
