"""The web console: its files, as this server sends them. Imports nothing else from Fairlead.

build.py     loads the files, and computes their addresses and the page that loads them
static/      index.html, modules, stylesheets and icons

`features/console.py` serves a build. The console itself is a client of the API like any other.
"""
