"""Parameters of the type password: stored, rendered, and never returned, for every kind of instance."""

from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest

from fairlead.admission.parameters import check_parameters
from fairlead.core.errors import Invalid
from fairlead.core.objects import LAST_APPLIED, Object, get_path
from fairlead.domain.password_parameters import hidden_values, hide_passwords, record_rendered_secrets, redact_instance
from fairlead.domain.template_resolution import TemplateDefinition, find_definition, render_definition
from fairlead.kinds import INSTANCES
from fairlead.registry.codec import decode
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from fairlead.registry.secret_fields import SensitiveFieldIndex
from fairlead.registry.write_options import WriteOptions, server_write_options
from tests.admission.templated_kinds import TEMPLATES, every_kind
from tests.harness.registry import ADA, NAMESPACE, RegistryFixture, open_registry, write_options

CANARY = 'can\'ary "7f3a" \\ ü'
PASSWORD = "canary-7f3a"
DEFINITIONS = [{"variable": "db.password", "type": "password"}, {"variable": "size"}]


@pytest.fixture
async def api() -> AsyncIterator[RegistryFixture]:
    async with open_registry(rules=(check_parameters(GROUP),)) as fixture:
        for kind in TEMPLATES.values():
            annotations = {"note": "{{ parameters.db.password }}", "other": "{{ parameters.db.password | quote }}"}
            template = {"instanceTemplate": {"metadata": {"annotations": annotations}}}
            for name in ("t", "other"):
                await fixture.create(kind, name, spec={"template": template, "parameters": DEFINITIONS})
        yield fixture


async def create_instance(api: RegistryFixture, kind: str, text: str, **spec: Any) -> Object:
    return await api.create(kind, "one", spec={"templateRef": {"name": "t"}, "parameters": text, **spec})


def reply_body(api: RegistryFixture, kind: str) -> bytes:
    entry = api.resource(kind).get_cached(NAMESPACE, "one")
    assert entry is not None
    return entry.body


def stored_object(api: RegistryFixture, kind: str) -> Object:
    entry = api.resource(kind).get_cached(NAMESPACE, "one")
    assert entry is not None
    return decode(entry)


def stored_password(api: RegistryFixture, kind: str) -> str | None:
    password: str | None = (get_path(stored_object(api, kind), "spec.parameterSecrets") or {}).get("db.password")
    return password


def rendered_annotations(api: RegistryFixture, kind: str) -> Object:
    entry = api.resource(TEMPLATES[kind]).get_cached("", "t")
    assert entry is not None
    result = render_definition(stored_object(api, kind), find_definition(stored_object(api, kind), decode(entry)))
    annotations: Object = get_path(result, "instanceTemplate.metadata.annotations")
    return annotations


@every_kind
@pytest.mark.parametrize(
    "text", [f"# mine\ndb.password: {PASSWORD}\nsize: 1\n", f"size: 1\ndb: {{password: {PASSWORD}}}\n"]
)
async def test_a_password_is_hidden_in_the_parameters_and_still_rendered(
    api: RegistryFixture, kind: str, text: str
) -> None:
    reply = await create_instance(api, kind, text)
    assert PASSWORD not in str(reply) and PASSWORD.encode() not in reply_body(api, kind)
    assert reply["spec"]["parameters"] == text.replace(PASSWORD, "<hidden>")
    assert "parameterSecrets" not in reply["spec"]
    assert rendered_annotations(api, kind) == {"note": PASSWORD, "other": f'"{PASSWORD}"'}


@every_kind
@pytest.mark.parametrize("secret", [CANARY, "size", "1", "a: b", "12345", "<hidden"])
async def test_hiding_a_password_changes_nothing_else(api: RegistryFixture, kind: str, secret: str) -> None:
    text = f"size: 1\ndb.password: {orjson.dumps(secret).decode()}\n"
    await create_instance(api, kind, text)
    assert stored_password(api, kind) == secret and rendered_annotations(api, kind)["note"] == secret
    assert get_path(stored_object(api, kind), "spec.parameters").count("<hidden>") == 1


@every_kind
async def test_a_value_can_be_sent_in_parameter_secrets(api: RegistryFixture, kind: str) -> None:
    reply = await create_instance(api, kind, "size: 1", parameterSecrets={"db.password": PASSWORD})
    assert PASSWORD not in str(reply) and rendered_annotations(api, kind)["note"] == PASSWORD


async def update_spec(api: RegistryFixture, kind: str, **spec: Any) -> None:
    def merge_spec(obj: Object) -> None:
        obj["spec"] = {**obj["spec"], **spec}

    await api.patch(kind, "one", merge_spec)


@every_kind
async def test_the_placeholder_keeps_the_previous_value(api: RegistryFixture, kind: str) -> None:
    await create_instance(api, kind, f"db.password: {PASSWORD}\nsize: 1")
    await update_spec(api, kind, parameters="size: 2\ndb.password: <hidden>\n", displayName="new")
    assert stored_password(api, kind) == PASSWORD and rendered_annotations(api, kind)["note"] == PASSWORD
    await update_spec(api, kind, parameters="size: 2\ndb.password: other-value\n")
    assert stored_password(api, kind) == "other-value" and b"other-value" not in reply_body(api, kind)
    with pytest.raises(Invalid, match="must be a single value"):
        await update_spec(api, kind, parameters="db.password: [a, b]")
    await update_spec(api, kind, parameters="size: 2")
    assert stored_password(api, kind) is None and rendered_annotations(api, kind)["note"] == ""


@every_kind
async def test_a_placeholder_without_a_previous_value_is_invalid(api: RegistryFixture, kind: str) -> None:
    with pytest.raises(Invalid) as error:
        await create_instance(api, kind, "db.password: <hidden>")
    assert [each.field for each in error.value.details.problems] == ["spec.parameters[db.password]"]


@every_kind
async def test_another_template_does_not_get_the_password(api: RegistryFixture, kind: str) -> None:
    await create_instance(api, kind, f"db.password: {PASSWORD}")
    with pytest.raises(Invalid, match="sent to another template or app does not count"):
        await update_spec(api, kind, templateRef={"name": "other"})
    await update_spec(api, kind, templateRef={"name": "other"}, parameters="size: 1")
    assert stored_password(api, kind) is None
    with pytest.raises(Invalid):
        await update_spec(api, kind, templateRef={"name": "t"}, parameters="db.password: <hidden>")


@every_kind
async def test_the_last_applied_annotation_of_kubectl_has_no_password(api: RegistryFixture, kind: str) -> None:
    body = api.build_object(kind, "one", spec={"templateRef": {"name": "t"}})
    body["metadata"]["namespace"] = NAMESPACE
    body["spec"]["parameters"] = f"db.password: {orjson.dumps(CANARY).decode()}"
    body["metadata"]["annotations"] = {LAST_APPLIED: orjson.dumps(body).decode()}
    await api.submit(kind, body, write_options())
    applied = get_path(stored_object(api, kind), "metadata.annotations")[LAST_APPLIED]
    assert "7f3a" not in applied and "<hidden>" in applied and b"7f3a" not in reply_body(api, kind)


@every_kind
async def test_the_rendered_template_and_messages_show_no_password(api: RegistryFixture, kind: str) -> None:
    await create_instance(api, kind, f"db.password: {orjson.dumps(CANARY).decode()}")
    field = INSTANCES[api.resource(kind).kind.plural].rendered_field
    result = {"instanceTemplate": {"metadata": {"annotations": rendered_annotations(api, kind)}}}

    def write_status(old: Object) -> Object:
        status = {**old.get("status", {}), field: result, "message": f"cannot read {CANARY}"}
        return {**old, "status": record_rendered_secrets(old, status)}

    await api.resource(kind).modify(NAMESPACE, "one", write_status, server_write_options("status"))
    assert b"7f3a" not in reply_body(api, kind)
    assert get_path(stored_object(api, kind), f"status.{field}") == result

    def send_back(old: Object) -> Object:
        return {**old, "status": {**old["status"], "reason": "Seen"}}

    await api.resource(kind).modify(NAMESPACE, "one", send_back, WriteOptions(ADA, "tests", subresource="status"))
    assert get_path(stored_object(api, kind), f"status.{field}") == result, (
        "sending the redacted status back changes nothing"
    )
    assert get_path(stored_object(api, kind), "status.reason") == "Seen"
    await update_spec(api, kind, parameters="db.password: another")
    assert b"7f3a" not in reply_body(api, kind), "the rendered template still has the previous value"


@every_kind
async def test_parameters_are_encrypted_even_before_their_template_exists(api: RegistryFixture, kind: str) -> None:
    await create_instance(api, kind, f"db.password: {PASSWORD}", templateRef={"name": "missing"})
    resource = api.resource(kind)
    entry = resource.get_cached(NAMESPACE, "one")
    assert entry is not None
    assert SensitiveFieldIndex(api.registry.catalog).may_contain(entry.key, entry.full_body or entry.body)


async def test_a_parameter_that_is_no_longer_a_password_stays_hidden(api: RegistryFixture) -> None:
    await create_instance(api, "SpaceInstance", f"db.password: {PASSWORD}")

    def change_type_to_string(template: Object) -> None:
        template["spec"]["parameters"] = [{"variable": "db.password", "type": "string"}]

    await api.patch("SpaceTemplate", "t", change_type_to_string)
    await update_spec(api, "SpaceInstance", displayName="again", parameters="db.password: <hidden> ")
    assert stored_password(api, "SpaceInstance") == PASSWORD and PASSWORD.encode() not in reply_body(
        api, "SpaceInstance"
    )


CHART_PARAMETERS = [
    {"variable": "host", "defaultValue": "a.example.com"},
    {"variable": "key"},
    {"variable": "pass", "type": "password"},
]


@pytest.fixture
async def api_with_chart(api: RegistryFixture) -> RegistryFixture:
    """A virtual cluster with a chart whose repository and password come from parameters."""
    chart = {"name": "c", "repo": "https://{{ parameters.host }}", "username": "u", "password": "{{ parameters.pass }}"}
    values = "{{ parameters.key }}: x\nfixed: y\n"
    definition = {"template": {"helmRelease": {"chart": chart, "values": values}}, "parameters": CHART_PARAMETERS}
    spec = {**definition, "versions": [{"version": "1.0.0", **definition}]}
    await api.create("VirtualClusterTemplate", "chart", spec=spec)
    spec = {"templateRef": {"name": "chart"}, "parameters": f"key: k\npass: {PASSWORD}\n"}
    await api.create("VirtualClusterInstance", "one", spec=spec)
    return api


HIDDEN, EVIL = "key: k\npass: <hidden>\n", "host: evil.example.com\n"


@pytest.mark.parametrize(
    "steps",
    [
        [{"parameters": HIDDEN + EVIL}],
        [{"parameters": HIDDEN + EVIL, "templateRef": {"name": "chart", "version": "1.0.0"}}],
        [
            {"parameters": HIDDEN + EVIL, "templateRef": {"name": "chart", "version": "9.0.0"}},
            {"templateRef": {"name": "chart"}},
        ],
        [
            {"parameters": HIDDEN.replace("k\n", "fixed\n", 1) + EVIL},  # duplicate key: it cannot be rendered
            {"parameters": HIDDEN + EVIL},
        ],
    ],
    ids=["at once", "another version", "unknown version", "not renderable"],
)
async def test_a_hidden_password_must_be_sent_again_when_its_destination_changes(
    api_with_chart: RegistryFixture, steps: list[Object]
) -> None:
    kind = "VirtualClusterInstance"
    with pytest.raises(Invalid, match=r"spec\.parameters\[pass\]: Required value: must be sent again"):
        for spec in steps:
            await update_spec(api_with_chart, kind, **spec)
    last_spec = {**steps[-1], "parameters": HIDDEN.replace("<hidden>", "mine") + EVIL}
    await update_spec(api_with_chart, kind, **last_spec)
    assert hidden_values(stored_object(api_with_chart, kind)) == {"pass": "mine"}


async def test_a_hidden_password_is_kept_while_its_destination_stays(api_with_chart: RegistryFixture) -> None:
    kind = "VirtualClusterInstance"
    for text in (HIDDEN.replace("k\n", "other\n", 1), HIDDEN + "host: a.example.com\n"):
        await update_spec(api_with_chart, kind, parameters=text)
        assert hidden_values(stored_object(api_with_chart, kind)) == {"pass": PASSWORD}


YAML_TEXTS = [
    "pw: {0}\n",
    "pw: '{0}'\n",
    'pw: "x{0}y"\n',
    "pw: |\n  a\n  b {0}\n",
    "a: {0}\nb: \U0001f600\n",
    "{0}: x\n",
]


@pytest.mark.parametrize("text", YAML_TEXTS)
@pytest.mark.parametrize(
    "secret", ["\U0001f600word", "x\ufeffy", "zz\x80z", "0x1F2E", "1e9", "a'b\"c\\d", "ü\xa0", "0777"]
)
def test_a_password_is_hidden_in_every_yaml_notation(text: str, secret: str) -> None:
    template = {"objects": text.replace("{0}", "{{ parameters.p }}")}
    instance = {"metadata": {}, "spec": {"parameterSecrets": {"p": secret}}, "status": {}}
    instance["status"] = {
        "space": render_definition({"spec": {"parameters": "p: <hidden>", **instance["spec"]}}, definition_of(template))
    }
    redact_instance(instance)
    assert "<hidden>" in instance["status"]["space"]["objects"]


def definition_of(template: Object) -> TemplateDefinition:
    return TemplateDefinition(template, [{"variable": "p", "type": "password"}])


def test_a_short_password_leaves_enums_and_timestamps_unchanged() -> None:
    """Clients parse them: a typed client could not read a list with a redacted timestamp."""
    timestamp = "2026-11-16T02:00:00Z"
    condition = {"type": "Ready", "status": "True", "reason": "e2", "lastTransitionTime": timestamp, "message": "e2"}
    status: Object = {"phase": "Ready", "message": "e2", "conditions": [condition], "kubernetes": {"at": timestamp}}
    instance = {"metadata": {}, "spec": {"parameterSecrets": {"a": "2", "b": "e"}}, "status": status}
    redact_instance(instance)
    assert instance["status"] == {
        "phase": "Ready",
        "message": "<hidden>",
        "conditions": [{**condition, "message": "<hidden>"}],
        "kubernetes": {"at": timestamp},
    }


def test_passwords_of_one_letter_do_not_multiply_the_text() -> None:
    """Each of these passwords is a letter of the placeholder."""
    secrets = dict(zip("abcdefg", "<hiden>", strict=True))
    instance = {"metadata": {}, "spec": {"parameterSecrets": secrets}, "status": {"message": "<x" * 1_000}}
    redact_instance(instance)
    assert instance["status"] == {"message": "<hidden>x" * 1_000}
    spec = {"parameters": "".join(f"{name}: '{letter}'\n" for name, letter in secrets.items()) + "# " + "<x" * 1_000}
    hidden = hide_passwords(spec, [{"variable": name, "type": "password"} for name in secrets], {})
    assert hidden is not None
    assert len(hidden["parameters"]) <= 8 * len(spec["parameters"])


def test_nothing_is_hidden_without_a_password() -> None:
    assert hide_passwords({"parameters": "size: 1"}, DEFINITIONS, {}) is None
    assert hide_passwords({"parameters": "db.password: x"}, [{"variable": "db.password"}], {}) is None
    assert hide_passwords({"parameters": "[]"}, DEFINITIONS, {}) is None
    untouched: Object = {"metadata": {}, "status": {"a": "b"}}
    redact_instance(untouched)
    assert untouched == {"metadata": {}, "status": {"a": "b"}}
