"""The settings that users have stored in their profile (`custom`), and what the server itself reads of them. Pure."""

from typing import Any

import orjson

from fairlead.core.objects import Object, annotations_of

SETTINGS_ANNOTATION = "service.sh/profile"
"""The annotation of a User with its settings as JSON."""
DOTFILES = "dotfiles"
"""The setting with the URL of a repository, for the workspaces of the user."""
MAX_URL = 2048


def read_settings(user: Object) -> Any:
    text = annotations_of(user).get(SETTINGS_ANNOTATION, "")
    try:
        value = orjson.loads(text) if text else {}
    except orjson.JSONDecodeError:  # clients can also set the annotation directly
        return {}
    return value if isinstance(value, dict) else {}


def find_dotfiles(user: Object) -> str:
    """The URL of the user's dotfiles; empty if there is none."""
    url = read_settings(user).get(DOTFILES)
    return url if isinstance(url, str) and len(url) <= MAX_URL else ""
