"""References to project secrets in charts, for logins at their repositories, and where they are. Pure.

`usernameRef` and `passwordRef` of a chart name a key of a project secret. Its value is sent to the repository of the
chart, which the author of the chart has chosen. So the user who wrote both must be allowed to use the secret: an
annotation of the App, template or instance records that user for each reference together with its repository
(`admission/chart_secrets.py`), and they are checked again before each deployment (`controllers/apps/chart_logins.py`).
Who only changes the repository is a new writer, and parameters are part of neither.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from fairlead.core.objects import Object, get_path
from fairlead.domain.template_resolution import has_placeholder

USERNAME_REF, PASSWORD_REF = "usernameRef", "passwordRef"
_REFERENCE_FIELDS = frozenset((USERNAME_REF, PASSWORD_REF))
_CHART_LISTS = ("charts", "spaceTemplate.charts")


@dataclass(frozen=True, slots=True)
class ChartSecretReference:
    """`path` is the field, for messages, and `field` its name. An empty project is that of the instance."""

    path: str
    field: str
    repository: str
    project: str
    name: str
    key: str

    @property
    def digest(self) -> str:
        """Identifies the reference together with the repository that gets the value."""
        parts = [self.field, self.repository, self.project, self.name, self.key]
        return hashlib.sha256(orjson.dumps(parts)).hexdigest()[:24]

    @property
    def is_literal(self) -> bool:
        """Whether neither the secret nor the repository comes from placeholders."""
        return not any(has_placeholder(each) for each in (self.repository, self.project, self.name, self.key))


def find_chart_references(chart: Any, path: str) -> Iterator[ChartSecretReference]:
    """The references of one chart. `path` is its field."""
    if not isinstance(chart, dict) or _REFERENCE_FIELDS.isdisjoint(chart):
        return
    for field in (USERNAME_REF, PASSWORD_REF):
        reference = get_path(chart, f"{field}.projectSecretRef")
        if isinstance(reference, dict) and any(reference.values()):
            yield ChartSecretReference(
                path=f"{path}.{field}",
                field=field,
                repository=str(get_path(chart, "repoURL") or ""),
                project=str(reference.get("project") or ""),
                name=str(reference.get("name") or ""),
                key=str(reference.get("key") or ""),
            )


def find_app_references(app: Object | None) -> Iterator[ChartSecretReference]:
    yield from find_chart_references(get_path(app, "spec.config.chart"), "spec.config.chart")
    for index, version in enumerate(get_path(app, "spec.versions") or ()):
        yield from find_chart_references(get_path(version, "chart"), f"spec.versions[{index}].chart")


def find_template_references(template: Object | None) -> Iterator[ChartSecretReference]:
    """Those of a template, with its versions, or of the template in an instance."""
    yield from _find_definition_references(get_path(template, "spec.template"), "spec.template")
    for index, version in enumerate(get_path(template, "spec.versions") or ()):
        yield from _find_definition_references(get_path(version, "template"), f"spec.versions[{index}].template")


def _find_definition_references(definition: Any, path: str) -> Iterator[ChartSecretReference]:
    for charts in _CHART_LISTS:
        for index, chart in enumerate(get_path(definition, charts) or ()):
            yield from find_chart_references(chart, f"{path}.{charts}[{index}]")
