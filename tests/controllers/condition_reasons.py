"""Finds every reason that the code uses in conditions and Events, by parsing the code."""

import ast
import re
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType

import fairlead

PACKAGE = Path(fairlead.__file__).parent
REASON_ARGUMENT: Mapping[str, int] = {
    **{"condition": 2, "_set_unknown": 2, "Readiness": 2, "record_event": 2},
    **{"InstanceError": 0, "ResolutionError": 0, "NotConnected": 0, "TunnelError": 0, "_unscheduled_condition": 0},
    **{"mark_cluster_unknown": 1, "StillDeleting": 0, "run.done": 1, "RunReason": 0},
}
"""By the name of the called function: the index of the argument that is a reason."""
MENTION = re.compile(rf"\b(?:{'|'.join(REASON_ARGUMENT)})\s*\(|\breason\s*=")
"""What a file with a reason contains."""
CLUSTERS = "controllers.clusters."
"""The package of the controller of Clusters, whose reasons are documented in another table."""

INSTANCES = (
    "status",
    "prerequisites",
    "remote_errors",
    "remote_namespace",
    "drift",
    "virtual_cluster_access",
    "sleep_step",
)
MODULES_WITH_CONSTANTS = (
    *(f"controllers.instances.{module}" for module in INSTANCES),
    *("controllers.apps.status", "controllers.apps.targets", "controllers.helm.helm"),
    *("controllers.workspaces.readiness", "controllers.workspaces.scheduling", "controllers.workspaces.runners"),
    *("controllers.workspaces.runner_deployments", "controllers.workspaces.runner_rollout"),
)
CONSTANT_NAME, REASON_VALUE = (
    re.compile(r"_?[A-Z][A-Z_]*"),
    re.compile(r"([A-Z][a-z]+)+|VirtualCluster[A-Za-z]+", re.ASCII),
)


def iter_reasons() -> Iterator[tuple[str, str]]:
    """Pairs of a module name and a reason that the module uses as a literal or a constant."""
    for folder in ("controllers", "domain", "kinds", "upstream"):
        for path in sorted((PACKAGE / folder).rglob("*.py")):
            name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
            if not name.startswith(CLUSTERS):
                yield from ((name, reason) for reason in _reasons_in(path, name))


def _reasons_in(path: Path, name: str) -> Iterator[str]:
    module = import_module(f"fairlead.{name}".removesuffix(".__init__"))
    text = path.read_text()
    if not MENTION.search(text):  # parsing takes most of the time
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call):
            yield from _reasons_of_call(node, module)
        if isinstance(node, ast.ClassDef):  # exception classes with a reason of their own
            for statement in node.body:
                if isinstance(statement, ast.Assign) and [_name(target) for target in statement.targets] == ["reason"]:
                    yield from _literal_values(statement.value, module)


def _reasons_of_call(call: ast.Call, module: ModuleType) -> Iterator[str]:
    index = REASON_ARGUMENT.get(ast.unparse(call.func))
    if index is not None and index < len(call.args):
        yield from _literal_values(call.args[index], module)


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def _literal_values(node: ast.expr, module: ModuleType) -> Iterator[str]:
    if isinstance(node, ast.IfExp):
        yield from (*_literal_values(node.body, module), *_literal_values(node.orelse, module))
        return
    value = node.value if isinstance(node, ast.Constant) else getattr(module, _name(node), None)
    if isinstance(value, str) and value:
        yield value


def iter_constants() -> Iterator[tuple[str, str]]:
    """Pairs of a module name and the value of one of its constants: conditions and reasons."""
    for module_name in MODULES_WITH_CONSTANTS:
        module = import_module(f"fairlead.{module_name}")
        for name, value in vars(module).items():
            values = value if isinstance(value, tuple | frozenset) else (value,)
            for item in values:
                if CONSTANT_NAME.fullmatch(name) and isinstance(item, str) and REASON_VALUE.fullmatch(item):
                    yield module_name, item
