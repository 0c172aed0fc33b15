"""Keys of a keyboard, as the DevTools protocol describes them."""

from typing import Any

MODIFIERS = {"Alt": 1, "Control": 2, "Meta": 4, "Shift": 8}
NAMED_KEYS = {
    "Backspace": (8, ""),
    "Tab": (9, ""),
    "Enter": (13, "\r"),
    "Escape": (27, ""),
    "Space": (32, " "),
    "PageUp": (33, ""),
    "PageDown": (34, ""),
    "End": (35, ""),
    "Home": (36, ""),
    "ArrowLeft": (37, ""),
    "ArrowUp": (38, ""),
    "ArrowRight": (39, ""),
    "ArrowDown": (40, ""),
    "Delete": (46, ""),
    **{f"F{number}": (111 + number, "") for number in range(1, 13)},
}
"""The code on Windows, which pages see as `keyCode`, and the text that the key types."""


def describe_key(combination: str) -> dict[str, Any]:
    """The parameters of `Input.dispatchKeyEvent` for a key such as `j`, `?`, `Tab` or `Control+Shift+k`."""
    *held, key = combination.split("+") if combination != "+" else ["+"]
    modifiers = sum(MODIFIERS[name] for name in held)
    if key in NAMED_KEYS:
        number, text = NAMED_KEYS[key]
        name, code = (" ", "Space") if key == "Space" else (key, key)
    else:
        if len(key) != 1:
            raise ValueError(f"unknown key {key}")
        number, text, name = ord(key.upper()), key, key
        code = f"Key{key.upper()}" if key.isalpha() else f"Digit{key}" if key.isdigit() else ""
    typed = {} if modifiers & ~MODIFIERS["Shift"] or not text else {"text": text}
    return {"modifiers": modifiers, "key": name, "code": code, "windowsVirtualKeyCode": number, **typed}
