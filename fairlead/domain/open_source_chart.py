"""The open-source chart of virtual clusters that the default template deploys: where it is, and which version.

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
