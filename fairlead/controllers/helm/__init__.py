"""Helm releases of virtual clusters, apps and templates.

- `chart.py`: validated chart and release, and the files for helm
- `versions.py`: versions of charts, and ranges of them
- `fetch.py`: downloads charts from repositories with an index; `oci_registry.py`: from OCI registries
- `http_client.py`, `proxies.py`: requests to them under the address policy; the proxy for them
- `loop_thread.py`: an event loop of its own for a download
- `index_versions.py`: a program that lists the versions of a chart in an index
- `chart_archive.py`: a program that copies the archive of a chart, without what refers to anything else
- `limited_process.py`: runs these programs and helm with limits
- `end_with_parent.py`: a program that starts helm so that it ends with this server
- `helm.py`: runs the `helm` program, and sanitizes its errors
- `missing_rules.py`: which rules a credential lacks, from an error of helm
- `slots.py`: how many charts are deployed at the same time, shared between projects
- `deploy.py`: runs helm for releases
- `deployments.py`: brings a release to what is wanted, and knows whether the cluster has it
- `attempts.py`: what is known about the last run for a release, and whether helm has to run
- `release_records.py`: reads what Helm has stored about a release in the cluster
- `release_objects.py`: compares the objects of a release with the cluster
- `release_annotations.py`: sets the annotations of an App on the objects of its release
- `pending_release.py`: clears what an interrupted run has left
"""
