"""Runs a program with an environment that comes through an open file.

Variables of users must not be part of the environment of the programs that enter a holder, which start as root, nor of
their command lines, which all users of the machine can read.

    launch.py DESCRIPTOR PROGRAM [ARGUMENT ...]
"""

import json
import os
import sys


def main() -> None:
    descriptor = int(sys.argv[1])
    with os.fdopen(descriptor, "rb") as file:
        environment = json.load(file)
    os.execvpe(sys.argv[2], sys.argv[2:], environment)


if __name__ == "__main__":
    main()
