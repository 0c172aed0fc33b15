"""Kinds for projects.

- `project`: Project and its read-only subresources
- `migration`: the subresource that moves a virtual cluster between projects
- `secrets`: ProjectSecret and SharedSecret
"""
