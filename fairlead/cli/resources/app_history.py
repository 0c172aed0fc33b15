"""The history of an installed app: describes its revisions, and finds the one that a rollback returns to."""

from collections.abc import Sequence
from typing import Any

from fairlead.cli.resources.instance import decode_values
from fairlead.cli.ui.describe import find_condition
from fairlead.client import ClientError
from fairlead.core.objects import Object, format_scalar, get_path


def find_revision(instance: Object, revision: int | None) -> Object:
    """The entry of the history to return to: by default the newest that differs from the spec. Raises ClientError."""
    history: list[Object] = get_path(instance, "status.history") or []
    known = ", ".join(str(each.get("revision")) for each in history) or "none"
    if revision is None:
        current = _current_content(instance, history)
        entry = next((each for each in history if _content_of(each) != current), None)
        if entry is None:
            raise ClientError(f"there is no earlier revision with another version or other parameters (known: {known})")
    else:
        entry = next((each for each in history if each.get("revision") == revision), None)
        if entry is None:
            raise ClientError(f"revision {revision} is not in the history (known: {known}); choose one of those")
    if entry.get("hasAllParameters") is False:
        raise ClientError(
            f"the parameters of revision {entry.get('revision')} were too long to be kept; set them again"
        )
    return entry


def _current_content(instance: Object, history: Sequence[Object]) -> tuple[Any, Any]:
    """What the spec requests. If that is deployed, it is the newest entry, which has the version that a pattern in the
    spec stands for."""
    deployed = find_condition(instance, "Deployed")
    is_current = deployed.get("observedGeneration") == get_path(instance, "metadata.generation")
    if history and is_current and deployed.get("status") == "True":
        return _content_of(history[0])
    return get_path(instance, "spec.appRef.version") or "", get_path(instance, "spec.parameters") or ""


def _content_of(entry: Object) -> tuple[Any, Any]:
    return entry.get("appVersion") or "", entry.get("parameters") or ""


def describe_entry(entry: Object) -> str:
    return f"{describe_content(entry)}; {entry.get('chart')}, at {entry.get('deployedAt')}"


def describe_content(entry: Object) -> str:
    """The revision with its version, and its parameters in the format of --set."""
    version = f" of version {entry['appVersion']}" if entry.get("appVersion") else ""
    return f"revision {entry.get('revision')}{version} {_describe_parameters(entry)}"


def _describe_parameters(entry: Object) -> str:
    if entry.get("hasAllParameters") is False:
        return "with parameters that were too long to be kept"
    values = decode_values(entry.get("parameters") or "", "status.history")
    texts = (f"{name}={' '.join(format_scalar(value).split())}" for name, value in values.items())
    return f"with {', '.join(texts)}" if values else "without parameters"
