"""Values of parameters of the type password: kept, rendered, and never shown, for every kind of instance."""

from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest

from fairlead.admission.templates import check_parameters
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
from tests.harness.registry import ADA, NAMESPACE, RegistryFixture, as_ada, open_registry

CANARY = 'can\'ary "7f3a" \\ ü'
PLAIN = "canary-7f3a"
DEFINITIONS = [{"variable": "db.password", "type": "password"}, {"variable": "size"}]


@pytest.fixture
async def api() -> AsyncIterator[RegistryFixture]:
    async with open_registry(rules=(check_parameters(GROUP),)) as made:
        for kind in TEMPLATES.values():
            note = {"note": "{{ parameters.db.password }}", "other": "{{ parameters.db.password | quote }}"}
            template = {"instanceTemplate": {"metadata": {"annotations": note}}}
            for name in ("t", "other"):
                await made.create(kind, name, spec={"template": template, "parameters": DEFINITIONS})
        yield made


async def make(api: RegistryFixture, kind: str, text: str, **spec: Any) -> Object:
    return await api.create(kind, "one", spec={"templateRef": {"name": "t"}, "parameters": text, **spec})


def shown(api: RegistryFixture, kind: str) -> bytes:
    entry = api.of(kind).get_cached(NAMESPACE, "one")
    assert entry is not None
    return entry.body


def stored(api: RegistryFixture, kind: str) -> Object:
    entry = api.of(kind).get_cached(NAMESPACE, "one")
    assert entry is not None
    return decode(entry)


def value(api: RegistryFixture, kind: str) -> str | None:
    found: str | None = (get_path(stored(api, kind), "spec.parameterSecrets") or {}).get("db.password")
    return found


def rendered(api: RegistryFixture, kind: str) -> Object:
    entry = api.of(TEMPLATES[kind]).get_cached("", "t")
    assert entry is not None
    result = render_definition(stored(api, kind), find_definition(stored(api, kind), decode(entry)))
    found: Object = get_path(result, "instanceTemplate.metadata.annotations")
    return found


@every_kind
@pytest.mark.parametrize("text", [f"# mine\ndb.password: {PLAIN}\nsize: 1\n", f"size: 1\ndb: {{password: {PLAIN}}}\n"])
async def test_a_password_is_taken_out_of_the_text_and_still_rendered(
    api: RegistryFixture, kind: str, text: str
) -> None:
    answer = await make(api, kind, text)
    assert PLAIN not in str(answer) and PLAIN.encode() not in shown(api, kind)
    assert answer["spec"]["parameters"] == text.replace(PLAIN, "<hidden>")
    assert "parameterSecrets" not in answer["spec"]
    assert rendered(api, kind) == {"note": PLAIN, "other": f'"{PLAIN}"'}


@every_kind
@pytest.mark.parametrize("secret", [CANARY, "size", "1", "a: b", "12345", "<hidden"])
async def test_whatever_the_password_is_nothing_else_changes(api: RegistryFixture, kind: str, secret: str) -> None:
    text = f"size: 1\ndb.password: {orjson.dumps(secret).decode()}\n"
    await make(api, kind, text)
    assert value(api, kind) == secret and rendered(api, kind)["note"] == secret
    assert get_path(stored(api, kind), "spec.parameters").count("<hidden>") == 1


@every_kind
async def test_a_value_can_be_sent_beside_the_text(api: RegistryFixture, kind: str) -> None:
    answer = await make(api, kind, "size: 1", parameterSecrets={"db.password": PLAIN})
    assert PLAIN not in str(answer) and rendered(api, kind)["note"] == PLAIN


async def change(api: RegistryFixture, kind: str, **spec: Any) -> None:
    def edit(obj: Object) -> None:
        obj["spec"] = {**obj["spec"], **spec}

    await api.patch(kind, "one", edit)


@every_kind
async def test_the_placeholder_stands_for_the_value_that_was_given_before(api: RegistryFixture, kind: str) -> None:
    await make(api, kind, f"db.password: {PLAIN}\nsize: 1")
    await change(api, kind, parameters="size: 2\ndb.password: <hidden>\n", displayName="new")
    assert value(api, kind) == PLAIN and rendered(api, kind)["note"] == PLAIN
    await change(api, kind, parameters="size: 2\ndb.password: other-value\n")
    assert value(api, kind) == "other-value" and b"other-value" not in shown(api, kind)
    with pytest.raises(Invalid, match="must be a single value"):
        await change(api, kind, parameters="db.password: [a, b]")
    await change(api, kind, parameters="size: 2")
    assert value(api, kind) is None and rendered(api, kind)["note"] == ""


@every_kind
async def test_a_placeholder_for_nothing_is_refused(api: RegistryFixture, kind: str) -> None:
    with pytest.raises(Invalid) as caught:
        await make(api, kind, "db.password: <hidden>")
    assert [each.field for each in caught.value.details.problems] == ["spec.parameters[db.password]"]


@every_kind
async def test_another_template_does_not_get_the_password(api: RegistryFixture, kind: str) -> None:
    await make(api, kind, f"db.password: {PLAIN}")
    with pytest.raises(Invalid, match="sent to another template does not count"):
        await change(api, kind, templateRef={"name": "other"})
    await change(api, kind, templateRef={"name": "other"}, parameters="size: 1")
    assert value(api, kind) is None
    with pytest.raises(Invalid):
        await change(api, kind, templateRef={"name": "t"}, parameters="db.password: <hidden>")


@every_kind
async def test_what_kubectl_writes_down_has_no_password_either(api: RegistryFixture, kind: str) -> None:
    body = api.body(kind, "one", spec={"templateRef": {"name": "t"}})
    body["metadata"]["namespace"] = NAMESPACE
    body["spec"]["parameters"] = f"db.password: {orjson.dumps(CANARY).decode()}"
    body["metadata"]["annotations"] = {LAST_APPLIED: orjson.dumps(body).decode()}
    await api.submit(kind, body, as_ada())
    applied = get_path(stored(api, kind), "metadata.annotations")[LAST_APPLIED]
    assert "7f3a" not in applied and "<hidden>" in applied and b"7f3a" not in shown(api, kind)


@every_kind
async def test_the_rendered_template_and_messages_show_no_password(api: RegistryFixture, kind: str) -> None:
    await make(api, kind, f"db.password: {orjson.dumps(CANARY).decode()}")
    field = INSTANCES[api.of(kind).kind.plural].rendered_field
    result = {"instanceTemplate": {"metadata": {"annotations": rendered(api, kind)}}}

    def report(old: Object) -> Object:
        told = {**old.get("status", {}), field: result, "message": f"cannot read {CANARY}"}
        return {**old, "status": record_rendered_secrets(old, told)}

    await api.of(kind).modify(NAMESPACE, "one", report, server_write_options("status"))
    assert b"7f3a" not in shown(api, kind)
    assert get_path(stored(api, kind), f"status.{field}") == result

    def back(old: Object) -> Object:
        return {**old, "status": {**old["status"], "reason": "Seen"}}

    await api.of(kind).modify(NAMESPACE, "one", back, WriteOptions(ADA, "tests", subresource="status"))
    assert get_path(stored(api, kind), f"status.{field}") == result, "what was shown and comes back changes nothing"
    assert get_path(stored(api, kind), "status.reason") == "Seen"
    await change(api, kind, parameters="db.password: another")
    assert b"7f3a" not in shown(api, kind), "while the template is still rendered with the value from before"


@every_kind
async def test_texts_of_parameters_are_sealed_even_before_their_template_is_there(
    api: RegistryFixture, kind: str
) -> None:
    await make(api, kind, f"db.password: {PLAIN}", templateRef={"name": "missing"})
    resource = api.of(kind)
    entry = resource.get_cached(NAMESPACE, "one")
    assert entry is not None
    assert SensitiveFieldIndex(api.registry.catalog).may_contain(entry.key, entry.full_body or entry.body)


async def test_a_parameter_that_is_no_password_any_more_stays_hidden(api: RegistryFixture) -> None:
    await make(api, "SpaceInstance", f"db.password: {PLAIN}")

    def retype(template: Object) -> None:
        template["spec"]["parameters"] = [{"variable": "db.password", "type": "string"}]

    await api.patch("SpaceTemplate", "t", retype)
    await change(api, "SpaceInstance", displayName="again", parameters="db.password: <hidden> ")
    assert value(api, "SpaceInstance") == PLAIN and PLAIN.encode() not in shown(api, "SpaceInstance")


CHART_PARAMETERS = [
    {"variable": "host", "defaultValue": "a.example.com"},
    {"variable": "key"},
    {"variable": "pass", "type": "password"},
]


@pytest.fixture
async def deployed(api: RegistryFixture) -> RegistryFixture:
    """A virtual cluster whose chart comes from where its parameters say, with a password of theirs."""
    chart = {"name": "c", "repo": "https://{{ parameters.host }}", "username": "u", "password": "{{ parameters.pass }}"}
    values = "{{ parameters.key }}: x\nfixed: y\n"
    definition = {"template": {"helmRelease": {"chart": chart, "values": values}}, "parameters": CHART_PARAMETERS}
    spec = {**definition, "versions": [{"version": "1.0.0", **definition}]}
    await api.create("VirtualClusterTemplate", "chart", spec=spec)
    spec = {"templateRef": {"name": "chart"}, "parameters": f"key: k\npass: {PLAIN}\n"}
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
            {"parameters": HIDDEN.replace("k\n", "fixed\n", 1) + EVIL},  # a key twice: it cannot be rendered
            {"parameters": HIDDEN + EVIL},
        ],
    ],
    ids=["at once", "another version", "no such version", "what cannot be rendered"],
)
async def test_other_parameters_do_not_send_a_hidden_password_elsewhere(
    deployed: RegistryFixture, steps: list[Object]
) -> None:
    kind = "VirtualClusterInstance"
    with pytest.raises(Invalid, match=r"spec\.parameters\[pass\]: Required value: must be sent again"):
        for spec in steps:
            await change(deployed, kind, **spec)
    sent = {**steps[-1], "parameters": HIDDEN.replace("<hidden>", "mine") + EVIL}
    await change(deployed, kind, **sent)
    assert hidden_values(stored(deployed, kind)) == {"pass": "mine"}


async def test_a_hidden_password_is_kept_while_it_goes_where_it_went(deployed: RegistryFixture) -> None:
    kind = "VirtualClusterInstance"
    for text in (HIDDEN.replace("k\n", "other\n", 1), HIDDEN + "host: a.example.com\n"):
        await change(deployed, kind, parameters=text)
        assert hidden_values(stored(deployed, kind)) == {"pass": PLAIN}


WRITTEN = ["pw: {0}\n", "pw: '{0}'\n", 'pw: "x{0}y"\n', "pw: |\n  a\n  b {0}\n", "a: {0}\nb: \U0001f600\n", "{0}: x\n"]


@pytest.mark.parametrize("text", WRITTEN)
@pytest.mark.parametrize(
    "secret", ["\U0001f600word", "x\ufeffy", "zz\x80z", "0x1F2E", "1e9", "a'b\"c\\d", "ü\xa0", "0777"]
)
def test_a_password_is_hidden_in_whichever_way_yaml_writes_it(text: str, secret: str) -> None:
    template = {"objects": text.replace("{0}", "{{ parameters.p }}")}
    instance = {"metadata": {}, "spec": {"parameterSecrets": {"p": secret}}, "status": {}}
    instance["status"] = {
        "space": render_definition({"spec": {"parameters": "p: <hidden>", **instance["spec"]}}, definition(template))
    }
    redact_instance(instance)
    assert "<hidden>" in instance["status"]["space"]["objects"]


def definition(template: Object) -> TemplateDefinition:
    return TemplateDefinition(template, [{"variable": "p", "type": "password"}])


def test_a_short_password_leaves_words_and_moments_as_they_are() -> None:
    """Programs go by them: a typed client could not read any list with such an instance in it."""
    moment = "2026-11-16T02:00:00Z"
    condition = {"type": "Ready", "status": "True", "reason": "e2", "lastTransitionTime": moment, "message": "e2"}
    status: Object = {"phase": "Ready", "message": "e2", "conditions": [condition], "kubernetes": {"at": moment}}
    instance = {"metadata": {}, "spec": {"parameterSecrets": {"a": "2", "b": "e"}}, "status": status}
    redact_instance(instance)
    assert instance["status"] == {
        "phase": "Ready",
        "message": "<hidden>",
        "conditions": [{**condition, "message": "<hidden>"}],
        "kubernetes": {"at": moment},
    }


def test_passwords_of_a_letter_do_not_multiply_a_text() -> None:
    """Each of these is a part of the placeholder."""
    secrets = dict(zip("abcdefg", "<hiden>", strict=True))
    instance = {"metadata": {}, "spec": {"parameterSecrets": secrets}, "status": {"message": "<x" * 1_000}}
    redact_instance(instance)
    assert instance["status"] == {"message": "<hidden>x" * 1_000}
    spec = {"parameters": "".join(f"{name}: '{letter}'\n" for name, letter in secrets.items()) + "# " + "<x" * 1_000}
    hidden = hide_passwords(spec, [{"variable": name, "type": "password"} for name in secrets], {})
    assert hidden is not None
    assert len(hidden["parameters"]) <= 8 * len(spec["parameters"])


def test_nothing_is_hidden_where_there_is_nothing_to_hide() -> None:
    assert hide_passwords({"parameters": "size: 1"}, DEFINITIONS, {}) is None
    assert hide_passwords({"parameters": "db.password: x"}, [{"variable": "db.password"}], {}) is None
    assert hide_passwords({"parameters": "[]"}, DEFINITIONS, {}) is None
    untouched: Object = {"metadata": {}, "status": {"a": "b"}}
    redact_instance(untouched)
    assert untouched == {"metadata": {}, "status": {"a": "b"}}
