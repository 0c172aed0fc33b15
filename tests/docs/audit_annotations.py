"""The annotations that the code gives to audit events."""

import re
from importlib import import_module
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "fairlead"
CONSTANT = re.compile(r"\b[A-Z_]+_ANNOTATION\b")


def find_audit_annotations() -> set[str]:
    """The values of the constants in modules that build audit events, or add annotations to the event of a request."""
    found: set[str] = set()
    for path in PACKAGE.rglob("*.py"):
        source = path.read_text()
        if path.parent == PACKAGE / "server" / "audit" or "call.annotations" in source:
            name = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
            module = import_module(name)
            found |= {getattr(module, each) for each in CONSTANT.findall(source) if hasattr(module, each)}
    return found
