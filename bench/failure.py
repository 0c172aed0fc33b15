"""The one error of a benchmark: a run whose figures would mean nothing."""


class Failure(Exception):
    """Something was not answered as it should have been. The message says what, and there is no result."""
