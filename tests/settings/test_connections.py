"""Settings of certificates and proxies: their declarations, and those that contradict each other."""

from pathlib import Path

import pytest

from fairlead.settings import StartError, load


def load_error(flags: dict[str, str | None]) -> str:
    with pytest.raises(StartError) as caught:
        load(flags, {})
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("requestheader_username_headers", "Host", "--requestheader-username-headers: 'Host' must be the name"),
        (
            "requestheader_extra_headers_prefix",
            "X-Extra",
            "--requestheader-extra-headers-prefix: 'X-Extra' must",
        ),
        ("trusted_proxies", "10.0.0.1/8", "--trusted-proxies: '10.0.0.1/8' must be a network, such as 10.0.0.0/8"),
        ("trusted_proxies", "0.0.0.0/0", "--trusted-proxies: '0.0.0.0/0' has all addresses in it"),
        ("trusted_proxies", "10.0.0.0/8,::/0", "--trusted-proxies: '::/0' has all addresses in it"),
        ("proxy_protocol_networks", "on", "--proxy-protocol-networks: 'on' must be a network"),
        ("proxy_protocol_networks", "::/0", "--proxy-protocol-networks: '::/0' has all addresses in it"),
    ],
)
def test_an_invalid_value_is_rejected(name: str, value: str, expected: str) -> None:
    assert load_error({name: value}).startswith(expected)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({"requestheader_client_ca": "/a"}, "requestheader_client_ca and requestheader_allowed_names must"),
        ({"requestheader_allowed_names": "proxy"}, "requestheader_client_ca and requestheader_allowed_names must"),
        ({"requestheader_client_ca": "/a", "requestheader_allowed_names": ""}, "requestheader_client_ca and"),
        (
            {"requestheader_client_ca": "/a", "requestheader_allowed_names": "p", "client_ca": "/a"},
            "client_ca and requestheader_client_ca are the same file",
        ),
        (
            {
                **{"requestheader_client_ca": "/a", "requestheader_allowed_names": "p"},
                "requestheader_username_headers": "",
            },
            "requestheader_username_headers must not be empty",
        ),
        ({"aggregated_api": "on"}, "aggregated_api needs requestheader_client_ca"),
        ({"aggregated_api": "host", "requestheader_client_ca": "/a"}, "requestheader_client_ca cannot be set with"),
        ({"aggregated_api": "host", "requestheader_port": "8443"}, "requestheader_port is the same port as port"),
        ({"aggregated_api_authorization": "host"}, "aggregated_api_authorization needs aggregated_api"),
        ({"host_kubeconfig": "/a"}, "host_kubeconfig needs aggregated_api: host"),
        ({"proxy_protocol_networks": "10.0.0.0/8"}, "proxy_protocol_networks needs client_ca"),
        ({"client_ca": "/a", "client_cert_port": "8443"}, "client_cert_port is the same port as port"),
    ],
)
def test_settings_that_contradict_each_other_are_rejected(flags: dict[str, str | None], expected: str) -> None:
    assert load_error(flags).startswith(expected)


@pytest.mark.parametrize(
    "flags",
    [
        {"aggregated_api": "host"},
        {"aggregated_api": "host", "requestheader_allowed_names": "front-proxy", "host_kubeconfig": "/a"},
        {
            **{"aggregated_api": "on", "aggregated_api_authorization": "host", "host_kubeconfig": "/a"},
            **{"requestheader_client_ca": "/a", "requestheader_allowed_names": "p"},
        },
    ],
)
def test_settings_of_an_apiservice_fit_together(flags: dict[str, str | None]) -> None:
    assert load(flags, {}).aggregated_api == flags["aggregated_api"]


def test_on_without_quotes_is_a_boolean_in_yaml(tmp_path: Path) -> None:
    file = tmp_path / "fairlead.yaml"
    file.write_text("aggregated_api: on\nrequestheader_client_ca: /a\nrequestheader_allowed_names: [p]\n")
    assert load({"config": str(file)}, {}).aggregated_api == "on"
