"""Where an imported virtual cluster runs: an annotation of its instance names the release in a connected cluster.

Its kubeconfig usually names a loopback address, so the server reaches it through that cluster. It does that only if the
kubeconfig of the instance is the one in the Secret that the chart wrote there: those who have it could read the Secret.
Another annotation records who has set the first one, and so has to have `use` on that cluster as long as it counts.
"""

from dataclasses import dataclass

from fairlead.core.objects import Object, metadata
from fairlead.domain.release_names import release_name_problems
from fairlead.registry.names import dns_label_errors, dns_subdomain_errors

IMPORT_SOURCE_ANNOTATION = "service.sh/import-source"
"""`CLUSTER/NAMESPACE/RELEASE`."""
IMPORT_WRITER_ANNOTATION = "service.sh/import-source-writer"
"""Written by the server: the user who has set the source."""


@dataclass(frozen=True, slots=True)
class ImportSource:
    cluster: str
    namespace: str
    release: str

    @property
    def secret_name(self) -> str:
        """The Secret in which the chart stores the kubeconfig."""
        return f"vc-{self.release}"


def import_source_text(instance: Object | None) -> str:
    return _read_annotation(instance, IMPORT_SOURCE_ANNOTATION)


def import_writer(instance: Object | None) -> str:
    """The user who has set the source; empty if that is not known."""
    return _read_annotation(instance, IMPORT_WRITER_ANNOTATION)


def _read_annotation(instance: Object | None, key: str) -> str:
    annotations = metadata(instance).get("annotations") if instance is not None else None
    found = annotations.get(key) if isinstance(annotations, dict) else None
    return found if isinstance(found, str) else ""


def parse_import_source(text: str) -> ImportSource | None:
    """None if the text does not have the form of the annotation."""
    parts = text.split("/")
    if len(parts) != 3:
        return None
    cluster, namespace, release = parts
    problems = (
        *dns_subdomain_errors(cluster),
        *dns_label_errors(namespace),
        *release_name_problems(IMPORT_SOURCE_ANNOTATION, release),
    )
    return None if problems else ImportSource(cluster, namespace, release)
