"""Sphinx configuration of the site. `make site` builds it; the pages that it reads are laid out by tools/site/pages.py first.

Nothing is executed and nothing is fetched: notebooks are shown with the outputs they were committed with, formulas become
MathML, and the theme brings its own styles. A warning is an error.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import kvcourse  # noqa: E402
from tools.site.extension import linkcode_resolve  # noqa: E402, F401 (sphinx.ext.linkcode looks for it here)

project = "kvcourse"
author = "the kvcourse authors"
release = version = kvcourse.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.linkcode", "tools.site.extension"]
exclude_patterns = ["files"]
nitpicky = True
nitpick_ignore_regex = [("py:.*", r"(?!kvcourse\.).*")]  # PyTorch, jaxtyping and Python have their pages elsewhere

# Notebooks, as they were committed
nb_execution_mode = "off"
nb_ipywidgets_js: dict[str, dict[str, str]] = {}  # every widget left a static figure: no page asks for a script
nb_merge_streams = True
nb_mime_priority_overrides = [("html", "application/vnd.jupyter.widget-view+json", None)]

# Markdown
myst_enable_extensions = ["dollarmath", "attrs_block"]
myst_heading_anchors = 3
myst_url_schemes = ["http", "https", "mailto", "source"]  # source: a file's page (tools/site/extension.py)
suppress_warnings = ["myst.header"]  # a cell may begin with a smaller heading than the one before asked for

# API pages
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True}
autodoc_class_signature = "mixed"
python_maximum_signature_line_length = 88
add_module_names = False

# Looks
html_theme = "furo"
html_title = "kvcourse"
html_static_path = ["static"]
html_css_files = ["course.css"]
html_math_renderer = "mathml"
html_show_sourcelink = False
html_copy_source = False
html_show_search_summary = False  # a page opened from disk may not read its neighbours
html_show_sphinx = False
html_show_copyright = False
html_theme_options = {
    "navigation_with_keys": True,
    "light_css_variables": {"color-brand-primary": "#3B3BD6", "color-brand-content": "#3B3BD6"},
    "dark_css_variables": {"color-brand-primary": "#9A9AFF", "color-brand-content": "#9A9AFF"},
}
pygments_style = "tango"
pygments_dark_style = "monokai"
