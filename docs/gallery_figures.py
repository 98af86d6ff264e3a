"""How the gallery keeps the figures of its examples: an axis with nothing on it is an error."""

import matplotlib.pyplot as plt
from sphinx_gallery.scrapers import matplotlib_scraper


def save(block, block_vars, gallery_conf, **options):
    """Save the figures that are open, as sphinx-gallery does."""
    axes = [axis for number in plt.get_fignums() for axis in plt.figure(number).axes]
    if not all(axis.has_data() for axis in axes):
        raise ValueError(f"{block_vars['src_file']}: an axis is empty")
    return matplotlib_scraper(block, block_vars, gallery_conf, **options)
