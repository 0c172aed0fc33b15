"""Names of a runner that the server deploys into a cluster: its objects, its namespace, and its finalizer."""

DEPLOYMENT_FINALIZER = "service.sh/runner-deployment"
"""Of a Runner that the server deploys. Admission sets it when an administrator sets `spec.clusterRef`, and the server
removes it once everything that was created in the cluster is deleted."""


def deployed_runner_name(runner: str) -> str:
    """A DNS label. The kind Runner limits the length of its name accordingly."""
    return f"fairlead-runner-{runner}"
