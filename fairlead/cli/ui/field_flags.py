"""Messages of the server in the words of the command line: flags instead of fields, projects instead of namespaces."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from fairlead.cli.ui.groups import RUNNING_COMMAND
from fairlead.cli.ui.session import UsageError
from fairlead.client import ApiStatusError, Client, ClientError
from fairlead.client.errors import Cause

FLAGS = {
    "metadata.name": "NAME",
    "spec.access": "--user",
    "spec.allowedClusters": "--allow-cluster",
    "spec.appRef.name": "NAME",
    "spec.appRef.version": "--version",
    "spec.clusterRef.cluster": "--cluster",
    "spec.clusterRef.namespace": "--namespace",
    "spec.clusterRef.virtualCluster": "--virtual-cluster",
    "spec.config.chart.name": "--chart",
    "spec.config.chart.repoURL": "--repo",
    "spec.config.chart.version": "--chart-version",
    "spec.config.manifests": "--manifests",
    "spec.config.values": "--values",
    "spec.defaultNamespace": "--default-namespace",
    "spec.description": "--description",
    "spec.displayName": "--display-name",
    "spec.email": "--email",
    "spec.endpoint": "--endpoint",
    "spec.environmentRef.name": "--environment",
    "spec.environmentRef.version": "--environment",
    "spec.members": "--member",
    "spec.overlapSeconds": "--overlap",
    "spec.owner.team": "--owner",
    "spec.owner.user": "--owner",
    "spec.parameters": "--parameter",
    "spec.presetRef.name": "--preset",
    "spec.presetRef.version": "--preset",
    "spec.recommendedApp": "--recommended-for",
    "spec.runnerRef.runner": "--runner",
    "spec.scope.clusters": "--cluster",
    "spec.scope.projects": "--project",
    "spec.scope.spaces": "--space",
    "spec.scope.virtualClusters": "--virtual-cluster",
    "spec.team": "--team",
    "spec.target.cluster.name": "--cluster",
    "spec.target.cluster.namespace": "--namespace",
    "spec.target.spaceInstance.name": "--space",
    "spec.target.virtualClusterInstance.name": "--vcluster",
    "spec.target.virtualClusterInstance.namespace": "--namespace",
    "spec.templateRef.name": "--template",
    "spec.templateRef.version": "--template",
    "spec.ttl": "--ttl",
    "spec.type": "--type",
    "spec.user": "--user",
    "spec.users": "--member",
}
"""The flags of the commands that create objects, by the fields that they set. A command has some of them."""

FIELD = re.compile(r"(?<![\w.])(?:metadata|spec)(?:\.\w+|\[[^\]]*\])+")


@contextmanager
def name_flags(client: Client) -> Iterator[None]:
    """Replaces the fields in errors and warnings about an object by the flags that they were set with."""
    print_warning = client.on_warning
    client.on_warning = lambda text: print_warning(replace_fields(text))
    try:
        yield
    except ApiStatusError as problem:
        causes = tuple(Cause(find_flag(each.field) or each.field, each.reason, each.message) for each in problem.causes)
        raise ApiStatusError(problem.code, problem.reason, replace_fields(problem.message), causes) from None
    finally:
        client.on_warning = print_warning


def replace_fields(text: str) -> str:
    """The text with flags instead of the fields that have one."""
    return FIELD.sub(lambda match: find_flag(match[0]) or match[0], text)


def find_flag(field: str) -> str:
    """The flag of a field, or of the field around it; empty if the running command has none.

    The key in a map is kept: `--parameter size`. The position in a list is not: users do not count flags.
    """
    path = field
    while path:
        if path in FLAGS:
            rest = field.removeprefix(path).lstrip(".")
            key = "" if re.match(r"\[\d+\]", rest) else re.sub(r"^\[([^\[\]]*)\]$", r"\1", rest)
            flag = _find_parameter(FLAGS[path])
            return f"{flag} {key}".rstrip() if flag else ""
        path = re.sub(r"(\.[^.\[]+|\[[^\]]*\]|^[^.\[]+)$", "", path)
    return ""


def _find_parameter(flag: str) -> str:
    """The flag, or the argument with its name, if the running command has it; otherwise empty."""
    command = RUNNING_COMMAND.get()
    if command is None:
        return flag
    for each in command.params:
        if flag in each.opts:
            return flag
        if each.param_type_name == "argument" and each.name == flag.lstrip("-").lower():
            return str(each.metavar)
    return ""


@contextmanager
def name_selector(selector: str) -> Iterator[None]:
    """Says that the label selector is invalid, if that is why a list fails."""
    try:
        yield
    except ApiStatusError as problem:
        if selector and problem.code == 400:
            advice = "use the format app=web, or 'env in (test, live)'"
            raise UsageError(f"--selector {selector!r}: {problem.message}; {advice}") from None
        raise


@contextmanager
def name_project(client: Client, project: str) -> Iterator[None]:
    """Says that a project does not exist, if that is why a request in its namespace fails."""
    try:
        yield
    except ApiStatusError as problem:
        if project and problem.code in (403, 404):
            require_project(client, project)
        raise


def require_project(client: Client, project: str) -> None:
    """Raises ClientError if the project does not exist. Does nothing if the user may not know."""
    try:
        client.get("projects", project)
    except ApiStatusError as problem:
        if problem.code == 404:
            advice = "`fairlead project list` shows the projects"
            raise ClientError(f"there is no project {project!r}; {advice}") from None
