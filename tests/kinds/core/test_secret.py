from base64 import b64encode

import pytest

from fairlead.core.objects import Object
from tests.harness.kind_examples import BY_NAME, complaints, example, prepared, problems

MIB = 1024 * 1024
DOCKER = "kubernetes.io/dockerconfigjson"


def secret(**fields: object) -> Object:
    return example("Secret", **{"data": None, "type": None, **fields})


def encoded(text: str) -> str:
    return b64encode(text.encode()).decode()


def test_string_data_goes_over_data_and_is_not_kept() -> None:
    new = prepared(secret(data={"a": "MQ==", "b": "Mg=="}, stringData={"b": "over", "c": "ünï", "d": None}))
    assert new["data"] == {"a": "MQ==", "b": "b3Zlcg==", "c": "w7xuw68=", "d": ""}
    assert "stringData" not in new


def test_without_any_data_there_is_no_map() -> None:
    assert "data" not in prepared(secret(data={}, stringData={}))


@pytest.mark.parametrize("sent", [None, ""])
def test_a_secret_is_opaque_unless_it_says_otherwise(sent: str | None) -> None:
    assert prepared(secret(type=sent))["type"] == "Opaque"
    assert prepared(secret(type="example.com/x"))["type"] == "example.com/x"


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
def test_well_known_types_need_their_keys(type: str, data: dict[str, str], missing: list[str]) -> None:
    expected = [(field, "FieldValueRequired") for field in missing]
    assert complaints(secret(type=type, stringData=data)) == expected


def test_a_token_names_its_service_account() -> None:
    name = "kubernetes.io/service-account.name"
    token = secret(type="kubernetes.io/service-account-token")
    assert complaints(token) == [(f"metadata.annotations[{name}]", "FieldValueRequired")]
    token["metadata"]["annotations"] = {name: "builder"}
    assert problems(token) == []


@pytest.mark.parametrize("text", ["not json", "[]", "1", "[" * 100_000, "\udcff"])
def test_a_registry_configuration_is_a_json_object(text: str) -> None:
    data = {".dockerconfigjson": b64encode(text.encode("utf-8", "surrogateescape")).decode()}
    [problem] = problems(secret(type=DOCKER, data=data))
    assert str(problem) == (
        'data[.dockerconfigjson]: Invalid value: "<secret contents redacted>": must be a JSON object'
    )


def test_a_good_registry_configuration_is_taken() -> None:
    assert problems(secret(type=DOCKER, stringData={".dockerconfigjson": '{"auths":{}}'})) == []


def test_no_complaint_repeats_a_value() -> None:
    for new in (
        secret(data={"a b": encoded("hunter2")}),
        secret(type=DOCKER, stringData={".dockerconfigjson": "hunter2"}),
        secret(stringData={"big": "hunter2" * MIB}),
    ):
        found = problems(new)
        assert found
        assert not any(leak in str(problem) for problem in found for leak in ("hunter2", encoded("hunter2")))


def test_everything_together_fits_into_a_mebibyte() -> None:
    assert problems(secret(stringData={"a": "x" * MIB})) == []
    assert complaints(secret(stringData={"a": "x" * MIB, "b": "y"})) == [("data", "FieldValueTooLong")]


def test_an_immutable_secret_is_frozen_for_good() -> None:
    old = secret(data={"a": "MQ=="}, immutable=True)
    assert complaints(secret(data={"a": "Mg=="}, immutable=True), old) == [("data", "FieldValueForbidden")]
    assert complaints(secret(data={"a": "MQ=="}), old) == [("immutable", "FieldValueForbidden")]
    same = secret(data={"a": "MQ=="}, stringData={"a": "1"}, immutable=True)
    assert problems(same, old) == []


def test_the_type_stays_and_the_values_are_secret() -> None:
    kind = BY_NAME["Secret"]
    assert kind.immutable == ("type",)
    assert set(kind.sensitive) == {"data", "stringData"}
