"""The open-source chart of virtual clusters that the default template deploys: where it is, its version and its names.

Names that are fixed by that chart are data here, and nowhere else in the program.
"""

CHART_NAME = "vcluster"
CHART_REPOSITORY = "https://charts.loft.sh"
CHART_VERSION = "0.36.1"
"""Pinned, so that a new installation deploys what this version of Fairlead was written for."""

CHART_VALUES = """\
controlPlane:
  statefulSet:
    image:
      repository: loft-sh/vcluster-oss
    persistence:
      volumeClaim:
        size: {{ parameters.storage }}
telemetry:
  enabled: false
"""
"""Nothing about addresses, certificates or services: virtual clusters are reached through the connected cluster. The
image is that of the open-source build, and nothing is reported to its vendor."""

SYNCED_POD_LABEL = "vcluster.loft.sh/managed-by"
"""Label of the pods that run in the host namespace for pods of a virtual cluster. Its value is the release."""
PAUSED_ANNOTATION, PAUSED_REPLICAS_ANNOTATION = "loft.sh/paused", "loft.sh/paused-replicas"
PAUSED_DATE_ANNOTATION = "loft.sh/paused-date"
"""How the command line of the chart marks a workload that it has paused, and by which it resumes it."""
EXTERNAL_STORE_SUFFIX = "-etcd"
"""The workload of a separately deployed etcd is named like the release, with this suffix."""
DATA_PATH = "/data"
"""Where the control plane has its data."""
