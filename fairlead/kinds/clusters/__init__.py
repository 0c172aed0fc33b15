"""Kinds for infrastructure.

- `cluster`: Cluster, and the subresources for its agent
- `runner`: Runner and its subresources
- `app`: App
- `config`: Config, the settings that can be changed at run time; `config_sign_on` is a part of it
"""
