"""Entry point of the console script `fairlead` and of `python -m fairlead`.

kubectl runs `fairlead credential` very often. If no refresh is needed, it is served without importing the command line.
"""

import os
import sys


def main() -> None:
    if sys.argv[1:2] == ["credential"]:
        from fairlead.exec_credential import serve_fresh_credential

        if serve_fresh_credential(sys.argv[1:], os.environ):
            return
    from fairlead.cli import main as run

    run()


if __name__ == "__main__":
    main()
