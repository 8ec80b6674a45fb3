"""The complexity analyzer against scikit-image and hand calculation."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from skimage import data
from skimage.filters import gaussian, sobel
from skimage.filters.rank import entropy
from skimage.morphology import disk
from skimage.util import img_as_ubyte

from datasieve.analyzers import complexity
from datasieve.batch import Batch, Decoded
from datasieve.config import Settings
from datasieve.records import ImageFacts, ImageRecord, Location, image_id
from datasieve.rules import Rule, fill

Picture = npt.NDArray[np.uint8]
RULES = {rule.id: rule for rule in complexity.ANALYZER.rules}
MEASURED = ("complexity.edge-density", "complexity.texture-entropy", "complexity.score")


def batch_of(*pictures: Picture) -> Batch:
    records, decoded = [], []
    for i, pixels in enumerate(pictures):
        path = f"{i}.png"
        records.append(ImageRecord(image_id=image_id(path), path=path, location=Location(file=path)))
        h, w = pixels.shape[:2]
        decoded.append(Decoded(pixels=pixels, facts=ImageFacts(format="PNG", width=w, height=h)))
    return Batch(records, decoded)


def measure(*pictures: Picture) -> dict[str, list[float]]:
    return {k: list(v) for k, v in complexity.ANALYZER.measure(batch_of(*pictures)).items()}


def grey(plane: npt.NDArray[np.floating]) -> Picture:
    return np.repeat(np.clip(np.rint(plane), 0, 255).astype(np.uint8)[..., None], 3, axis=2)


def natural(h: int, w: int, seed: int = 0) -> Picture:
    """A picture with the spectrum of a photo (amplitude falling as 1/f) and colours."""
    rng = np.random.default_rng(seed)
    fy, fx = np.fft.fftfreq(h)[:, None], np.fft.rfftfreq(w)[None]
    wave = np.fft.rfft2(rng.normal(size=(3, h, w))) / np.maximum(np.hypot(fy, fx), 1 / max(h, w))
    plane = np.fft.irfft2(wave, s=(h, w))
    plane = (plane - plane.min()) / (plane.max() - plane.min())
    return np.moveaxis((255 * plane).astype(np.uint8), 0, -1)


def luma_of(pixels: Picture) -> npt.NDArray[np.float32]:
    values, _ = batch_of(pixels).pixels(complexity.VIEW)
    h, w = pixels.shape[:2]
    return values[0, 0, :h, :w].numpy()


def by_scikit_image(pixels: Picture) -> tuple[float, float]:
    luma = luma_of(pixels)
    edges = sobel(gaussian(luma.astype(np.float64), sigma=1)) > 0.1
    return float(edges.mean()), float(entropy(img_as_ubyte(luma), disk(5)).mean())


PICTURES = {
    "cat": data.chelsea()[:256, :300],
    "coin": np.repeat(data.coins()[:, :, None], 3, axis=2)[:303, :384],
    "face": data.astronaut()[:200, 150:350],
    "text": np.repeat(data.page()[:, :, None], 3, axis=2),
    "tall": natural(509, 131),
    "wide": natural(64, 512, seed=3),
}


@pytest.mark.parametrize("name", PICTURES)
def test_agrees_with_scikit_image_on_the_same_pixels(name: str) -> None:
    pixels = PICTURES[name]
    edges, bits = by_scikit_image(pixels)
    got = measure(pixels)
    assert got["complexity.edge-density"][0] == pytest.approx(edges, abs=0.006 if pixels.shape[0] >= 256 else 2e-5)
    assert got["complexity.texture-entropy"][0] == pytest.approx(bits, abs=0.06)
    fused = 0.35 * edges + 0.65 * min(bits / 8, 1)
    assert got["complexity.score"][0] == pytest.approx(fused, abs=0.01)


@settings(deadline=None, max_examples=25)
@given(hnp.arrays(np.uint8, st.tuples(st.integers(1, 18), st.integers(1, 18), st.just(3))))
def test_small_pictures_of_any_content_agree_with_scikit_image_exactly(pixels: Picture) -> None:
    edges, bits = by_scikit_image(pixels)
    got = measure(pixels)
    # Up to 377 pixels every neighbourhood is taken, those cut by the border included. Luma that falls on half a grey
    # level may round the other way there, and a magnitude of 0.1 to the last bit may fall on the other side.
    size = pixels.shape[0] * pixels.shape[1]
    assert got["complexity.edge-density"][0] == pytest.approx(edges, abs=1.001 / size)
    assert got["complexity.texture-entropy"][0] == pytest.approx(bits, abs=1e-4)


def test_a_flat_picture_has_neither_edges_nor_entropy() -> None:
    for level in (0, 77, 255):
        got = measure(np.full((40, 60, 3), level, np.uint8))
        assert [got[name][0] for name in MEASURED] == pytest.approx([0.0, 0.0, 0.0], abs=1e-6)


def test_a_single_pixel_is_flat() -> None:
    assert measure(np.full((1, 1, 3), 200, np.uint8))["complexity.score"] == [0.0]


def test_one_step_edge_counts_the_pixels_where_the_blurred_slope_exceeds_the_limit() -> None:
    # Horizontally a unit step blurred by sigma 1 changes by g(x) + g(x-1) across two pixels; skimage divides by
    # sqrt 2. That exceeds 0.1 within two columns on either side, so 4 of the 64 columns are edge.
    plane = np.zeros((48, 64))
    plane[:, 32:] = 255
    g = np.exp(-0.5 * np.arange(-4, 5) ** 2)
    g /= g.sum()
    slope = np.convolve(g, [1, 1]) / math.sqrt(2)
    assert (slope > 0.1).sum() == 4
    assert measure(grey(plane))["complexity.edge-density"][0] == pytest.approx(4 / 64)


def test_entropy_of_alternating_columns_is_that_of_two_levels() -> None:
    plane = np.zeros((120, 120))
    plane[:, ::2] = 255
    # A disk of 81 pixels holds 41 of one level and 40 of the other, or the reverse, away from the border.
    p = np.array([40, 41]) / 81
    expected = -(p * np.log2(p)).sum()
    assert measure(grey(plane))["complexity.texture-entropy"][0] == pytest.approx(expected, abs=0.01)


def test_entropy_never_passes_the_bound_of_81_pixels() -> None:
    plane = (np.arange(100)[:, None] * 11 + np.arange(100)[None] * 37) % 256
    got = measure(grey(plane))["complexity.texture-entropy"][0]
    assert 5.0 < got <= math.log2(81)


def test_fused_score_by_hand() -> None:
    assert complexity.score(0.2, 4.0) == pytest.approx(0.35 * 0.2 + 0.65 * 0.5)
    assert complexity.score(1.0, 9.0) == pytest.approx(1.0)
    assert complexity.score(0.0, math.log2(81)) == pytest.approx(0.515, abs=1e-3)


def test_more_noise_scores_higher_and_blur_scores_lower() -> None:
    rng = np.random.default_rng(1)
    base = luma_of(PICTURES["face"]) * 255
    noisy = [measure(grey(base + s * rng.normal(size=base.shape)))["complexity.score"][0] for s in (0, 10, 30)]
    soft = [measure(grey(gaussian(base, s)))["complexity.score"][0] for s in (0.01, 2, 6)]
    assert noisy == sorted(noisy)
    assert soft == sorted(soft, reverse=True)


def test_what_else_is_in_the_batch_changes_nothing() -> None:
    pictures = [*PICTURES.values(), np.zeros((1, 1, 3), np.uint8), natural(7, 5)]
    together = measure(*pictures)
    backwards = measure(*pictures[::-1])
    for i, pixels in enumerate(pictures):
        alone = measure(pixels)
        for name in MEASURED:
            assert together[name][i] == pytest.approx(alone[name][0], abs=1e-6)
            assert backwards[name][::-1][i] == pytest.approx(alone[name][0], abs=1e-6)


def test_functions_work_without_a_batch() -> None:
    luma = torch.rand(1, 1, 40, 50, generator=torch.Generator().manual_seed(0))
    assert 0.0 < float(complexity.edge_density(luma[0, 0])) <= 1.0
    assert complexity.texture_entropy(luma, [(40, 50)]).shape == (1,)


def test_deviation_is_the_robust_distance_from_the_concepts_median() -> None:
    scores = [0.30, 0.32, 0.34, 0.36, 0.70]
    got = complexity.deviations(scores, ["cat"] * 5)
    # median 0.34, absolute deviations 0.04 0.02 0 0.02 0.36 with median 0.02
    assert got == pytest.approx([0.04, 0.02, 0.0, 0.02, 0.36] / np.float64(1.4826 * 0.02))


def test_nearly_equal_scores_do_not_make_outliers() -> None:
    assert complexity.deviations([0.3, 0.3, 0.3, 0.3, 0.305], ["c"] * 5).max() == pytest.approx(0.5)


def test_compare_leaves_small_concepts_null_and_says_so() -> None:
    table = pa.table(
        {
            "concept": ["a"] * 6 + ["b"] * 4,
            "complexity.score": [0.3, 0.31, None, 0.32, 0.33, 0.6, 0.1, 0.2, 0.3, 0.4],
        }
    )
    found = complexity.ANALYZER.compare(table, Settings())
    away = np.array(found.columns["complexity.deviation"], float)
    assert np.isfinite(away[[0, 1, 3, 4, 5]]).all()
    assert np.isnan(away[[2, 6, 7, 8, 9]]).all()
    assert away[5] > RULES["complexity.outlier"].limit
    assert "b" in found.unmeasured["complexity.deviation"]


def fires(rule: Rule, value: float) -> bool:
    assert not isinstance(rule.limit, str)
    return value > rule.limit if rule.side == "above" else value < rule.limit


def test_flat_fires_on_an_empty_backdrop_and_not_on_a_photo() -> None:
    backdrop = np.linspace(200, 215, 300)[None].repeat(200, 0)
    got = measure(grey(backdrop), PICTURES["cat"])["complexity.score"]
    assert [fires(RULES["complexity.flat"], v) for v in got] == [True, False]


def test_busy_fires_on_noise_and_not_on_a_photo() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (200, 200)).astype(float)
    got = measure(grey(noise), PICTURES["coin"])["complexity.score"]
    assert [fires(RULES["complexity.busy"], v) for v in got] == [True, False]


def test_outlier_fires_on_the_odd_one_only() -> None:
    got = complexity.deviations([0.30, 0.31, 0.32, 0.33, 0.6], ["a"] * 5)
    assert [fires(RULES["complexity.outlier"], v) for v in got] == [False] * 4 + [True]


@pytest.mark.parametrize("rule", complexity.ANALYZER.rules, ids=lambda rule: rule.id)
def test_messages_fill_and_nothing_is_left_empty(rule: Rule) -> None:
    text = fill(rule.message, {"value": 0.123, "limit": rule.limit, "complexity.score": 0.2})
    assert "{" not in text
    assert "unknown" not in text
    assert all((rule.title, rule.remedy, rule.why, rule.how, rule.source, rule.evidence))


def test_columns_stay_in_their_declared_range() -> None:
    got = measure(*PICTURES.values())
    for column in complexity.ANALYZER.columns:
        if column.stage == "measure":
            assert column.low is not None
            assert column.high is not None
            assert all(column.low <= v <= column.high for v in got[column.name])


def test_importing_the_module_does_not_import_torch() -> None:
    code = "import sys, datasieve.analyzers.complexity; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
