"""Every reason that the code gives in conditions and Events, found by reading the code."""

import ast
import re
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType

import fairlead

PACKAGE = Path(fairlead.__file__).parent
REASON_AT: Mapping[str, int] = {
    **{"condition": 2, "_set_unknown": 2, "Readiness": 2, "record_event": 2},
    **{"InstanceError": 0, "ResolutionError": 0, "NotConnected": 0, "_unscheduled_condition": 0},
    **{"mark_cluster_unknown": 1},
}
"""By what is called: which argument is a reason."""
CLUSTERS = "controllers.clusters."
"""The package of the controller of Clusters, whose reasons are in a table of their own."""

INSTANCES = ("status", "prerequisites", "remote_errors", "remote_namespace", "drift", "vcluster_release")
WITH_CONSTANTS = (
    *(f"controllers.instances.{each}" for each in INSTANCES),
    *("controllers.helm.helm", "controllers.workspaces.scheduling", "controllers.workspaces.runners"),
)
CONSTANT, WORD = re.compile(r"_?[A-Z][A-Z_]*"), re.compile(r"([A-Z][a-z]+)+|VirtualCluster[A-Za-z]+", re.ASCII)


def reasons() -> Iterator[tuple[str, str]]:
    """The name of a module and a reason that it gives, as far as that is a text or the name of one."""
    for folder in ("controllers", "domain", "kinds", "upstream"):
        for path in sorted((PACKAGE / folder).rglob("*.py")):
            name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
            if not name.startswith(CLUSTERS):
                yield from ((name, reason) for reason in _reasons_in(path, name))


def _reasons_in(path: Path, name: str) -> Iterator[str]:
    module = import_module(f"fairlead.{name}".removesuffix(".__init__"))
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            yield from _given(node, module)
        if isinstance(node, ast.ClassDef):  # errors that say their reason themselves
            for each in node.body:
                if isinstance(each, ast.Assign) and [_name(target) for target in each.targets] == ["reason"]:
                    yield from _texts(each.value, module)


def _given(call: ast.Call, module: ModuleType) -> Iterator[str]:
    at = REASON_AT.get(_name(call.func))
    if at is not None and at < len(call.args):
        yield from _texts(call.args[at], module)


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def _texts(node: ast.expr, module: ModuleType) -> Iterator[str]:
    if isinstance(node, ast.IfExp):
        yield from (*_texts(node.body, module), *_texts(node.orelse, module))
        return
    found = node.value if isinstance(node, ast.Constant) else getattr(module, _name(node), None)
    if isinstance(found, str) and found:
        yield found


def constants() -> Iterator[tuple[str, str]]:
    """The name of a module of controllers of instances, and a word that it calls by a name: conditions and reasons."""
    for module_name in WITH_CONSTANTS:
        module = import_module(f"fairlead.{module_name}")
        for name, value in vars(module).items():
            texts = value if isinstance(value, tuple | frozenset) else (value,)
            for text in texts:
                if CONSTANT.fullmatch(name) and isinstance(text, str) and WORD.fullmatch(text):
                    yield module_name, text
