"""Credentials in objects: sealed, left out of answers, and kept by those who never saw them."""

import orjson

from fairlead.core.objects import LAST_APPLIED, Object
from fairlead.registry.codec import response_body
from fairlead.registry.kind import Catalog, Kind, Sensitivity
from fairlead.registry.schema import array, obj, string
from fairlead.registry.secret_fields import REDACTED, SensitiveFieldIndex, redact, strip_write_only

SPEC = obj(
    password=string(format="password"),
    host=string(),
    repos=array(obj(host=string(), password=string(format="password"))),
)
PATHS = ("spec.password", "spec.repos.password")
VAULT = Kind(
    "Vault",
    "vaults",
    False,
    {"spec": SPEC},
    "For tests.",
    sensitive=PATHS,
    write_only=PATHS,
    sensitivity=Sensitivity.NORMAL,
)
KEY = ("management.service.sh", "vaults", "", "a")


def vault(**spec: object) -> Object:
    return {"apiVersion": VAULT.api_version, "kind": "Vault", "metadata": {"name": "a"}, "spec": dict(spec)}


def test_a_value_that_names_a_secret_field_is_to_be_sealed() -> None:
    fields = SensitiveFieldIndex(Catalog([VAULT]))
    assert fields.may_contain(KEY, orjson.dumps(vault(password="x")))
    assert fields.may_contain(KEY, orjson.dumps(vault(host=orjson.dumps(vault(password="x")).decode())))
    assert not fields.may_contain(KEY, orjson.dumps(vault(host="x")))
    assert not fields.may_contain(("", "others", "", "a"), orjson.dumps(vault(password="x")))


def test_redacted_objects_show_where_a_secret_was_and_nothing_of_it() -> None:
    shown = redact(vault(password="x", repos=[{"host": "h", "password": "y"}]), VAULT.sensitive)
    assert shown["spec"] == {"password": REDACTED, "repos": [{"host": "h", "password": REDACTED}]}


def test_the_values_of_a_secret_map_are_redacted_each() -> None:
    assert redact({"data": {"a": "1", "b": "2"}}, ("data",)) == {"data": {"a": REDACTED, "b": REDACTED}}


def test_answers_have_no_hidden_field_in_lists_either() -> None:
    body = orjson.loads(response_body(VAULT, orjson.dumps(vault(password="x", repos=[{"host": "h", "password": "y"}]))))
    assert body["spec"] == {"repos": [{"host": "h"}]}


def test_what_kubectl_wrote_down_again_is_hidden_too() -> None:
    written = vault(password="canary")
    written["metadata"]["annotations"] = {LAST_APPLIED: orjson.dumps(vault(password="canary", host="h")).decode()}
    assert b"canary" not in response_body(VAULT, orjson.dumps(written))
    del written["spec"]["password"]
    assert b"canary" not in response_body(VAULT, orjson.dumps(written))


def test_an_annotation_that_is_no_json_stays_as_it_is() -> None:
    written = vault()
    written["metadata"]["annotations"] = {LAST_APPLIED: "{"}
    assert strip_write_only(written, VAULT)["metadata"]["annotations"] == {LAST_APPLIED: "{"}
