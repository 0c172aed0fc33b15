"""`python -m scripts.reference` writes the pages, and removes those of kinds that are gone."""

from scripts.reference import ROOT, build_reference


def main() -> None:
    pages = build_reference()
    for path in {*(ROOT / "docs" / "reference").rglob("*.md")} - pages.keys():
        path.unlink()
        print(f"removed {path.relative_to(ROOT)}")
    for path, text in pages.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            print(f"wrote {path.relative_to(ROOT)}")


main()
