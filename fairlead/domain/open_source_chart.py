"""Names of the open-source chart of virtual clusters and of its tools. They are data: nothing else in the code depends
on that chart, and other charts work without them.
"""

SYNCED_POD_LABEL = "vcluster.loft.sh/managed-by"
"""Label of the pods that run in the host namespace for pods of a virtual cluster. Its value is the release."""
PAUSED_ANNOTATION, PAUSED_REPLICAS_ANNOTATION = "loft.sh/paused", "loft.sh/paused-replicas"
PAUSED_DATE_ANNOTATION = "loft.sh/paused-date"
"""How the command line of the chart marks a workload that it has paused, and by which it resumes it."""
EXTERNAL_STORE_SUFFIX = "-etcd"
"""The workload of a separately deployed etcd is named like the release, with this suffix."""
DATA_PATH = "/data"
"""Where the control plane has its data."""
