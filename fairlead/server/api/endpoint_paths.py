"""Paths of endpoints with a name in them: `/auth/<connector>/login` is registered as `/auth/*/login`."""

NAMED_PREFIX = "/auth/"


def endpoint_pattern(path: str) -> str:
    """The path with `*` for its name, or the path itself if it has none."""
    if not path.startswith(NAMED_PREFIX):
        return path
    name, slash, rest = path.removeprefix(NAMED_PREFIX).partition("/")
    return f"{NAMED_PREFIX}*/{rest}" if name and slash and rest and "/" not in rest else path


def endpoint_name(path: str) -> str:
    """The name in a path of this form."""
    return path.removeprefix(NAMED_PREFIX).partition("/")[0]
