"""The charts of a report as matplotlib figures, one file each: `plots.conflict(report).savefig("conflict.png")`.

Every chart is a function of a `Report`. It returns a `matplotlib.figure.Figure` of its own, touches no global state of
matplotlib and needs no display. What was not measured raises `ReportError` with the remedy. Beside each chart stands
the function with the data it draws; the page draws the same data in its own way.
"""

from datasieve.reporting.plots.buckets import buckets
from datasieve.reporting.plots.caption_tags import caption_tags
from datasieve.reporting.plots.colour_casts import colour_casts
from datasieve.reporting.plots.conflict import conflict
from datasieve.reporting.plots.embedding_map import embedding_map
from datasieve.reporting.plots.granularity import granularity
from datasieve.reporting.plots.scales import scales
from datasieve.reporting.plots.sizes import sizes

__all__ = [
    "buckets",
    "caption_tags",
    "colour_casts",
    "conflict",
    "embedding_map",
    "granularity",
    "scales",
    "sizes",
]
