"""The engine `kubernetes` for a runner process of tests, which also clones over HTTP."""

from fairlead.runner.engines.kubernetes.engine import KubernetesEngine
from fairlead.runner.engines.kubernetes.settings import Settings
from fairlead.runner.registry import EngineSettings

ENGINE = "tests.runner.harness.cluster_engine:create_engine"


def create_engine(settings: EngineSettings) -> KubernetesEngine:
    clusters = settings.clusters
    chosen = Settings(
        settings.state_folder,
        settings.runner,
        clusters.kubeconfig,
        clusters.contexts,
        clusters.namespaces,
        clusters.clone_image,
        protocols=frozenset({"http"}),
    )
    return KubernetesEngine(chosen)
