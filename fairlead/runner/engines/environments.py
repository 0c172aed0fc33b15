"""The environment of a workspace: a devcontainer.json that takes the place of that of the source. Pure.

Engines apply the same policy to it as to a file of a repository: it gives no permissions.
"""

from fairlead.core.body_errors import Malformed, TooManyValues
from fairlead.core.json import encode, parse_jsonc
from fairlead.runner.engines.contract import EngineError, Reason, WorkspaceSpec

CONTENTS = ("image", "build", "dockerFile", "dockerComposeFile")
"""Properties of which one says what the container is made of."""


def read_environment(spec: WorkspaceSpec, default_image: str) -> bytes:
    """The devcontainer.json of the environment, as JSON. `default_image` is for one that does not say what the
    container is made of, and may be empty. Raises EngineError."""
    if spec.dev_container_path:
        raise _invalid(
            f"the workspace has an environment, which takes the place of {spec.dev_container_path!r}; leave out that "
            "path, or remove spec.environmentRef"
        )
    try:
        configuration = parse_jsonc(spec.dev_container)
    except (Malformed, TooManyValues) as error:
        raise _invalid(f"the environment is no devcontainer.json: {error}") from None
    if not any(configuration.get(name) for name in CONTENTS):
        if not default_image:
            raise _invalid("the environment has neither an image nor a build, and the template names no image")
        configuration["image"] = default_image
    return encode(configuration)


def _invalid(message: str) -> EngineError:
    return EngineError(Reason.CONFIGURATION_INVALID, message)
