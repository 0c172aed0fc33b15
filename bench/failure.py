"""The error of a benchmark run without meaningful figures."""


class Failure(Exception):
    """A response was not as expected. The message says which, and there is no result."""
