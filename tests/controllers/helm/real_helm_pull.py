"""A program: which archive Helm 4 itself downloads for each version. It reads [URL, FOLDER, VERSIONS] as JSON from
standard input, and prints a JSON list with the name of the archive for each version, or null for an error."""

import json
import sys
from pathlib import Path


def main() -> None:
    import helm_python as helm  # slow

    url, folder, versions = json.load(sys.stdin)
    chosen: list[str | None] = []
    for number, version in enumerate(versions):
        target = Path(folder, str(number))
        target.mkdir()
        try:
            helm.pull("vc", repo_url=url, version=version or None, destination=str(target))
        except helm.HelmError:
            chosen.append(None)
        else:
            chosen.append(next(target.iterdir()).name)
    json.dump(chosen, sys.stdout)


if __name__ == "__main__":
    main()
