"""The documentation as a site: `sphinx-build -W docs build/site`."""

project = "stagekit"
author = copyright = "the stagekit authors"
extensions = ["myst_parser"]
html_theme = "furo"
html_title = "stagekit"
html_static_path = ["site.css"]
html_css_files = ["site.css"]
myst_heading_anchors = 4

# A link to a file of the repository that is no page, such as an example, is shown as text. tests/docs/test_pages.py tests that
# every link leads to a file.
suppress_warnings = ["myst.xref_missing"]
