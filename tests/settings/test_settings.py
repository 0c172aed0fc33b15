"""Settings: sources, precedence, validation, and the documentation page that lists them."""

import re
from pathlib import Path

import pytest

from fairlead.core.files import FileProblem
from fairlead.settings import (
    SETTINGS,
    Setting,
    Settings,
    StartError,
    declarations,
    flag,
    load,
    read_variable,
    variable,
)

PAGE = Path(__file__).resolve().parents[2] / "docs" / "settings.md"


def write_config(folder: Path, text: str) -> dict[str, str | None]:
    path = folder / "fairlead.yaml"
    path.write_text(text)
    return {"config": str(path)}


def load_error(*args: object, **kwargs: object) -> str:
    with pytest.raises(StartError) as error:
        load(*args, **kwargs)  # type: ignore[arg-type]
    return str(error.value)


def test_defaults_apply_when_nothing_is_set() -> None:
    assert load({}, {}) == Settings()


def test_precedence_is_flag_then_environment_then_file_then_default(tmp_path: Path) -> None:
    flags = write_config(tmp_path, "port: 1001\nevent_ttl: 1001\nbody_limit: 2001\n")
    environment = {"FAIRLEAD_PORT": "1002", "FAIRLEAD_EVENT_TTL": "1002"}
    settings = load({**flags, "port": "1003"}, environment)
    assert (settings.port, settings.event_ttl, settings.body_limit, settings.watch_queue) == (1003, 1002, 2001, 10_000)


def test_the_users_settings_override_the_defaults_of_a_command() -> None:
    defaults = {"log_level": "warning", "log_format": "console"}
    settings = load({}, {"FAIRLEAD_LOG_LEVEL": "debug"}, defaults)
    assert (settings.log_level, settings.log_format) == ("debug", "console")


def test_the_file_can_be_named_in_the_environment(tmp_path: Path) -> None:
    path = write_config(tmp_path, "port: 1001")["config"]
    assert load({}, {"FAIRLEAD_CONFIG": str(path)}).port == 1001


def test_every_setting_can_be_set_in_every_source(tmp_path: Path) -> None:
    texts = {
        "data": "/srv/fairlead",
        "store": "postgres://db.example.com/fairlead",
        "listen": "::",
        "workers": "3",
        "replica_address": "replica1.example.com",
        "replica_port": "2049",
        "public_url": "https://fairlead.example.com",
        "tls_cert": "/c.pem",
        "tls_key": "/k.pem",
        "tls_ca": "/a.pem",
        "client_ca": "/clients.pem",
        "requestheader_client_ca": "/proxies.pem",
        "requestheader_port": "2047",
        "requestheader_username_headers": "X-User",
        "requestheader_group_headers": "X-Group",
        "requestheader_extra_headers_prefix": "X-Extra-",
        "requestheader_uid_headers": "X-Uid",
        "requestheader_link_users": "on",
        "client_cert_port": "2046",
        "aggregated_api": "on",
        "aggregated_api_authorization": "host",
        "proxy_protocol_networks": "10.1.0.0/16",
        "trusted_proxies": "10.0.0.0/8",
        "api_group": "management.example.com",
        "namespace_prefix": "p-",
        "password_login": "off",
        "cluster_connections": "off",
        "cluster_networks": "10.0.0.0/8, fd00::/8",
        "cluster_proxies": "proxy.example.com:3128, [2001:db8::1]:80",
        "cluster_identity_prefix": "corp:",
        "audit_compress": "off",
        "metrics_public": "on",
        "console": "off",
        "workspace_domain": "workspaces.example.com",
        "chart_repositories": "https://charts.example.com/stable",
        "unlisted_clusters": "all",
        "space_roles": "view",
        "space_metadata": "team,example.com/",
        "space_pod_security": "restricted",
        "chart_role": "edit",
        "log_level": "error",
        "log_format": "console",
    }
    values = {name: texts.get(name, "2048") for name in SETTINGS if name != "tls_names"}
    file = write_config(tmp_path, "".join(f"{name}: '{value}'\n" for name, value in values.items()))
    from_flags = load(values, {})
    assert from_flags == load({}, {variable(name): value for name, value in values.items()}) == load(file, {})
    assert all(getattr(from_flags, name) != getattr(Settings(), name) for name in values)


@pytest.mark.parametrize(("yaml_value", "value"), [("off", "off"), ("on", "on"), ("false", "off"), ("'off'", "off")])
def test_on_and_off_mean_the_same_with_and_without_quotes(tmp_path: Path, yaml_value: str, value: str) -> None:
    assert load(write_config(tmp_path, f"password_login: {yaml_value}\n"), {}).password_login == value


def test_variables_of_the_commands_are_not_settings() -> None:
    environment = {
        "FAIRLEAD_URL": "https://x",
        "FAIRLEAD_KEY": "k",
        "FAIRLEAD_CA_FILE": "/c",
        "FAIRLEAD_ENCRYPTION_KEYS": "a b",
    }
    assert load({}, environment) == Settings()


def test_the_keys_for_encryption_come_from_their_variable() -> None:
    given = {"FAIRLEAD_ENCRYPTION_KEYS": " a c "}
    assert read_variable("encryption_keys", given) == ("FAIRLEAD_ENCRYPTION_KEYS", "a c")
    assert read_variable("encryption_keys", {}) == ("FAIRLEAD_ENCRYPTION_KEYS", "")


def test_an_unknown_key_in_the_file_is_rejected_with_a_suggestion(tmp_path: Path) -> None:
    message = load_error(write_config(tmp_path, "body-limit: 4096\nprot: 1\n"), {})
    assert "unknown setting body-limit; did you mean body_limit? Otherwise remove it" in message
    assert "unknown setting prot; did you mean port?" in message


def test_an_unknown_variable_is_rejected_with_a_suggestion() -> None:
    message = load_error({}, {"FAIRLEAD_PROT": "1"})
    assert message == "unknown setting FAIRLEAD_PROT; did you mean FAIRLEAD_PORT? Otherwise unset it"


def test_service_link_variables_of_kubernetes_are_not_settings() -> None:
    links = {
        "FAIRLEAD_PORT": "tcp://10.0.0.1:443",
        "FAIRLEAD_SERVICE_HOST": "10.0.0.1",
        "FAIRLEAD_SERVICE_PORT": "443",
        "FAIRLEAD_SERVICE_PORT_HTTPS": "443",
        "FAIRLEAD_PORT_443_TCP": "tcp://10.0.0.1:443",
        "FAIRLEAD_PORT_443_TCP_ADDR": "10.0.0.1",
        "FAIRLEAD_AGENT_PORT": "tcp://10.0.0.2:443",
        "FAIRLEAD_AGENT_SERVICE_HOST": "10.0.0.2",
        "FAIRLEAD_AGENT_PORT_443_TCP_PROTO": "tcp",
    }
    assert load({}, links) == Settings()


@pytest.mark.parametrize("former", ["audit_refused", "cluster_sockets", "seal_keys"])
def test_a_former_name_is_an_error(tmp_path: Path, former: str) -> None:
    """Also that of the encryption keys: a server without them must not start."""
    assert f"unknown setting {former}" in load_error(write_config(tmp_path, f"{former}: 1\n"), {})
    assert f"unknown setting {variable(former)}" in load_error({}, {variable(former): "1"})


def test_an_empty_variable_counts_as_not_set() -> None:
    assert load({}, {"FAIRLEAD_PORT": "", "FAIRLEAD_CONFIG": ""}).port == 8443


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("port", "70000", "--port: 70000 is out of range; it must be between 0 and 65535"),
        ("port", "-1", "--port: -1 is out of range; it must be between 0 and 65535"),
        ("port", "https", "--port: 'https' is not an integer"),
        ("body_limit", "1", "--body-limit: 1 is out of range; it must be between 1024 and 67108864"),
        ("log_level", "loud", "--log-level: 'loud' is not one of debug, info, warning, error"),
        ("listen", "localhost", "--listen: 'localhost' must be an IP address"),
        ("listen", "", "--listen: '' must be an IP address"),
        ("workspace_domain", "*.example.com", "--workspace-domain: '*.example.com' must be a DNS name"),
        ("workspace_domain", "127.0.0.1", "--workspace-domain: '127.0.0.1' must be a DNS name"),
        ("public_url", "http://x", "--public-url: 'http://x' must look like https://"),
        ("api_group", "", "--api-group: '' must be a DNS name"),
        ("namespace_prefix", "P", "--namespace-prefix: 'P' must be at most 32"),
        ("tls_names", "a.test,b_c", "--tls-names: 'b_c' must be a DNS name"),
        ("data", "", "--data: must not be empty"),
    ],
)
def test_an_invalid_value_is_rejected_under_the_name_that_was_used(name: str, value: str, expected: str) -> None:
    assert load_error({name: value}, {}).startswith(expected)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("port: true", "port: True is not an integer"),
        ("port: 1.5", "port: 1.5 is not an integer"),
        ("port: [1]", "port: [1] is not an integer"),
        ("namespace_prefix: 12", "namespace_prefix: 12 is not a string; put it in quotes"),
        ("tls_names: {a: b}", "tls_names: {'a': 'b'} is neither a list nor"),
        ("tls_names: [a.test, 5]", "tls_names: 5 is not a string"),
        ("- port", "must contain settings, one `name: value` per line"),
        ("store: memory:", "invalid YAML in line 1; strings that end in a colon need quotes"),
        ("a: b: secret", "invalid YAML in line 1"),
        (
            "a: b\ntls_names: [a\nport: 1",
            "invalid YAML in line 3; a bracket or brace that is opened in line 2 is not closed",
        ),
        ("a: {b: c", "a bracket or brace that is opened in line 1 is not closed"),
        ("a: 'secret\nb: c", "invalid YAML in line 1; a quote that is opened there is not closed"),
        ("a:\n\t- b", "invalid YAML in line 2; indent with spaces"),
        ("a: b\n  c: d\n e: f", "invalid YAML in line 2"),
    ],
)
def test_an_invalid_config_file_is_rejected(tmp_path: Path, line: str, expected: str) -> None:
    message = load_error(write_config(tmp_path, line), {})
    assert expected in message
    assert "secret" not in message


def test_all_problems_are_reported_at_once() -> None:
    message = load_error({"port": "x", "listen": "y"}, {"FAIRLEAD_EVENT_TTL": "0", "FAIRLEAD_TYPO": "1"})
    assert len(message.splitlines()) == 4


def test_a_missing_or_unreadable_file_is_reported(tmp_path: Path) -> None:
    assert "none.yaml: no such file; create it, or leave out --config" in load_error(
        {"config": str(tmp_path / "none.yaml")}, {}
    )
    with pytest.raises(FileProblem, match="Is a directory; make it readable"):
        load({"config": str(tmp_path)}, {})


def test_an_empty_file_and_empty_values_change_nothing(tmp_path: Path) -> None:
    assert load(write_config(tmp_path, "# nothing yet\n"), {}) == Settings()
    assert load(write_config(tmp_path, "port:\n"), {}) == Settings()


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({"tls_cert": "/c"}, "tls_cert and tls_key must be set together"),
        ({"tls_key": "/k"}, "tls_cert and tls_key must be set together"),
        ({"tls_ca": "/a"}, "tls_ca requires tls_cert"),
        (
            {"public_url": "https://a.w.example.com", "workspace_domain": "w.example.com"},
            "workspace_domain: a.w.example.com of public_url is in it",
        ),
        (
            {"tls_cert": "/c", "tls_key": "/k", "tls_names": "a.test"},
            "tls_names only apply to the generated certificate",
        ),
        ({"replica_address": "127.0.0.1"}, "replica_address needs a store that several servers share"),
        (
            {"replica_address": "10.0.0.7", "store": "etcd://e:2379/x"},
            "replica_address: other replicas cannot reach this server, which listens on 127.0.0.1 only",
        ),
        (
            {"replica_address": "::1", "store": "etcd://e:2379/x", "replica_port": "0", "workers": "2"},
            "replica_port: 0 is for servers with one worker",
        ),
        (
            {"replica_address": "::1", "store": "etcd://e:2379/x", "replica_port": "8443"},
            "replica_port is the port that serves clients",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_rejected(flags: dict[str, str | None], expected: str) -> None:
    assert load_error(flags, {}).startswith(expected)


def test_names_are_a_list_or_separated_by_commas(tmp_path: Path) -> None:
    expected = ("a.test", "192.0.2.7")
    assert load({"tls_names": "a.test, 192.0.2.7,"}, {}).tls_names == expected
    assert load(write_config(tmp_path, "tls_names: [a.test, 192.0.2.7]"), {}).tls_names == expected


def test_paths_are_made_absolute_and_the_home_folder_is_expanded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert load({"data": "~/x"}, {}).data == load({"data": "x"}, {}).data == tmp_path / "x"


def test_the_data_folder_follows_the_xdg_specification(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert Settings().data == tmp_path / "fairlead"
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    assert Settings().data == Path("/home/ada/.local/share/fairlead")


def test_the_store_is_in_the_data_folder_unless_set_otherwise(tmp_path: Path) -> None:
    assert Settings(data=tmp_path).store_url == f"sqlite:{tmp_path}/fairlead.db"
    assert Settings(store="memory:").store_url == "memory:"


@pytest.mark.parametrize(
    ("settings", "url"),
    [
        (Settings(), "https://127.0.0.1:9000"),
        (Settings(listen="0.0.0.0"), "https://127.0.0.1:9000"),
        (Settings(listen="::"), "https://[::1]:9000"),
        (Settings(listen="192.0.2.7"), "https://192.0.2.7:9000"),
        (Settings(public_url="https://fairlead.example.com"), "https://fairlead.example.com"),
    ],
)
def test_the_base_url_has_an_address_that_clients_can_reach(settings: Settings, url: str) -> None:
    assert settings.base_url(9000) == url


def test_the_certificate_covers_every_name_that_clients_use() -> None:
    settings = Settings(listen="192.0.2.7", public_url="https://a.test:9000", tls_names=("b.test",))
    assert settings.certificate_names == ("b.test", "a.test", "192.0.2.7")


def test_by_default_there_is_one_worker_per_cpu_and_at_most_eight(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = []
    for cpus in (1, 4, 32):
        monkeypatch.setattr(declarations, "count_cpus", lambda cpus=cpus: cpus)
        counts.append(Settings().worker_count)
    assert (counts, Settings(workers=12).worker_count) == ([1, 4, 8], 12)


def format_accepted_values(setting: Setting) -> str:
    info = setting.info
    return f"{info.minimum} to {info.maximum}" if setting.type is int else ", ".join(info.choices)


def test_the_settings_page_matches_the_code() -> None:
    rows = re.findall(r"^\| `\w+` \|.*$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    expected = [
        (
            f"`{name}`",
            f"`{flag(name)}`",
            f"`{variable(name)}`",
            f"`{setting.default_text}`",
            format_accepted_values(setting),
            setting.info.help,
            setting.info.changed_by,
        )
        for name, setting in SETTINGS.items()
    ]
    assert [tuple(cell.strip() for cell in row.strip("|").split("|")) for row in rows] == expected


def test_the_settings_page_says_for_each_setting_who_changes_it() -> None:
    tables = PAGE.read_text(encoding="utf-8").count(
        "| key in the file | flag | variable | default | accepts | meaning | "
    )
    assert tables == PAGE.read_text(encoding="utf-8").count("| meaning | who changes it |") == 11
    assert [name for name, setting in SETTINGS.items() if len(setting.info.changed_by.split()) < 3] == []


def test_the_identity_prefix_is_the_one_that_is_set_or_empty(tmp_path: Path) -> None:
    assert Settings().identity_prefix == "fairlead:"
    assert load({"cluster_identity_prefix": ""}, {}).identity_prefix == ""
    assert load(write_config(tmp_path, 'cluster_identity_prefix: ""'), {}).identity_prefix == ""
    assert load({}, {"FAIRLEAD_CLUSTER_IDENTITY_PREFIX": "off"}).identity_prefix == ""
    assert load({}, {"FAIRLEAD_CLUSTER_IDENTITY_PREFIX": ""}).identity_prefix == "fairlead:"  # counts as not set
    assert "must not begin with" in load_error({"cluster_identity_prefix": "system:"}, {})
    assert "end with" in load_error({"cluster_identity_prefix": "corp"}, {})
