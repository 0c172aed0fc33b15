"""kinds/core/config_data.py: data, types, size and immutability of Secrets."""

from base64 import b64encode

import pytest

from fairlead.core.errors import Invalid
from fairlead.core.objects import Object
from fairlead.core.user import CONTROLLER_USER
from fairlead.registry.kind import Change
from fairlead.registry.write_rules import find_url_fields, immutable_problems, raise_if_invalid
from tests.harness.kind_examples import BY_NAME, apply_defaults, build_example, find_problems, problem_reasons

MIB = 1024 * 1024
DOCKER = "kubernetes.io/dockerconfigjson"


def build_secret(**fields: object) -> Object:
    return build_example("Secret", **{"data": None, "type": None, **fields})


def encode(text: str) -> str:
    return b64encode(text.encode()).decode()


def test_string_data_overrides_data_and_is_not_stored() -> None:
    new = apply_defaults(build_secret(data={"a": "MQ==", "b": "Mg=="}, stringData={"b": "over", "c": "ünï", "d": None}))
    assert new["data"] == {"a": "MQ==", "b": "b3Zlcg==", "c": "w7xuw68=", "d": ""}
    assert "stringData" not in new


@pytest.mark.parametrize(
    ("sent", "stored"),
    [
        ("bGlu\nZQ==\n", "bGluZQ=="),
        ("\r\nbGluZQ=\n=", "bGluZQ=="),
        ("YR==", "YQ=="),  # with bits that no byte uses
        ("YWK=", "YWI="),
        ("\n", ""),
    ],
)
def test_base64_may_have_line_breaks_and_is_stored_without(sent: str, stored: str) -> None:
    secret = build_secret(data={"a": sent})
    assert not find_problems(secret)
    assert apply_defaults(secret)["data"] == {"a": stored}


def test_a_secret_without_data_has_no_data_field() -> None:
    assert "data" not in apply_defaults(build_secret(data={}, stringData={}))


@pytest.mark.parametrize("sent", [None, ""])
def test_the_type_defaults_to_opaque(sent: str | None) -> None:
    assert apply_defaults(build_secret(type=sent))["type"] == "Opaque"
    assert apply_defaults(build_secret(type="example.com/x"))["type"] == "example.com/x"


@pytest.mark.parametrize(
    ("type", "data", "missing"),
    [
        ("kubernetes.io/tls", {}, ["data[tls.crt]", "data[tls.key]"]),
        ("kubernetes.io/tls", {"tls.crt": "x"}, ["data[tls.key]"]),
        ("kubernetes.io/tls", {"tls.crt": "", "tls.key": ""}, []),
        (DOCKER, {"x": "1"}, ["data[.dockerconfigjson]"]),
        ("kubernetes.io/dockercfg", {}, ["data[.dockercfg]"]),
        ("kubernetes.io/basic-auth", {}, ["data[username]", "data[password]"]),
        ("kubernetes.io/basic-auth", {"password": ""}, []),
        ("kubernetes.io/ssh-auth", {"x": "y"}, ["data[ssh-privatekey]"]),
        ("kubernetes.io/ssh-auth", {"ssh-privatekey": ""}, ["data[ssh-privatekey]"]),
        ("kubernetes.io/ssh-auth", {"ssh-privatekey": "k"}, []),
        ("example.com/anything", {}, []),
    ],
)
def test_well_known_types_require_their_keys(type: str, data: dict[str, str], missing: list[str]) -> None:
    expected = [(field, "FieldValueRequired") for field in missing]
    assert problem_reasons(build_secret(type=type, stringData=data)) == expected


def test_a_service_account_token_must_name_its_account() -> None:
    name = "kubernetes.io/service-account.name"
    token = build_secret(type="kubernetes.io/service-account-token")
    assert problem_reasons(token) == [(f"metadata.annotations[{name}]", "FieldValueRequired")]
    token["metadata"]["annotations"] = {name: "builder"}
    assert find_problems(token) == []


@pytest.mark.parametrize("text", ["not json", "[]", "1", "[" * 100_000, "\udcff"])
def test_a_docker_config_must_be_a_json_object(text: str) -> None:
    data = {".dockerconfigjson": b64encode(text.encode("utf-8", "surrogateescape")).decode()}
    [problem] = find_problems(build_secret(type=DOCKER, data=data))
    assert str(problem) == (
        'data[.dockerconfigjson]: Invalid value: "<secret contents redacted>": must be a JSON object'
    )


def test_a_valid_docker_config_is_accepted() -> None:
    assert find_problems(build_secret(type=DOCKER, stringData={".dockerconfigjson": '{"auths":{}}'})) == []


def test_errors_do_not_contain_values() -> None:
    for new in (
        build_secret(data={"a b": encode("hunter2")}),
        build_secret(type=DOCKER, stringData={".dockerconfigjson": "hunter2"}),
        build_secret(stringData={"big": "hunter2" * MIB}),
    ):
        found = find_problems(new)
        assert found
        assert not any(leak in str(problem) for problem in found for leak in ("hunter2", encode("hunter2")))


def test_all_data_must_fit_into_one_mebibyte() -> None:
    assert find_problems(build_secret(stringData={"a": "x" * MIB})) == []
    assert problem_reasons(build_secret(stringData={"a": "x" * MIB, "b": "y"})) == [("data", "FieldValueTooLong")]


def test_an_immutable_secret_cannot_be_changed() -> None:
    old = build_secret(data={"a": "MQ=="}, immutable=True)
    assert problem_reasons(build_secret(data={"a": "Mg=="}, immutable=True), old) == [("data", "FieldValueForbidden")]
    assert problem_reasons(build_secret(data={"a": "MQ=="}), old) == [("immutable", "FieldValueForbidden")]
    same = build_secret(data={"a": "MQ=="}, stringData={"a": "1"}, immutable=True)
    assert find_problems(same, old) == []


def test_the_type_is_immutable_and_the_data_sensitive() -> None:
    kind = BY_NAME["Secret"]
    assert kind.immutable == ("type",)
    assert set(kind.sensitive) == {"data", "stringData"}


def test_another_type_is_rejected_together_with_the_keys_that_it_lacks() -> None:
    old, new = build_example("Secret", type="Opaque"), build_example("Secret", type="kubernetes.io/basic-auth", data={})
    kind = BY_NAME["Secret"]
    change = Change("update", kind, CONTROLLER_USER, old, new)
    with pytest.raises(Invalid) as caught:
        raise_if_invalid(change, find_url_fields(kind), (), immutable_problems(kind, old, new))
    fields = {problem.field for problem in caught.value.details.problems}
    assert {"type", "data[username]", "data[password]"} <= fields
