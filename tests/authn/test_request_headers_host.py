"""Tests of `fairlead.authn.request_headers`: the ConfigMap of a kube-apiserver, as version 1.35 writes it."""

import json
from pathlib import Path
from typing import Any

import pytest

from fairlead.authn.request_headers import MAX_LIST, InvalidHostConfig, parse_host_config
from tests.core.crypto.test_certificates_files import change_key_type
from tests.harness.certificates import create_authority


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    pem = create_authority(Path(tmp_path_factory.mktemp("ca"))).file.read_text()
    return {
        "client-ca-file": pem,
        "requestheader-allowed-names": '["front-proxy-client"]',
        "requestheader-client-ca-file": pem,
        "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
        "requestheader-group-headers": '["X-Remote-Group"]',
        "requestheader-uid-headers": '["X-Remote-Uid"]',
        "requestheader-username-headers": '["X-Remote-User"]',
    }


def test_lists_are_json_in_strings(data: dict[str, str]) -> None:
    found = parse_host_config(data)
    assert found.authorities.decode() == data["requestheader-client-ca-file"]
    assert found.config.allowed_names == {"front-proxy-client"}
    assert found.config.username_headers == ("x-remote-user",)
    assert found.config.group_headers == ("x-remote-group",)
    assert found.config.extra_prefixes == ("x-remote-extra-",)
    assert found.config.uid_headers == ("x-remote-uid",)
    assert "BEGIN" not in repr(found)


@pytest.mark.parametrize("value", [None, "[]", "", "null"])
def test_a_uid_is_only_trusted_if_its_header_is_listed(data: dict[str, str], value: str | None) -> None:
    changed: dict[str, Any] = {**data, "requestheader-uid-headers": value}
    assert parse_host_config(changed).config.uid_headers == ()


def test_names_of_the_setting_apply_instead_of_the_published_ones(data: dict[str, str]) -> None:
    for names in ("[]", '["other"]'):
        found = parse_host_config({**data, "requestheader-allowed-names": names}, ("mine",), True)
        assert found.config.allowed_names == {"mine"} and found.config.links_users


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("requestheader-client-ca-file", None, "it has no requestheader-client-ca-file; start the kube-apiserver with"),
        ("requestheader-client-ca-file", "", "it has no requestheader-client-ca-file"),
        ("requestheader-client-ca-file", "text", "contains no certificate"),
        ("requestheader-allowed-names", "[]", "requestheader-allowed-names is empty, which allows every certificate"),
        ("requestheader-allowed-names", None, "requestheader-allowed-names is empty"),
        ("requestheader-allowed-names", "a,b", "requestheader-allowed-names is not a JSON list"),
        ("requestheader-allowed-names", '"a"', "requestheader-allowed-names is not a JSON list"),
        ("requestheader-allowed-names", "[1]", "requestheader-allowed-names is not a JSON list"),
        ("requestheader-allowed-names", "[" * 100_000, "requestheader-allowed-names is not a JSON list"),
        ("requestheader-allowed-names", json.dumps(["a"] * (MAX_LIST + 1)), "at most 64 strings"),
        ("requestheader-username-headers", None, "requestheader-username-headers is missing or empty"),
        ("requestheader-username-headers", '["X User"]', "not the name of a header"),
        ("requestheader-group-headers", '["a\\r\\nb"]', "not the name of a header"),
    ],
)
def test_what_cannot_be_used_is_named(data: dict[str, str], key: str, value: str | None, message: str) -> None:
    with pytest.raises(InvalidHostConfig) as caught:
        parse_host_config({**data, key: value})
    assert message in str(caught.value)


def test_a_ca_with_a_key_of_an_unknown_type_is_a_clear_problem(data: dict[str, str], tmp_path: Path) -> None:
    authority = create_authority(tmp_path)
    change_key_type(authority.file)
    with pytest.raises(InvalidHostConfig, match="the key of a CA in requestheader-client-ca-file is not of a type"):
        parse_host_config({**data, "requestheader-client-ca-file": authority.file.read_text()})
