"""Commands that work on stores and files, without a running server.

- `backup`: `backup`, `restore` and `store copy`
- `encryption_keys`: the keys for encryption at rest (`encryption-key`)
- `export`: CustomResourceDefinitions of the management kinds
"""
