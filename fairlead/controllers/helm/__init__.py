"""Helm releases of virtual clusters and apps.

- `chart.py`: validated chart and release, and the arguments for helm
- `chart_archive.py`: a program that copies the archive of a chart, without what refers to anything else
- `helm.py`: runs the `helm` program with limits, and sanitizes its errors
- `deploy.py`: runs helm for releases, and manages those of virtual clusters
"""
