"""registry/validate.py: base64 in built-in kinds, which Kubernetes decodes, and in others, which it does not."""

import pytest

from fairlead.registry import schema as schemas
from fairlead.registry.validate import Validator

SCHEMA = schemas.obj("", data=schemas.string(format="byte"))


@pytest.mark.parametrize("text", ["", "YQ==", "YR==", "Y\nQ==\n", "YQ=\r\n=", "\n"])
def test_base64_of_built_in_kinds_may_have_line_breaks(text: str) -> None:
    assert Validator(SCHEMA, zero_nulls=True).validate({"data": text}).problems == []
    assert bool(Validator(SCHEMA).validate({"data": text}).problems) == ("\n" in text)


@pytest.mark.parametrize("text", ["YQ", "YQ=", "AAAA==", "Y Q==", "Y\tQ==", "-_-_", "YWFh\nY", "YQ==YQ=="])
def test_other_text_is_not_base64(text: str) -> None:
    for is_built_in in (True, False):
        [problem] = Validator(SCHEMA, zero_nulls=is_built_in).validate({"data": text}).problems
        assert (problem.field, problem.reason) == ("data", "FieldValueInvalid")
