"""What simulated batches are like, in words, as JSON and as a picture."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from datasieve.errors import DatasieveError
from datasieve.reporting.text import count, number, safe, shortened
from datasieve.storage import atomic_path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from datasieve.sampling.describe import Description

MOST = 8
_NAME_WIDTH = 44


def batch_lines(found: Description, paths: Sequence[str]) -> list[str]:
    """Return the lines that `datasieve batches` prints; `paths` names the images by index."""
    step = f"batches of {found.batch_size}"
    if found.effective_batch_size != found.batch_size:
        step += f", {found.effective_batch_size} images an optimizer step"
    lines = [
        f"{count(found.images, 'image')}, {count(len(found.cluster_share), 'cluster')}; {step}; "
        f"{count(found.epoch_steps, 'step')} an epoch, {found.steps:,} simulated",
        "",
        f"conflicts     {found.conflicts:,} pairs of images; random batches would have "
        f"{number(found.conflicts_random)}, in {number(found.conflicted_steps_random, 'share')} of the steps",
        f"clusters      {number(found.clusters_per_step)} a step on average, {number(found.entropy)} bits of entropy",
        f"coverage      {number(found.coverage, 'share')} of the images shown",
        f"repeats       {count(found.repeats, 'showing')} an epoch beyond what is asked, to fill batches",
        f"shares        spread as among {number(found.effective_images)} equal images; the largest is "
        f"{number(float(found.gradient_share.max(initial=0)), 'share')}",
    ]
    if found.left_out:
        named = ", ".join(shortened(paths[i], _NAME_WIDTH) for i in found.left_out[:MOST])
        rest = f" and {len(found.left_out) - MOST:,} more" if len(found.left_out) > MOST else ""
        lines.append(f"never shown   {named}{rest}")
    if found.blocking:
        lines += ["", "Clusters with too few images to fill a batch without conflict:"]
        lines += [
            f"  {shortened(name, _NAME_WIDTH)}: at most {most} different images" for name, most in found.blocking[:MOST]
        ]
    largest = sorted(found.cluster_share.items(), key=lambda item: (-item[1], item[0]))
    lines += ["", "Share of showings by cluster:"]
    lines += [f"  {number(share, 'share'):>8}  {safe(name)}" for name, share in largest[:MOST]]
    if len(largest) > MOST:
        lines.append(f"  {number(sum(s for _, s in largest[MOST:]), 'share'):>8}  {len(largest) - MOST:,} others")
    return lines


def batch_json(found: Description, paths: Sequence[str]) -> str:
    """Return everything as one JSON object; gradient shares and images left out go by path."""
    values = dataclasses.asdict(found)
    values["gradient_share"] = dict(zip(paths, found.gradient_share.tolist(), strict=True))
    values["left_out"] = [paths[i] for i in found.left_out]
    values["conflicts_avoided"] = found.conflicts_avoided
    return json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False)


def plot(found: Description, path: Path) -> None:
    """Draw shares of clusters and of gradients into a picture (format by extension).

    Raises DatasieveError without matplotlib.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise DatasieveError("a plot needs matplotlib", remedy="Install it with: pip install matplotlib") from error
    figure = Figure(figsize=(10, 4), layout="constrained")
    clusters, gradients = figure.subplots(1, 2)
    largest = sorted(found.cluster_share.items(), key=lambda item: -item[1])[:20]
    clusters.barh([shortened(name, 30) for name, _ in largest][::-1], [100 * share for _, share in largest][::-1])
    clusters.set(xlabel="share of showings, %", title="clusters")
    ordered = np.sort(found.gradient_share)[::-1].cumsum()
    gradients.plot(np.arange(1, len(ordered) + 1), 100 * ordered, label="this sampler")
    gradients.plot([1, len(ordered)], [100 / len(ordered), 100], linestyle=":", label="equal shares")
    gradients.set(xlabel="images, largest share first", ylabel="cumulative gradient share, %", title="gradient")
    gradients.legend()
    with atomic_path(path) as aside:
        figure.savefig(aside, format=path.suffix[1:] or "png", dpi=120)
