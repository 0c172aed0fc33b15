"""Kinds for instances and their templates.

- `space`, `virtual_cluster`: SpaceInstance and VirtualClusterInstance; `fields` has what they share
- `workspace`: DevPodWorkspaceInstance
- `templates`: the template kinds, and the trust level of a template
"""
