"""The controllers of connected clusters.

- `clusters.py`: the controller; an index of clusters by secret and by uid
- `probe.py`: one probe of a cluster, and a check of the permissions of the stored credential
- `probe_schedule.py`: when and how a cluster is probed next
- `status.py`: phase and conditions from the result of a probe
- `identity.py`: records in the cluster which installation uses which prefix of user names
- `credentials.py`: the controller that renews stored credentials, and reports those that expire
- `kubeconfig_files.py`: the controller of Secrets that follow a file
- `rights.py`: permissions in a cluster, and how it is asked for them
- `renewal.py`: requests a new credential from a cluster, and tries it
- `admin_binding.py`: the ClusterRoleBinding of Fairlead's administrators in the cluster
- `removal.py`: the finalizer: cleanup in the cluster when a Cluster is deleted
- `exports.py`: the controller that keeps cluster Secrets of Argo CD in the clusters that declare it
- `local_cluster.py`: connects the cluster that the server runs in
"""
