"""Finds the imports of JavaScript modules, so that a page can preload all modules that its first one needs.

Only static imports count. A module that is imported with `import()` is loaded when it is needed.
"""

import posixpath
import re
from collections.abc import Iterator, Mapping

_NAMES = r"[\w$\s{},*]+?\s*from\s*"
_find_imports = re.compile(
    rf"""^[ \t]*(?:import\s*(?:{_NAMES})?|export\s*{_NAMES})["'](\.{{1,2}}/[^"'\n]+)["']""", re.MULTILINE | re.ASCII
).findall


def list_imports(path: str, source: str) -> Iterator[str]:
    """The paths of the files that a module imports statically, relative to the same folder as `path`."""
    for address in _find_imports(source):
        yield posixpath.normpath(posixpath.join(posixpath.dirname(path), address))


def find_static_graph(entry: str, sources: Mapping[str, bytes]) -> tuple[str, ...]:
    """The module `entry` and all files that it imports directly or indirectly, in the order in which they are found.

    Raises ValueError if a module imports a file that is not in `sources`.
    """
    found = [entry]
    for path in found:
        if not path.endswith(".js"):
            continue
        for imported in list_imports(path, sources[path].decode()):
            if imported not in sources:
                raise ValueError(f"{path} imports {imported}, which does not exist")
            if imported not in found:
                found.append(imported)
    return tuple(found)
