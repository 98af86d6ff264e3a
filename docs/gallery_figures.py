"""Style and order of the gallery's examples; an empty axis is an error."""

from pathlib import Path

import matplotlib.pyplot as plt
from sphinx_gallery.scrapers import matplotlib_scraper

ORDER = (  # what most come for, then deployment, then the paper
    "accelerate",
    "adaptive_bank",
    "swap_activation",
    "graph_classification",
    "plain_loop",
    "lightning_trainer",
    "own_function",
    "hops",
    "link_scheduling",
    "broken_sensor",
    "sensor_network",
    "constrained_training",
    "scale_out",
)
LOOK = {
    "figure.figsize": (6.4, 4.0),
    "figure.dpi": 110,
    "font.size": 10.5,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": "#e3e6ea",
    "legend.frameon": False,
    "axes.prop_cycle": plt.cycler(
        color=["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"]
    ),
}


def save(block, block_vars, gallery_conf, **options):
    """Save the figures that are open, as sphinx-gallery does."""
    axes = [
        axis for number in plt.get_fignums() for axis in plt.figure(number).axes
    ]
    if not all(axis.has_data() for axis in axes):
        raise ValueError(f"{block_vars['src_file']}: an axis is empty")
    return matplotlib_scraper(block, block_vars, gallery_conf, **options)


def set_style(_gallery_conf, _file):
    """Give every example the same look; called before each."""
    plt.rcdefaults()
    plt.rcParams.update(LOOK)


def by_need(file):
    """The key that examples are sorted by: their place in the order above, others behind."""
    name = Path(file).stem
    return (ORDER.index(name) if name in ORDER else len(ORDER), name)
