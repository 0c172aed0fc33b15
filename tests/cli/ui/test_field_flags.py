"""fairlead.cli.ui.field_flags: errors with flags instead of fields."""

import pytest

from fairlead.cli.ui.field_flags import name_flags, replace_fields
from fairlead.client import ApiStatusError, Client
from fairlead.client.errors import Cause


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('spec.templateRef.name: Invalid value: "x"', '--template: Invalid value: "x"'),
        ("the template in spec.templateRef.name does not exist", "the template in --template does not exist"),
        ("spec.parameters[size]: Required value", "--parameter size: Required value"),
        ("spec.members[0].name: Required value", "--member: Required value"),
        ('spec.scope.projects[0].project: there is no project "x"', '--project: there is no project "x"'),
        ("set spec.unusable of one to false", "set spec.unusable of one to false"),
        (r"spec.parameters[a\1]: Required value", r"--parameter a\1: Required value"),
    ],
)
def test_fields_are_replaced_by_the_flags_that_set_them(text: str, expected: str) -> None:
    assert replace_fields(text) == expected


def test_an_error_keeps_its_code_and_names_flags_in_its_causes() -> None:
    cause = Cause("spec.clusterRef.cluster", "FieldValueInvalid", "no such cluster")
    client = Client("https://127.0.0.1:1")
    with pytest.raises(ApiStatusError) as caught, name_flags(client):
        raise ApiStatusError(422, "Invalid", "spec.clusterRef.cluster: no such cluster", (cause,))
    assert (caught.value.code, caught.value.message) == (422, "--cluster: no such cluster")
    assert caught.value.causes[0].field == "--cluster"


def test_warnings_name_flags_while_an_object_is_created_and_not_later() -> None:
    client, printed = Client("https://127.0.0.1:1"), list[str]()
    client.on_warning = printed.append
    with name_flags(client):
        client.on_warning("spec.owner.user: there is no user")
    client.on_warning("spec.owner.user: there is no user")
    assert printed == ["--owner: there is no user", "spec.owner.user: there is no user"]
