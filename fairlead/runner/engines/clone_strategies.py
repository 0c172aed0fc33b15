"""Clones of a part of a repository's history, for all engines: `gitCloneStrategy` of a template."""

from collections.abc import Mapping

from fairlead.runner.engines.contract import EngineError, GitSource, Reason

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
