"""Builds the documentation site: `make docs`, or `python -m scripts.docs_site`.

    pages.py       prepares the pages for the engines: what GitHub renders, they render
    navigation.py  compares the pages with `nav` in mkdocs.yml
    versions.py    the folder of each version, and the list of them
    links.py       finds dead links and external assets in the built site

The same pages and the same mkdocs.yml build with two engines: Zensical, and MkDocs with Material.
"""
