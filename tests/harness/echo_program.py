"""A program that prints what it was started with, and ends as it is told. For the tests of the fork server."""

import os
import signal
import sys

if __name__ == "__main__":
    print(sys.argv[1:], os.environ.get("GREETING"), os.getpid(), flush=True)
    print("to the log", file=sys.stderr)
    match sys.argv[1]:
        case "exit":
            sys.exit(int(sys.argv[2]))
        case "raise":
            raise RuntimeError("as asked")
        case "wait":
            signal.pause()
