"""Reads the username and password of a chart from project secrets, before it is deployed.

Only those of the project of the instance are used, and only while the user who wrote the reference, together with the
repository that gets the value, may use the secret (`domain/chart_secrets.py`). Whether a secret exists is said only
then. Values are in no message, no status and no hash.
"""

import binascii
from base64 import b64decode
from dataclasses import replace

from fairlead.controllers.helm.chart import Chart, check_login
from fairlead.controllers.instances.prerequisites import InstanceConfig
from fairlead.controllers.instances.remote_errors import ERROR, InstanceError
from fairlead.core.call import RequestInfo
from fairlead.core.objects import Object, get_path
from fairlead.domain.chart_secrets import ChartSecretReference
from fairlead.domain.secret_references import PROJECT_SECRETS, read_consent
from fairlead.registry.codec import decode
from fairlead.registry.registry import Registry

SECRET_NOT_FOUND, SECRET_NOT_ALLOWED = "SecretNotFound", "SecretNotAllowed"


class ChartLogins:
    def __init__(self, registry: Registry, config: InstanceConfig) -> None:
        self._secrets = registry.resource(config.api_group, PROJECT_SECRETS)
        self._config = config

    def complete(self, chart: Chart, author: Object | None, namespace: str) -> Chart:
        """The chart with the username and password that it refers to. `author` is the App, template or instance that
        has the references, and records who wrote them; `namespace` is that of the instance. Raises InstanceError."""
        if chart.username_ref is None and chart.password_ref is None:
            return chart
        username = chart.username
        password = chart.password
        if chart.username_ref is not None:
            username = self._read(chart.username_ref, author, namespace)
        if chart.password_ref is not None:
            password = self._read(chart.password_ref, author, namespace)
        return check_login(replace(chart, username=username, password=password))

    def _read(self, reference: ChartSecretReference, author: Object | None, namespace: str) -> str:
        self._check_use(reference, author, namespace)
        entry = self._secrets.get_cached(namespace, reference.name)
        data = get_path(decode(entry), "spec.data") if entry is not None else None
        encoded = data.get(reference.key) if isinstance(data, dict) else None
        if not encoded:
            message = (
                f'the project has no project secret "{reference.name}" with a key "{reference.key}", which '
                f"{reference.path} refers to; create it, or correct the reference"
            )
            raise InstanceError(SECRET_NOT_FOUND, message, ERROR)
        try:
            return b64decode(encoded).decode()
        except (binascii.Error, UnicodeDecodeError):
            message = f'the key "{reference.key}" of the project secret "{reference.name}" is not text; correct it'
            raise InstanceError("InvalidChart", message, ERROR) from None

    def _check_use(self, reference: ChartSecretReference, author: Object | None, namespace: str) -> None:
        project = namespace.removeprefix(self._config.namespace_prefix)
        if reference.project not in ("", project):
            message = (
                f'{reference.path} refers to a secret of the project "{reference.project}", and only those of the '
                "project of the instance are used; leave out its project, and create the secret in this one"
            )
            raise InstanceError(SECRET_NOT_ALLOWED, message, ERROR)
        target = RequestInfo(
            verb="use",
            group=self._config.api_group,
            version="v1",
            resource=PROJECT_SECRETS,
            namespace=namespace,
            name=reference.name,
        )
        writer = read_consent(author).writers.get(reference.digest)
        if writer is None or not self._config.may_use_secret(writer, target):
            message = (
                f"the user who wrote {reference.path}, or the repository beside it, may not use the project secret "
                f'"{reference.name}" of this project; a user who may has to remove the reference and write it again'
            )
            raise InstanceError(SECRET_NOT_ALLOWED, message, ERROR)
