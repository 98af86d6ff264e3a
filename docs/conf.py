"""The site: `make docs` builds it into out/site, without a network and with warnings as errors."""

import gc
import importlib
import re
import sys
from pathlib import Path

import graphact

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "docs"))  # gallery_figures
# Pages are trees of many small objects, which the collector would visit repeatedly
gc.set_threshold(50_000)

project = "graphact"
author = "The graphact developers"
copyright = author  # noqa: A001, Sphinx's name
version = release = graphact.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx-mathjax-offline",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = [
    "gallery/*.ipynb",
    "gallery/*.py",
    "gallery/*.md5",
    "gallery/*.json",
]

myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 4
myst_dmath_double_inline = True

autodoc_default_options = {
    "members": True,
    "show-inheritance": True,
    "member-order": "bysource",
}
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_custom_sections = ["Shapes"]
add_module_names = False
# Two packages have an Exchange, and a hint in quotes names neither
suppress_warnings = ["ref.python"]

html_theme = "furo"
html_title = f"graphact {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["tables.js"]
html_favicon = "_static/icon.svg"
html_copy_source = False
html_theme_options = {
    "light_css_variables": {
        "color-brand-primary": "#1f5fa8",
        "color-brand-content": "#1f5fa8",
    },
    "dark_css_variables": {
        "color-brand-primary": "#7fb4f0",
        "color-brand-content": "#7fb4f0",
    },
}

sphinx_gallery_conf = {
    "examples_dirs": str(ROOT / "examples" / "gallery"),
    "gallery_dirs": "gallery",
    "filename_pattern": r"\.py$",
    "image_scrapers": ("gallery_figures.save",),
    "abort_on_example_error": True,
    "download_all_examples": False,
    "min_reported_time": 1,
    "remove_config_comments": True,
    "show_signature": False,
    "plot_gallery": "True",
    "within_subsection_order": "gallery_figures.by_need",
    "reset_modules": ("gallery_figures.set_style",),
    "write_computation_times": False,  # its page would load scripts from elsewhere
}


def resolve_outside(_app, _docname, source):
    """Links to folders and files of the repository that are not on the site become their names."""
    source[0] = re.sub(
        r"(?<!!)\[([^\]]+)\]\(\.\./[^)]+\)",
        lambda link: f"`{link[1].strip('`')}`",
        source[0],
    )


def load_lazy_names(_app):
    """Import what packages load when it is first used: autodoc documents what is there."""
    for page in (ROOT / "docs" / "api").glob("*.rst"):
        for name in re.findall(r"automodule:: (\S+)", page.read_text()):
            module = importlib.import_module(name)
            for public in getattr(module, "__all__", ()):
                getattr(module, public)


def replace_thumbnails(app):
    """Show what the examples drew for it, without letters that nobody could read."""
    importlib.import_module("gallery_figures").use_thumbnails(app)


def setup(app):
    """Connect what is above."""
    app.connect("builder-inited", load_lazy_names)
    app.connect(
        "builder-inited", replace_thumbnails, priority=900
    )  # after the gallery is made
    app.connect("source-read", resolve_outside)
