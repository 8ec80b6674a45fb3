"""The sharpness analyzer on blurs of known radius, spectra of known extent, and planted faults."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image
from scipy.ndimage import gaussian_filter, uniform_filter1d
from skimage import data

from datasieve.analyzers import sharpness
from datasieve.batch import WORKING_SIDE, Batch, Decoded
from datasieve.records import ImageFacts, ImageRecord, Location, image_id
from datasieve.rules import Rule, fill

Picture = npt.NDArray[np.uint8]
Plane = npt.NDArray[np.float64]
RULES = {rule.id: rule for rule in sharpness.ANALYZER.rules}
COLUMNS = tuple(column.name for column in sharpness.ANALYZER.columns)
PHOTO = data.astronaut()


def decoded_of(stored: Picture, orientation: int = 1) -> Decoded:
    """What a decoder makes of stored pixels: the reduced upright picture, and the lattice of native tiles."""
    h, w = stored.shape[:2]
    tiles = np.zeros((0, 64, 64, 3), np.uint8)
    if min(h, w) >= 64:
        ys, xs = (sorted({round(i * ((n - 64) // 8) / 3) * 8 for i in range(4)}) for n in (h, w))
        tiles = np.stack([stored[y : y + 64, x : x + 64] for y in ys for x in xs])
    upright = Image.fromarray(stored)
    if orientation == 6:
        upright = upright.transpose(Image.Transpose.ROTATE_270)
    width, height = upright.size
    if max(width, height) > WORKING_SIDE:
        scale = WORKING_SIDE / max(width, height)
        upright = upright.resize((round(width * scale), round(height * scale)), Image.Resampling.BOX)
    facts = ImageFacts(format="PNG", width=width, height=height, orientation=orientation)
    return Decoded(pixels=np.array(upright), tiles=tiles, facts=facts)


def measure(*pictures: Picture | Decoded) -> list[dict[str, float | str | None]]:
    decoded = [p if isinstance(p, Decoded) else decoded_of(p) for p in pictures]
    records = [ImageRecord(image_id(f"{i}.png"), f"{i}.png", Location(f"{i}.png")) for i in range(len(decoded))]
    got = sharpness.ANALYZER.measure(Batch(records, decoded))
    return [{name: values[i] for name, values in got.items()} for i in range(len(decoded))]


def picture(plane: Plane) -> Picture:
    return np.repeat(np.clip(np.rint(plane), 0, 255).astype(np.uint8)[..., None], 3, axis=2)


def blurred(pixels: Picture, sigma: float) -> Picture:
    return np.rint(gaussian_filter(pixels.astype(float), (sigma, sigma, 0))).astype(np.uint8)


def moved(pixels: Picture, length: int, axis: int) -> Picture:
    return np.rint(uniform_filter1d(pixels.astype(float), length, axis=axis)).astype(np.uint8)


def enlarged(pixels: Picture, side: int) -> Picture:
    small = Image.fromarray(pixels).resize((side, side), Image.Resampling.LANCZOS)
    return np.array(small.resize(pixels.shape[1::-1], Image.Resampling.BICUBIC))


def squares(sigma: float, size: int = 320, period: int = 40, degrees: float = 0.0) -> Plane:
    """A chequerboard at an angle with its edges blurred by sigma px, drawn four times too large and averaged."""
    y, x = (np.mgrid[: 4 * size, : 4 * size] + 0.5) / 4
    a = np.deg2rad(degrees)
    u, v = np.cos(a) * x + np.sin(a) * y, np.cos(a) * y - np.sin(a) * x
    board = (np.floor(u / period) + np.floor(v / period)) % 2 * 0.6 + 0.2
    fine = gaussian_filter(board, 4 * sigma, mode="reflect")
    plane: Plane = fine.reshape(size, 4, size, 4).mean((1, 3))
    return plane


@pytest.mark.parametrize("degrees", [0.0, 30.0])
@pytest.mark.parametrize("sigma", [1.0, 1.7, 3.3])
def test_a_step_edge_gives_back_the_radius_of_its_blur(sigma: float, degrees: float) -> None:
    radius, _ = sharpness.edge_blur(torch.from_numpy(squares(sigma, degrees=degrees)).float())
    assert len(radius) > 50
    # Averaging over a pixel adds 1/12 to the variance. Upright edges here lie half a pixel off any pixel's centre.
    true = sigma**2 + 1 / 12
    fall = np.exp(0.25 / (true + sharpness.COARSE**2) - 0.25 / (true + sharpness.FINE**2))
    ratio = (true + sharpness.COARSE**2) / (true + sharpness.FINE**2) * (fall if degrees == 0 else 1)
    expected = np.sqrt((sharpness.COARSE**2 - ratio * sharpness.FINE**2) / (ratio - 1))
    assert expected == pytest.approx(np.sqrt(true), rel=0.16)
    assert np.median(radius) == pytest.approx(expected, rel=0.05)


def test_sensor_noise_does_not_make_a_blurred_edge_sharp() -> None:
    noise = np.random.default_rng(0).normal(0, 3 / 255, (320, 320))
    radius, _ = sharpness.edge_blur(torch.from_numpy(squares(3.3) + noise).float())
    assert sharpness.quartile(radius) > 2.0


def test_noise_alone_has_no_edges() -> None:
    noise = np.random.default_rng(0).normal(0.5, 5 / 255, (256, 256))
    radius, _ = sharpness.edge_blur(torch.from_numpy(noise).float())
    assert len(radius) < sharpness.MIN_EDGES


def test_angles_point_across_the_edges() -> None:
    plane = np.zeros((64, 64))
    plane[:, 30:] = 0.8
    _, upright = sharpness.edge_blur(torch.from_numpy(plane).float())
    _, level = sharpness.edge_blur(torch.from_numpy(plane.T.copy()).float())
    assert np.abs(np.cos(upright)) == pytest.approx(1.0)
    assert np.abs(np.sin(level)) == pytest.approx(1.0)


def test_more_blur_raises_the_focus_radius_and_lowers_the_cutoff() -> None:
    rows = measure(*(blurred(PHOTO, s) for s in (0.5, 1.5, 2.5, 4)))
    radii = [row["sharpness.focus"] for row in rows]
    shares = [row["sharpness.cutoff"] for row in rows]
    assert radii == sorted(radii)
    assert shares == sorted(shares, reverse=True)
    assert radii[-1] == pytest.approx(4, rel=0.35)


def test_a_blurred_background_does_not_hide_a_sharp_subject() -> None:
    soft = blurred(PHOTO, 6)
    portrait = soft.copy()
    portrait[50:400, 130:380] = PHOTO[50:400, 130:380]
    sharp, half, full = (row["sharpness.focus"] for row in measure(PHOTO, portrait, soft))
    assert half == pytest.approx(sharp, abs=0.3)
    assert full > RULES["sharpness.blurred"].limit
    assert not fires("sharpness.blurred", half)


def tiles_with_detail_up_to(share: float, seed: int = 0) -> torch.Tensor:
    """Tiles of 1/f amplitude with nothing beyond `share` of Nyquist along either axis, made in Fourier space."""
    rng = np.random.default_rng(seed)
    fy, fx = np.fft.fftfreq(1024)[:, None], np.fft.rfftfreq(1024)[None]
    wave = np.fft.rfft2(rng.normal(size=(1024, 1024))) / np.maximum(np.hypot(fy, fx), 1 / 1024)
    wave[(np.abs(fy) > share / 2) | (fx > share / 2)] = 0
    plane = np.fft.irfft2(wave)
    plane = 0.5 + 0.12 * (plane - plane.mean()) / plane.std()
    tiles = plane.reshape(16, 64, 16, 64).transpose(0, 2, 1, 3).reshape(256, 64, 64)[::16]
    return torch.from_numpy(np.repeat(tiles[:, None], 3, axis=1)).float()


@pytest.mark.parametrize("share", [0.2, 0.35, 0.5, 0.7])
def test_the_cutoff_of_a_band_limited_spectrum_is_its_band(share: float) -> None:
    found = sharpness.detail(sharpness.tile_spectra(tiles_with_detail_up_to(share)).double().numpy())
    assert found is not None
    assert found == pytest.approx((share, share, share), abs=0.06)


def test_detail_up_to_nyquist_has_cutoff_one() -> None:
    found = sharpness.detail(sharpness.tile_spectra(tiles_with_detail_up_to(1.0)).double().numpy())
    assert found == (1.0, 1.0, 1.0)


def test_powers_add_up_to_half_the_variance_along_both_axes() -> None:
    noise = torch.from_numpy(np.random.default_rng(2).normal(0.5, 0.1, (400, 1, 64, 64))).float().expand(-1, 3, -1, -1)
    power = sharpness.tile_spectra(noise).sum(-1).mean(0)
    # The bins 0 and 32 belong to both halves of the plane, which adds 1/32; the mean is taken off, which takes some.
    assert power.numpy() == pytest.approx([0.1**2 / 2, 0.1**2 / 2], rel=0.04)
    assert power[0].item() == pytest.approx(power[1].item(), rel=2e-3)


def test_turning_a_tile_swaps_its_axes() -> None:
    tiles = torch.from_numpy(PHOTO[100:164, 200:264].copy()).permute(2, 0, 1).float() / 255
    turned = sharpness.tile_spectra(tiles.rot90(1, (1, 2)))
    assert turned.flip(0).numpy() == pytest.approx(sharpness.tile_spectra(tiles).numpy(), rel=1e-3, abs=1e-9)


def test_a_sine_stands_in_its_bin_of_its_axis() -> None:
    wave = 0.5 + 0.3 * np.sin(2 * np.pi * 10 * np.arange(64) / 64)
    tile = torch.from_numpy(np.broadcast_to(wave, (3, 64, 64)).copy()).float()
    along_x, along_y = sharpness.tile_spectra(tile).numpy()
    assert along_x.argmax() == 10
    assert along_y.argmax() <= 1
    along_x, along_y = sharpness.tile_spectra(tile.transpose(1, 2)).numpy()
    assert along_y.argmax() == 10
    assert along_x.argmax() <= 1


def test_detail_side_estimates_the_side_before_enlarging() -> None:
    for side in (96, 160):
        row = measure(enlarged(PHOTO, side))[0]
        assert side * 0.75 < row["sharpness.detail-side"] < side * 1.5


def test_reach_forgives_a_large_file_that_is_sharp_once_reduced() -> None:
    large = np.array(Image.fromarray(PHOTO).resize((2048, 2048), Image.Resampling.BICUBIC))
    row = measure(large)[0]
    assert row["sharpness.cutoff"] < 0.35
    assert row["sharpness.reach"] > 0.8


def test_motion_is_seen_along_either_axis_and_after_turning() -> None:
    level, upright, still = (moved(PHOTO, 15, 1), moved(PHOTO, 15, 0), PHOTO)
    a, b, c = (row["sharpness.anisotropy"] for row in measure(level, upright, still))
    assert fires("sharpness.motion", a)
    assert fires("sharpness.motion", b)
    assert not fires("sharpness.motion", c)
    # The same picture stored lying on its side: tiles are as stored, edges as displayed.
    turned = measure(decoded_of(np.ascontiguousarray(np.rot90(level)), orientation=6))[0]["sharpness.anisotropy"]
    assert turned == pytest.approx(a, rel=1e-3)


def test_sharp_edges_across_the_weaker_axis_clear_a_striped_picture() -> None:
    sharp, soft = np.zeros(20), np.full(20, 3.0)
    along_rows, down_columns = np.zeros(20), np.full(20, np.pi / 2)
    assert sharpness.anisotropy(0.2, 1.0, sharp, along_rows) == 1.0
    assert sharpness.anisotropy(0.2, 1.0, soft, along_rows) == pytest.approx(5.0)
    assert sharpness.anisotropy(0.2, 1.0, sharp, down_columns) == pytest.approx(5.0)
    assert sharpness.anisotropy(1.0, 0.2, sharp, down_columns) == 1.0


def fires(rule_id: str, value: float | str | None) -> bool:
    rule = RULES[rule_id]
    assert isinstance(value, float)
    assert isinstance(rule.limit, float)
    return value > rule.limit if rule.side == "above" else value < rule.limit


def test_blurred_fires_on_a_blurred_photo_and_not_on_the_photo() -> None:
    soft, sharp = measure(blurred(PHOTO, 3), PHOTO)
    assert fires("sharpness.blurred", soft["sharpness.focus"])
    assert not fires("sharpness.blurred", sharp["sharpness.focus"])


def test_upscaled_fires_on_an_enlarged_photo_and_not_on_the_photo() -> None:
    big, sharp = measure(enlarged(PHOTO, 96), PHOTO)
    assert fires("sharpness.upscaled", big["sharpness.reach"])
    assert not fires("sharpness.upscaled", sharp["sharpness.reach"])


@pytest.mark.parametrize(
    "pixels",
    [
        np.zeros((100, 80, 3), np.uint8),
        np.full((512, 512, 3), 255, np.uint8),
        np.full((1, 1, 3), 9, np.uint8),
        np.full((3, 400, 3), 90, np.uint8),
    ],
    ids=["black", "white", "pixel", "line"],
)
def test_pictures_without_content_are_null_with_a_reason(pixels: Picture) -> None:
    row = measure(pixels)[0]
    assert [row[name] for name in COLUMNS] == [None] * len(COLUMNS)
    assert row["sharpness.unmeasured"] == "too few edges for the focus; too little detail for the cut-off"


def test_without_tiles_the_focus_is_still_measured() -> None:
    row = measure(Decoded(pixels=PHOTO[:300, :400], facts=ImageFacts(width=400, height=300)))[0]
    assert row["sharpness.focus"] is not None
    assert row["sharpness.cutoff"] is None
    assert row["sharpness.unmeasured"] == "too little detail for the cut-off"


def test_what_else_is_in_the_batch_changes_nothing() -> None:
    pictures = [PHOTO, blurred(PHOTO[:300], 2), PHOTO[:40, :30], np.zeros((1, 1, 3), np.uint8), data.chelsea()]
    together, backwards = measure(*pictures), measure(*pictures[::-1])[::-1]
    for i, pixels in enumerate(pictures):
        alone = measure(pixels)[0]
        for row in (together[i], backwards[i]):
            assert row["sharpness.unmeasured"] == alone["sharpness.unmeasured"]
            assert [row[name] for name in COLUMNS] == [alone[name] for name in COLUMNS]


@settings(deadline=None, max_examples=25)
@given(
    hnp.arrays(np.uint8, st.tuples(st.integers(1, 24), st.integers(1, 24), st.just(3))),
    st.sampled_from([1, 4, 9]),
)
def test_any_content_and_size_is_in_range_or_null_with_a_reason(pixels: Picture, times: int) -> None:
    row = measure(pixels.repeat(times, 0).repeat(times, 1))[0]
    for column in sharpness.ANALYZER.columns:
        value = row[column.name]
        if value is None:
            assert row["sharpness.unmeasured"]
        else:
            assert isinstance(value, float)
            assert column.low is not None
            assert column.low <= value <= (np.inf if column.high is None else column.high)


@pytest.mark.parametrize("rule", sharpness.ANALYZER.rules, ids=lambda rule: rule.id)
def test_messages_fill_and_nothing_is_left_empty(rule: Rule) -> None:
    text = fill(rule.message, {"value": 1.23, "limit": rule.limit, "resolution": 512, "sharpness.detail-side": 123.4})
    assert "{" not in text
    assert "unknown" not in text
    assert all((rule.title, rule.remedy, rule.why, rule.how, rule.source, rule.evidence))


def test_importing_the_module_does_not_import_torch() -> None:
    code = "import sys, datasieve.analyzers.sharpness; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
