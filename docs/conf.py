"""Makes the documentation's site: make docs."""

project = "walle_stream"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "docs/index"
include_patterns = ["*.md", "docs/**", "bench/**.md", "deploy/**.md", "configs/**.md"]
exclude_patterns = [".venv*", "walle-data", "build", "**/template/**", "**/task-template/**"]
html_theme = "furo"
html_title = "walle_stream"
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
autodoc_typehints = "description"
suppress_warnings = ["misc.highlighting_failure"]  # of blocks of `usage`, which are ours
