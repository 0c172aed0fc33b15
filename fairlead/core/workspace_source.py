"""The annotation of workspaces with their source, which the server, the command line and runners know."""

SOURCE_ANNOTATION = "service.sh/workspace-source"
"""`git:URL`, with `@BRANCH`, `@sha256:COMMIT` and `@subpath:FOLDER` after it; `local:FOLDER`; `image:NAME`."""
