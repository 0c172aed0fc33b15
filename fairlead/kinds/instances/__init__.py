"""Kinds for instances and their templates.

- `remote_instances`: SpaceInstance and VirtualClusterInstance; `fields` has what they share
- `workspace`: DevPodWorkspaceInstance and its subresources
- `app_instance`: AppInstance
- `templates`: the template kinds, also DevPodEnvironmentTemplate, and the trust level of a template
- `preset`: DevPodWorkspacePreset
"""
