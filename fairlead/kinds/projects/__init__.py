"""Kinds for projects.

- `project`: Project and its subresources, also the one that moves a virtual cluster between projects
- `secrets`: ProjectSecret and SharedSecret
"""
