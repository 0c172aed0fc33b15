"""Kinds for instances and their templates.

- `remote_instances`: SpaceInstance and VirtualClusterInstance; `fields` has what they share
- `workspace`: DevPodWorkspaceInstance; `workspace_actions`: its subresources
- `app_instance`: AppInstance
- `templates`: the template kinds, and the trust level of a template
- `environment`: DevPodEnvironmentTemplate
- `preset`: DevPodWorkspacePreset
"""
