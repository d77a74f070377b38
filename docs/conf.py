"""The documentation as a site: `sphinx-build -W docs build/site`."""

project = "stagekit"
author = "the stagekit authors"
extensions = ["myst_parser"]
html_theme = "furo"
html_title = "stagekit"
myst_heading_anchors = 4

# Links to files of the repository that are no pages, such as examples, are shown as text. That every link leads to a file is tested by
# tests/docs/test_pages.py.
suppress_warnings = ["myst.xref_missing"]
