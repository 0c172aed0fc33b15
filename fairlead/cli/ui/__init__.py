"""Shared by the commands: flags, output, prompts, sessions with a server, and waiting.

- `flags`: common flags, and option dataclasses as commands
- `session`: client sessions, error reporting and exit codes
- `output`, `describe`: tables, JSON and YAML for lists and single objects, and changes of those
- `resource_commands`: `list`, `show`, `create` and `delete` from the description of a resource; watches
- `wait`: progress and waiting for objects
- `groups`: command groups, and other names of commands
- `field_flags`: errors of the server with flags and projects instead of fields and namespaces
- `streams`: closed streams, locales, and output that cannot be written
- `jsonpath`: templates of `-o jsonpath=` and fields of `--sort-by`
- `prompts`: secrets and confirmations
- `secret_file`: files for secrets that a command prints once
- `completion`: shell completion of names
- `durations`: parsing and formatting of durations
"""
