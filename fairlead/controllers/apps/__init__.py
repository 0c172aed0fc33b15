"""Deploys AppInstances, and the charts and apps of templates, with Helm.

- `app_instances.py`: the controller
- `targets.py`: the cluster and namespace that an app is deployed to, and with which permissions
- `left_behind.py`: what is left of a release whose target is gone
- `template_releases.py`: the charts and apps of templates of spaces and virtual clusters
- `charts.py`: the chart of an App, and whether it may be deployed
- `script_jobs.py`: the script of an App, as a Job in the cluster
- `chart_logins.py`: the username and password of a chart, from project secrets
- `status.py`: computes the status, and keeps the history
"""
