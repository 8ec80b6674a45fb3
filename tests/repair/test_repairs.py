"""The single repairs, against values from elsewhere."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from skimage import data
from skimage.color import rgb2lab

from datasieve.filenames import safe_path
from datasieve.imaging.colorimetry import planck_xy, xy_to_rgb
from datasieve.repair import Centre, Options, Picture, exposure, light, trim, white_balance


def test_linear_light_and_back_changes_no_level() -> None:
    levels = np.arange(256, dtype=np.uint8).reshape(1, -1, 1).repeat(3, 2)
    assert np.array_equal(light.encoded(light.linear(levels)), levels)


def test_the_adaptation_is_that_published_for_d65_to_d50() -> None:
    # Lindbloom's Bradford matrix from D65 to D50, on XYZ.
    published = [[1.0479, 0.0229, -0.0502], [0.0296, 0.9904, -0.0171], [-0.0092, 0.0151, 0.7519]]
    from datasieve.imaging.colorimetry import rgb_to_xyz_matrix

    to_xyz = rgb_to_xyz_matrix()
    matrix = to_xyz @ white_balance.adaptation([1, 1, 1], xy_to_rgb((0.34567, 0.35850))) @ np.linalg.inv(to_xyz)
    assert np.allclose(matrix, published, atol=5e-4)


def test_white_balance_turns_one_light_into_the_other_and_keeps_the_luminance() -> None:
    photo = data.coffee()
    warm = np.array([0.5, 0.3, 0.2])
    there = white_balance.apply(Picture(photo), {"from": [1 / 3] * 3, "to": list(warm)}).pixels
    back = white_balance.apply(Picture(there), {"from": list(warm), "to": [1 / 3] * 3}).pixels
    assert there[..., 0].mean() > photo[..., 0].mean()
    assert there[..., 2].mean() < photo[..., 2].mean()
    assert rgb2lab(there)[..., 0].mean() == pytest.approx(rgb2lab(photo)[..., 0].mean(), abs=3)
    inside = (there < 250).all(-1) & (there > 3).all(-1)
    assert np.abs(back[inside].astype(int) - photo[inside]).mean() < 3


def row(**values: object) -> dict[str, object]:
    base = {"colour.light-red": 0.5, "colour.light-green": 0.3, "colour.light-blue": 0.2, "colour.light-spread": 2.0}
    seen = {"fix.warmth": 0.9, "fix.subject-warmth": 1.1, "fix.stops": -2.0, "fix.subject-stops": -2.5}
    tints = {"fix.tint": 0.09, "fix.subject-tint": 0.09}
    return {**base, **seen, **tints, "width": 600, "height": 400, **values}


NEUTRAL = Centre((1 / 3, 1 / 3, 1 / 3), (0.0, 0.2), 0.05, (0.0, 0.0), (-2.2, -2.4), 0.2)


def test_what_cannot_be_balanced_says_why() -> None:
    def refused(centre: Centre = NEUTRAL, options: Options | None = None, **values: object) -> str:
        answer = white_balance.parameters(row(**values), centre, options or Options())
        assert isinstance(answer, str)
        return answer

    assert "could not be measured" in refused(**{f"colour.light-{c}": None for c in ("red", "green", "blue")})
    assert "too few images" in refused(Centre())
    assert "disagree by 20" in refused(**{"colour.light-spread": 20.0})
    assert "whole set" in refused(**{"fix.warmth": None})
    assert "off" in refused(options=Options(white_balance="off"))


def test_a_thing_on_a_warm_ground_is_not_taken_for_one_in_warm_light() -> None:
    answer = white_balance.parameters(row(**{"fix.subject-warmth": 0.25}), NEUTRAL, Options())
    assert "do not both say" in str(answer)


def test_a_set_of_red_things_has_a_reddish_centre_and_is_left_alone() -> None:
    reddish = Centre((0.5, 0.3, 0.2), (0.9, 1.1), 0.1, (0.09, 0.09), (-2.0, -2.5), 0.1)
    assert isinstance(white_balance.parameters(row(), reddish, Options()), str)


def test_where_both_agree_the_light_goes_to_the_set_s() -> None:
    step = white_balance.parameters(row(), NEUTRAL, Options())
    assert isinstance(step, dict)
    assert step["from"] == [0.5, 0.3, 0.2]
    assert step["to"] == pytest.approx([1 / 3] * 3, abs=1e-4)


def test_a_known_subject_is_trusted_further_than_the_middle_of_the_picture() -> None:
    weak = {"fix.warmth": 0.25, "fix.subject-warmth": 0.45, "fix.tint": 0.02, "fix.subject-tint": 0.02}
    assert isinstance(white_balance.parameters(row(**weak), NEUTRAL, Options()), str)
    assert isinstance(white_balance.parameters(row(**weak, **{"fix.boxed": 1.0}), NEUTRAL, Options()), dict)


def test_a_magenta_cloth_is_no_lamp() -> None:
    assert "no lamp" in str(white_balance.parameters(row(**{"fix.tint": -0.4}), NEUTRAL, Options()))
    assert "no lamp" in str(white_balance.parameters(row(**{"fix.subject-tint": 0.6}), NEUTRAL, Options()))


@given(st.floats(2500, 12000), st.floats(2500, 12000))
def test_black_bodies_differ_as_lamps_do(one: float, other: float) -> None:
    from datasieve.repair.looks import GUESSED, lamp_like, warmth_and_tint

    a, b = (warmth_and_tint(*xy_to_rgb(planck_xy(kelvin))) for kelvin in (one, other))
    if abs(a[0] - b[0]) > GUESSED.warmth:
        assert lamp_like(a[0] - b[0], a[1] - b[1], GUESSED.skew)


def test_daylight_needs_no_set() -> None:
    answer = white_balance.parameters(row(), Centre(), Options(white_balance="d65"))
    assert isinstance(answer, dict)
    assert answer["to"] == pytest.approx([1 / 3] * 3, abs=1e-4)


def test_the_turn_of_the_light_is_bounded() -> None:
    strong = {"colour.light-red": 0.9, "colour.light-green": 0.09, "colour.light-blue": 0.01}
    answer = white_balance.parameters(
        row(**strong, **{"fix.warmth": 4.5, "fix.subject-warmth": 4.7, "fix.tint": 0.4, "fix.subject-tint": 0.4}),
        NEUTRAL,
        Options(),
    )
    assert isinstance(answer, dict)
    assert answer["degrees"] == pytest.approx(white_balance.MOST_DEGREES, abs=0.01)
    assert answer["to"][0] > 1 / 3


def test_exposure_moves_by_what_picture_and_subject_agree_on() -> None:
    def asked(whole: float, subject: float) -> object:
        return exposure.parameters(row(**{"fix.stops": whole, "fix.subject-stops": subject}), NEUTRAL, Options())

    assert asked(-2.2 - 1.5, -2.4 - 1.2) == {"stops": 1.2}
    assert asked(-2.2 + 1.5, -2.4 + 1.6) == {"stops": -1.5}
    assert asked(-2.2 - 3.5, -2.4 - 3.0) == {"stops": 2.0}
    assert "do not both say" in str(asked(-2.2 + 1.5, -2.4))  # on white paper
    assert "do not both say" in str(asked(-2.2 - 0.8, -2.4 - 0.8))


@pytest.mark.parametrize("stops", [-1.5, -1.0, 1.0])
def test_exposure_is_brought_back(stops: float) -> None:
    photo = data.astronaut() // 2 + 20
    spoilt = light.encoded(light.linear(photo) * np.float32(2.0**stops))
    mended = exposure.apply(Picture(spoilt), {"stops": -stops}).pixels
    assert rgb2lab(mended)[..., 0].mean() == pytest.approx(rgb2lab(photo)[..., 0].mean(), abs=1.0)


def test_exposure_burns_nothing_out() -> None:
    bright = np.full((40, 40, 3), 0.25, np.float32)
    assert exposure.bounded(bright, 2.0) == pytest.approx(2.0)
    assert exposure.bounded(bright, 8.0) == pytest.approx(4.0)
    spots = bright.copy()
    spots[:10] = 0.9
    assert exposure.bounded(spots, 4.0) == pytest.approx(1 / 0.9)
    assert exposure.bounded(np.ones((4, 4, 3), np.float32), 0.5) == pytest.approx(0.5)


def test_a_picture_that_is_nearly_all_bars_is_not_trimmed() -> None:
    bars = {f"frame.border-{s}": v for s, v in (("left", 0.45), ("right", 0.45), ("top", 0.0), ("bottom", 0.0))}
    assert "60 x 400 px" in str(trim.parameters(row(**bars), NEUTRAL, Options()))


@given(st.text(min_size=1, max_size=300))
def test_a_safe_path_is_relative_short_and_stays_as_it_is(name: str) -> None:
    path = safe_path(name)
    assert path
    assert not path.startswith("/")
    for part in path.split("/"):
        assert part not in ("", ".", "..")
        assert len(part.encode()) <= 255
        assert not set(part) & set('\0\n<>:"|?*\\')
    assert safe_path(path) == path


def test_ordinary_names_stay() -> None:
    for name in ("a.jpg", "10_my dog/été 01.png", "猫/🐈.webp", "a[b](c)#%25.jpg"):
        assert safe_path(name) == name
    assert safe_path("shards/0001.tar::x/y.jpg") == "shards/0001/x/y.jpg"
