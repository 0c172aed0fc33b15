"""The chart of an App, and whether it may be deployed. Pure."""

from collections.abc import Mapping, Sequence

from fairlead.controllers.helm.chart import Chart, is_allowed_repository, parse_repository_chart
from fairlead.controllers.instances.remote_errors import ERROR, InstanceError
from fairlead.core.objects import Object
from fairlead.domain.release_annotations import ReleaseAnnotations, find_annotation_problems, read_annotations
from fairlead.domain.typed_objects import App
from fairlead.kinds.instances.templates import FALSE, TRUST_ANNOTATION

_USE_VERBS = frozenset({"use", "*"})


def is_trusted(app: App) -> bool:
    """Whether only administrators wrote the content of an App."""
    return (app.meta.get("annotations") or {}).get(TRUST_ANNOTATION) != FALSE


def build_chart(config: Object) -> Chart:
    """Raises InstanceError if the App deploys something else than a chart or manifests."""
    if config.get("chart"):
        return parse_repository_chart(config["chart"], "config.chart", "fix the app")
    if config.get("manifests"):
        return Chart("manifests", "", manifests=config["manifests"])
    message = "the app runs a script, which templates do not do; install it with `fairlead app install`"
    raise InstanceError("UnsupportedApp", message, ERROR)


def build_annotations(config: Object) -> ReleaseAnnotations:
    """The annotations for all objects of an App. Raises InstanceError for keys that it may not set, which were stored
    by an earlier version."""
    for key, problem in find_annotation_problems(config.get("annotations")):
        raise InstanceError("InvalidChart", f'config.annotations: the key "{key}" {problem}; fix the app', ERROR)
    return read_annotations(config)


def check_repository(app: App, chart: Chart, repositories: Sequence[str]) -> None:
    """Raises InstanceError unless an administrator wrote the App or allowed its repository. Helm follows the URLs and
    redirects of a repository, so an untrusted one could make it send requests into this server's network (SSRF)."""
    if chart.manifests or is_trusted(app) or is_allowed_repository(chart.repo, repositories):
        return
    message = (
        "the app was not written by an administrator, and the repository of its chart is not in the setting "
        f"chart_repositories; ask an administrator to review the app and annotate it with {TRUST_ANNOTATION}=true, or "
        "to add the repository to that setting"
    )
    raise InstanceError("RepositoryNotAllowed", message, ERROR)


def check_owner_use(app: App, owner: Mapping[str, str]) -> None:
    """Raises InstanceError unless the App's owner and access entries let the owner of an instance use it. For Apps that
    an untrusted template names, where the permissions of a requester are not checked."""
    user = owner.get("user") or ""
    team = owner.get("team") or ""
    own = app.owner
    is_own = bool(user and own.get("user") == user) or bool(team and own.get("team") == team)
    for entry in app.access:
        users = entry.get("users") or ()
        teams = entry.get("teams") or ()
        if _USE_VERBS.intersection(entry.get("verbs") or ()):
            is_own = is_own or "*" in users or user in users or team in teams
    if not is_own:
        message = "the owner of this may not use the app; add an entry with the verb use to its spec.access"
        raise InstanceError("AppNotAllowed", message, ERROR)
