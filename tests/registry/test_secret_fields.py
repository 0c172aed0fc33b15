"""registry/secret_fields.py: finds, redacts and strips credentials in objects."""

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


def build_vault(**spec: object) -> Object:
    return {"apiVersion": VAULT.api_version, "kind": "Vault", "metadata": {"name": "a"}, "spec": dict(spec)}


def test_an_object_with_a_sensitive_field_must_be_encrypted() -> None:
    fields = SensitiveFieldIndex(Catalog([VAULT]))
    assert fields.may_contain(KEY, orjson.dumps(build_vault(password="x")))
    assert fields.may_contain(KEY, orjson.dumps(build_vault(host=orjson.dumps(build_vault(password="x")).decode())))
    assert not fields.may_contain(KEY, orjson.dumps(build_vault(host="x")))
    assert not fields.may_contain(("", "others", "", "a"), orjson.dumps(build_vault(password="x")))


def test_redacted_objects_show_the_fields_without_values() -> None:
    redacted = redact(build_vault(password="x", repos=[{"host": "h", "password": "y"}]), VAULT.sensitive)
    assert redacted["spec"] == {"password": REDACTED, "repos": [{"host": "h", "password": REDACTED}]}


def test_each_value_of_a_sensitive_map_is_redacted() -> None:
    assert redact({"data": {"a": "1", "b": "2"}}, ("data",)) == {"data": {"a": REDACTED, "b": REDACTED}}


def test_responses_have_no_write_only_fields_in_lists_either() -> None:
    body = orjson.loads(
        response_body(VAULT, orjson.dumps(build_vault(password="x", repos=[{"host": "h", "password": "y"}])))
    )
    assert body["spec"] == {"repos": [{"host": "h"}]}


def test_write_only_fields_are_removed_from_the_last_applied_annotation() -> None:
    stored = build_vault(password="canary")
    stored["metadata"]["annotations"] = {LAST_APPLIED: orjson.dumps(build_vault(password="canary", host="h")).decode()}
    assert b"canary" not in response_body(VAULT, orjson.dumps(stored))
    del stored["spec"]["password"]
    assert b"canary" not in response_body(VAULT, orjson.dumps(stored))


def test_an_annotation_that_is_not_json_is_kept() -> None:
    stored = build_vault()
    stored["metadata"]["annotations"] = {LAST_APPLIED: "{"}
    assert strip_write_only(stored, VAULT)["metadata"]["annotations"] == {LAST_APPLIED: "{"}
