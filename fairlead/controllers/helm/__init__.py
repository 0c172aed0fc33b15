"""Helm releases of virtual clusters.

- `chart.py`: validated chart and release, and the arguments for helm
- `helm.py`: runs the `helm` program with limits, and sanitizes its errors
- `deploy.py`: deploys and uninstalls the release of an instance, and copies its kubeconfig
"""
