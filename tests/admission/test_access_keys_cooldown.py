"""The label with the interval between two records of a key's last use."""

import pytest

from fairlead.admission.access_keys import restrict_cooldown_label
from fairlead.core.errors import Forbidden, Invalid
from fairlead.core.objects import Object
from fairlead.domain.key_lifetime import COOLDOWN_LABEL
from fairlead.registry.kind import MANAGEMENT_GROUP as GROUP
from fairlead.registry.write_options import WriteOptions
from tests.harness.auth import ADA, ROOT, open_auth

KIND = "OwnedAccessKey"


async def test_only_administrators_set_the_cooldown_of_last_used_updates() -> None:
    async with open_auth(rules=(restrict_cooldown_label(GROUP),)) as auth:
        with pytest.raises(
            Forbidden, match=f"only administrators may set the label {COOLDOWN_LABEL}; leave it out"
        ) as error:
            await auth.create_labelled_key("k", ADA, {COOLDOWN_LABEL: "60"})
        assert error.value.refused_by == "admission/restrict-cooldown-label"
        await auth.create_labelled_key("k", ROOT, {COOLDOWN_LABEL: "600"}, user="ada")
        await auth.update_spec(KIND, "k", ADA, displayName="as it was")

        def shorten_cooldown(key: Object) -> None:
            key["metadata"]["labels"][COOLDOWN_LABEL] = "61"

        with pytest.raises(Forbidden):
            await auth.api.patch(KIND, "k", shorten_cooldown, WriteOptions(ADA, "tests"))

        def remove_cooldown(key: Object) -> None:
            del key["metadata"]["labels"][COOLDOWN_LABEL]

        await auth.api.patch(KIND, "k", remove_cooldown, WriteOptions(ADA, "tests"))


@pytest.mark.parametrize("value", ["1", "59", "0", "soon", "", "9999999999"])
async def test_a_cooldown_below_one_minute_is_invalid(value: str) -> None:
    async with open_auth(rules=(restrict_cooldown_label(GROUP),)) as auth:
        with pytest.raises(Invalid) as error:
            await auth.create_labelled_key("k", ROOT, {COOLDOWN_LABEL: value}, user="ada")
        (problem,) = error.value.details.problems
        assert problem.field == f"metadata.labels[{COOLDOWN_LABEL}]" and "between 60 and" in problem.message
