"""Style and order of the gallery's examples; an empty axis is an error."""

import pickle
import shutil
from pathlib import Path

import matplotlib.pyplot as plt
from sphinx_gallery.scrapers import matplotlib_scraper

ORDER = (  # what most come for, then deployment, then the paper
    "accelerate",
    "adaptive_bank",
    "swap_activation",
    "plain_loop",
    "own_function",
    "hops",
    "link_scheduling",
    "broken_sensor",
    "sensor_network",
    "constrained_training",
    "scale_out",
)
SHOWN = {"hops": 3}  # the axis in a thumbnail, where it is not the first
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
    if axes:
        name = Path(block_vars["src_file"]).stem
        crops = images_of(gallery_conf["src_dir"]) / "crops"
        crops.mkdir(parents=True, exist_ok=True)
        draw_thumbnail(
            axes[0].figure, SHOWN.get(name, 0), crops / f"{name}.png"
        )
    return matplotlib_scraper(block, block_vars, gallery_conf, **options)


def images_of(source):
    """Return the folder that sphinx-gallery writes images of examples to."""
    return Path(source) / "gallery" / "images"


def draw_thumbnail(figure, number, path):
    """Save one axis of a figure without letters, with thicker lines."""
    copy = pickle.loads(pickle.dumps(figure))
    copy.set_layout_engine("none")
    copy.set_size_inches(4, 2.8)
    shown = copy.axes[number]
    for axis in copy.axes:
        axis.set_visible(axis is shown)
    shown.set_position((0.03, 0.04, 0.94, 0.92))
    shown.set_anchor("C")
    shown.set(title="", xlabel="", ylabel="")
    shown.tick_params(
        which="both", length=0, labelbottom=False, labelleft=False
    )
    for text in (*shown.texts, *copy.texts, shown.get_legend()):
        if text is not None:
            text.set_visible(False)
    for line in shown.lines:
        line.set_linewidth(1.8 * line.get_linewidth())
        line.set_markersize(1.8 * line.get_markersize())
    for collection in shown.collections:
        if hasattr(collection, "set_sizes"):
            collection.set_sizes(2 * collection.get_sizes())
    copy.savefig(path, dpi=100)
    plt.close(copy)


def use_thumbnails(app):
    """Put the drawn thumbnails in the place of those of sphinx-gallery."""
    images = images_of(app.srcdir)
    for crop in images.glob("crops/*.png"):
        target = images / "thumb" / f"sphx_glr_{crop.stem}_thumb.png"
        if target.exists():
            shutil.copyfile(crop, target)


def set_style(_gallery_conf, _file):
    """Give every example the same look; called before each."""
    plt.rcdefaults()
    plt.rcParams.update(LOOK)


def by_need(file):
    """The key that examples are sorted by: their place in the order above, others behind."""
    name = Path(file).stem
    return (ORDER.index(name) if name in ORDER else len(ORDER), name)
