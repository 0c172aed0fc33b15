"""Entry point of `python -m fairlead`; the same as the console script `fairlead`."""

from fairlead.cli import main

if __name__ == "__main__":
    main()
