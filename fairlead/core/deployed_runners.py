"""Runners that the server deploys into a cluster: the finalizer of the Runner, and what is created there.

The objects in the cluster have one name, which is also that of their namespace if the Runner names none.
"""

DEPLOYMENT_FINALIZER = "service.sh/runner-deployment"
"""Of a Runner that the server deploys. Admission sets it when an administrator sets `spec.clusterRef`, and the server
removes it once everything that was created in the cluster is deleted."""


def deployed_runner_name(runner: str) -> str:
    """A DNS label. The kind Runner limits the length of its name accordingly."""
    return f"fairlead-runner-{runner}"
