"""What all engines read alike of the specification of a workspace. Pure.

The environment is a devcontainer.json that takes the place of that of the source. Engines apply the same policy to it
as to a file of a repository: it gives no permissions. `gitCloneStrategy` of a template leaves out a part of the history
of a repository.
"""

from collections.abc import Mapping

from fairlead.core.body_errors import Malformed, TooManyValues
from fairlead.core.json import encode, parse_jsonc
from fairlead.runner.engines.contract import EngineError, GitSource, Reason, WorkspaceSpec, invalid_configuration

CONTENTS = ("image", "build", "dockerFile", "dockerComposeFile")
"""Properties of which one says what the container is made of."""


def read_environment(spec: WorkspaceSpec, default_image: str) -> bytes:
    """The devcontainer.json of the environment, as JSON. `default_image` is for one that does not say what the
    container is made of, and may be empty. Raises EngineError."""
    if spec.dev_container_path:
        raise invalid_configuration(
            f"the workspace has an environment, which takes the place of {spec.dev_container_path!r}; leave out that "
            "path, or remove spec.environmentRef"
        )
    try:
        configuration = parse_jsonc(spec.dev_container)
    except (Malformed, TooManyValues) as error:
        raise invalid_configuration(f"the environment is no devcontainer.json: {error}") from None
    if not any(configuration.get(name) for name in CONTENTS):
        if not default_image:
            raise invalid_configuration(
                "the environment has neither an image nor a build, and the template names no image"
            )
        configuration["image"] = default_image
    return encode(configuration)


CLONE_STRATEGIES: Mapping[str, tuple[str, ...]] = {
    "": (),
    "blobless": ("--filter=blob:none",),
    "treeless": ("--filter=tree:0",),
    "shallow": ("--depth=1",),
}
"""The options of git for each strategy that a template may name."""
_FULL_COMMIT_LENGTHS = (40, 64)


def clone_options(source: GitSource, strategy: str) -> tuple[str, ...]:
    """The options of git that leave out a part of the history. Raises EngineError for an unknown strategy.

    A shallow clone contains no other commit, and a server sends one only by its full name. So with a shortened name,
    everything is cloned.
    """
    if strategy not in CLONE_STRATEGIES:
        known = ", ".join(filter(None, CLONE_STRATEGIES))
        message = f"{strategy!r} is no clone strategy; set gitCloneStrategy of the template to one of {known}"
        raise EngineError(Reason.SOURCE_REFUSED, message)
    if strategy == "shallow" and source.commit and len(source.commit) not in _FULL_COMMIT_LENGTHS:
        return ()
    return CLONE_STRATEGIES[strategy]
