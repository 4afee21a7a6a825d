"""Sphinx's settings of the site; `docs/site.py` gathers the pages and calls Sphinx with them."""

import sys
from pathlib import Path
from urllib.parse import urlparse

sys.path.insert(0, str(Path(__file__).parent))
from repository import address  # noqa: E402

from paperlib.version import __version__  # noqa: E402

project = "paperlib"
copyright = author = "The paper companion authors"
version = release = __version__
language = "en"
extensions = ["myst_nb"]
root_doc = "index"
nb_execution_mode = "off"  # the stored outputs are shown
# A widget needs a kernel: without one its picture is shown, and its words below that.
nb_mime_priority_overrides = [
    ("html", "application/vnd.jupyter.widget-view+json", None),
    ("html", "application/vnd.jupyter.widget-state+json", None),
]
nb_ipywidgets_js: dict[str, dict[str, str]] = {}  # which would come from a server
myst_enable_extensions = ["amsmath", "dollarmath"]
myst_heading_anchors = 3
myst_fence_as_directive: list[str] = []
mathjax_path = "mathjax/tex-chtml-full.js"  # of the static folder
# Notebooks name tables in bold and begin with any heading; what is shown stands in the page as it was stored.
suppress_warnings = ["myst.header", "misc.highlighting_failure", "mystnb.unknown_mime_type"]
html_css_files = ["site.css"]
html_theme = "sphinx_book_theme"
html_title = "A companion to five federated-learning papers"
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {"show_navbar_depth": 1, "use_download_button": True, "show_toc_level": 2}
if address():
    html_theme_options |= {"repository_url": address(), "use_repository_button": True}
    html_theme_options |= {"path_to_docs": "", "use_source_button": True}
    if urlparse(address()).hostname == "github.com":
        html_theme_options["launch_buttons"] = {
            "binderhub_url": "https://mybinder.org",
            "colab_url": "https://colab.research.google.com",
            "notebook_interface": "jupyterlab",
        }
