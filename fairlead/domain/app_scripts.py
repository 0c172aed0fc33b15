"""Scripts of Apps (`bash`): what one consists of, and which are accepted. Pure.

Nothing of a script is a template: who installs the App sets its parameters, and a value inside the text of a script
would be a part of the program, with the permissions that the author of the App has given to it. So the script gets each
parameter in an environment variable.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from fairlead.core.objects import Object
from fairlead.domain.template_resolution import find_parameters

MAX_SCRIPT_BYTES = 256 * 1024
"""Of a script: the record of a release has it, too, and a Secret of Kubernetes at most 1 MiB."""
MAX_IMAGE_LENGTH = 512
MAX_VARIABLE_BYTES = 96 * 1024
"""Of the value of one parameter: Linux starts no program with a variable of more than 128 KiB."""
MAX_VARIABLES_BYTES = 256 * 1024
VARIABLE_PREFIX = "PARAMETER_"
_image_pattern = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]*", re.ASCII)
_role_pattern = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,252}", re.ASCII)
_not_in_variable_pattern = re.compile(r"[^A-Z0-9_]", re.ASCII)


@dataclass(frozen=True, slots=True)
class AppScript:
    """`variables` are environment variables with the values of the parameters."""

    text: str = field(repr=False)
    image: str
    cluster_role: str
    pod_security_context: Object
    security_context: Object
    variables: Mapping[str, str] = field(repr=False)

    @property
    def is_privileged(self) -> bool:
        """Whether it asks for more than an App may have that administrators do not trust."""
        return bool(self.cluster_role or self.pod_security_context or self.security_context)


def has_script(config: Any) -> bool:
    """Whether the content of an App is a script."""
    return isinstance(config, dict) and bool((config.get("bash") or {}).get("script"))


def find_script_problems(bash: Any) -> Iterator[tuple[str, str]]:
    """The fields of `bash` that cannot be used, each with the reason. An empty script is none."""
    requested = bash if isinstance(bash, dict) else {}
    script = requested.get("script") or ""
    if not script:
        return
    if len(script.encode()) > MAX_SCRIPT_BYTES:
        yield "script", f"may not be more than {MAX_SCRIPT_BYTES} bytes; put the rest into the image"
    if "\0" in script:
        yield "script", "must be text, without NUL characters"
    for name in sorted(find_parameters(script))[:1]:
        variable = variable_name(name)
        yield "script", f'has placeholders, which are not replaced in scripts; use "${variable}" for {name}'
    image = requested.get("image") or ""
    if not image:
        yield "image", "must be set to an image with bash, or with what the first line of the script names"
    elif len(image) > MAX_IMAGE_LENGTH or not _image_pattern.fullmatch(image):
        yield "image", "must be the name of an image, such as registry.example.com/tools:1.2, without placeholders"
    role = requested.get("clusterRole") or ""
    if role and not _role_pattern.fullmatch(role):
        yield "clusterRole", "must be the name of a ClusterRole, without placeholders"


def variable_name(parameter: str) -> str:
    """The environment variable for a parameter: `PARAMETER_IMAGE_TAG` for `image.tag`."""
    return VARIABLE_PREFIX + _not_in_variable_pattern.sub("_", parameter.upper())


def build_variables(values: Mapping[str, str]) -> tuple[Mapping[str, str], str]:
    """The environment variables for the values of parameters, and why that is not possible; empty if it is."""
    variables: dict[str, str] = {}
    for parameter, value in values.items():
        name = variable_name(parameter)
        if name in variables:
            return {}, f"two of its parameters have the environment variable {name}; rename one of them"
        if "\0" in value or len(value.encode()) > MAX_VARIABLE_BYTES:
            return {}, f'the parameter "{parameter}" has a NUL character, or more than {MAX_VARIABLE_BYTES} bytes'
        variables[name] = value
    if sum(len(each.encode()) for each in variables.values()) > MAX_VARIABLES_BYTES:
        return {}, f"its parameters have more than {MAX_VARIABLES_BYTES} bytes in all"
    return variables, ""
