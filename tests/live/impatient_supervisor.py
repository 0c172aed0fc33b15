"""`fairlead` whose supervisor replaces a worker with a stuck event loop after a few checks: a program for tests."""

from fairlead.app.workers import slots
from fairlead.cli import main

if __name__ == "__main__":
    slots.STUCK_CHECKS = 8
    main()
