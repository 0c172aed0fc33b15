"""Helm releases of virtual clusters and apps.

- `chart.py`: validated chart and release, and the arguments for helm
- `helm.py`: runs the `helm` program with limits, and sanitizes its errors
- `deploy.py`: runs helm for releases, and manages those of virtual clusters
"""
