"""Colorimetry against published values and another library."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from skimage.color import rgb2lab

from datasieve.imaging.colorimetry import (
    D65_XY,
    angle,
    daylight_xy,
    kelvin_to_mired,
    lightness,
    mired_to_kelvin,
    planck_uv,
    rgb_to_xy,
    rgb_to_xyz_matrix,
    uv_to_mired_duv,
    uv_to_xy,
    xy_to_cct_duv,
    xy_to_rgb,
    xy_to_uv,
)


def test_the_matrix_is_that_of_the_standard() -> None:
    published = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]  # IEC 61966-2-1
    assert np.allclose(rgb_to_xyz_matrix(), published, atol=1e-4)


@pytest.mark.parametrize(
    ("xy", "kelvin"),
    [((0.44757, 0.40745), 2856), ((0.34567, 0.35850), 5003), ((0.3127, 0.3290), 6504), ((0.29902, 0.31485), 7504)],
    ids=["A", "D50", "D65", "D75"],
)
def test_cie_illuminants_have_their_colour_temperature(xy: tuple[float, float], kelvin: float) -> None:
    measured, _ = xy_to_cct_duv(xy)
    assert measured == pytest.approx(kelvin, rel=0.002)


def test_duv_is_nought_on_the_black_body_and_positive_for_daylight() -> None:
    assert abs(float(xy_to_cct_duv((0.44757, 0.40745))[1])) < 2e-4
    assert float(xy_to_cct_duv(D65_XY)[1]) == pytest.approx(0.0032, abs=1e-4)  # Ohno 2014


def test_grey_has_the_chromaticity_of_d65() -> None:
    assert np.allclose(rgb_to_xy([0.3, 0.3, 0.3]), D65_XY)
    assert np.isnan(rgb_to_xy([0.0, 0.0, 0.0])).all()


def test_the_daylight_locus_passes_through_its_named_points() -> None:
    assert np.allclose(daylight_xy(6504), D65_XY, atol=2e-4)
    assert np.allclose(daylight_xy(5003), (0.3457, 0.3585), atol=3e-4)


@given(st.floats(1700, 14000))
def test_the_temperature_of_a_black_body_is_read_back(kelvin: float) -> None:
    mired, duv = uv_to_mired_duv(planck_uv(kelvin))
    assert float(mired) == pytest.approx(1e6 / kelvin, abs=1.0)
    assert abs(float(duv)) < 3e-4


@given(st.floats(0.15, 0.6), st.floats(0.15, 0.6))
def test_uv_and_rgb_are_undone_exactly(x: float, y: float) -> None:
    assert np.allclose(uv_to_xy(xy_to_uv((x, y))), (x, y))
    assert np.allclose(rgb_to_xy(xy_to_rgb((x, y))), (x, y))


def test_beyond_all_temperatures_there_is_no_number() -> None:
    assert np.isnan(uv_to_mired_duv(xy_to_uv((0.15, 0.06)))[0])
    assert np.isnan(mired_to_kelvin(0.0))
    assert float(kelvin_to_mired(5000)) == 200


def test_lightness_agrees_with_scikit_image() -> None:
    encoded = np.linspace(0, 1, 50)[:, None, None].repeat(3, 2)
    linear = np.where(encoded <= 0.04045, encoded / 12.92, ((encoded + 0.055) / 1.055) ** 2.4)
    assert np.allclose(lightness(linear[..., 0]), rgb2lab(encoded)[..., 0], atol=0.01)


def test_angles_of_known_vectors() -> None:
    assert float(angle([1, 0, 0], [0, 2, 0])) == pytest.approx(90)
    assert float(angle([1, 1, 0], [1, 0, 0])) == pytest.approx(45)
    assert float(angle([0.2, 0.3, 0.1], [2, 3, 1])) == pytest.approx(0, abs=1e-9)
    assert np.isnan(angle([0, 0, 0], [1, 1, 1]))
