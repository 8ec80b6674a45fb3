"""Buckets against hand calculations of each trainer's own rule."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datasieve.bucketing import SQUASHING, Fit, fit, kohya_buckets

BUCKETING = (None, "kohya", "onetrainer", "ai-toolkit")
sides = st.integers(1, 12000)
sizes = st.lists(st.tuples(sides, sides), min_size=1, max_size=20)
resolutions = st.sampled_from([256, 512, 640, 768, 1024])


def fitted(trainer: str | None, pairs: list[tuple[int, int]], resolution: int, *, coarse: bool = False) -> Fit:
    width, height = np.array(pairs, np.int64).T
    result = fit(trainer, width, height, resolution, coarse=coarse)
    assert result is not None
    return result


def buckets_of(trainer: str | None, pairs: list[tuple[int, int]], resolution: int) -> list[tuple[int, int]]:
    result = fitted(trainer, pairs, resolution)
    return list(zip(result.width.tolist(), result.height.tolist(), strict=True))


def test_kohyas_list_at_512_is_what_its_rule_gives_by_hand() -> None:
    # 512 * 512 = 262144; for each width from 256: floor(262144 / width / 64) * 64, and the same turned
    by_hand = {(256, 1024), (320, 768), (384, 640), (448, 576), (512, 512), (576, 448), (640, 384), (704, 320)}
    by_hand |= {(768, 320), (832, 256), (896, 256), (960, 256), (1024, 256)}
    by_hand |= {(h, w) for w, h in by_hand}
    assert kohya_buckets(512) == sorted(by_hand)


def test_kohya_takes_a_listed_size_as_it_is_and_else_the_nearest_aspect() -> None:
    assert buckets_of("kohya", [(768, 320)], 512) == [(768, 320)]
    # 4:3 = 1.333: 576x448 is 1.286 (0.048 off), 640x384 is 1.667 (0.333 off)
    assert buckets_of("kohya", [(1024, 768)], 512) == [(576, 448)]


def test_covering_and_cropping_by_hand() -> None:
    result = fitted("kohya", [(1024, 768)], 512)
    # to cover 576 x 448 it is scaled by max(576/1024, 448/768) = 0.58333 to 597 x 448 (597.33 rounded)
    assert result.scale[0] == pytest.approx(448 / 768)
    assert result.crop_share[0] == pytest.approx(1 - 576 * 448 / (597 * 448))


def test_a_nearly_square_photo_goes_to_the_full_square() -> None:
    result = fitted(None, [(3072, 3000)], 1024)
    assert (result.width[0], result.height[0]) == (1024, 1024)
    assert result.crop_share[0] < 0.03


def test_trainers_without_buckets_squash_to_the_square() -> None:
    for trainer in SQUASHING:
        result = fitted(trainer, [(1024, 512), (300, 300)], 512)
        assert result.width.tolist() == result.height.tolist() == [512, 512]
        assert result.squash.tolist() == [2.0, 1.0]
        assert result.crop_share.tolist() == [0.0, 0.0]


def test_onetrainer_rounds_sides_of_constant_area_to_8_or_64() -> None:
    # aspect 1.5: 512 * sqrt(1.5) = 627.07 -> 624, 512 / sqrt(1.5) = 418.05 -> 416
    assert buckets_of("onetrainer", [(1500, 1000)], 512) == [(624, 416)]
    result = fitted("onetrainer", [(1500, 1000)], 1024, coarse=True)
    # 1254.1 -> 1280 (19.6 steps of 64), 836.1 -> 832
    assert (result.width[0], result.height[0]) == (1280, 832)


def test_ai_toolkit_never_enlarges() -> None:
    # 300 x 200 stays below 512^2: sides go down to 256 x 192
    assert buckets_of("ai-toolkit", [(300, 200)], 512) == [(256, 192)]
    # 2000 x 1000 scaled to the area of 512^2 is 724 x 362: 704 x 320, or up to 768 x 320 or 704 x 384 if they fit
    assert buckets_of("ai-toolkit", [(2000, 1000)], 512) == [(768, 320)]


def test_what_depends_on_settings_that_images_do_not_tell_is_not_guessed() -> None:
    assert fit("simpletuner", np.array([512]), np.array([512]), 512) is None


@given(st.sampled_from(BUCKETING), sizes, resolutions)
def test_every_bucket_is_covered_and_the_costs_are_shares(
    trainer: str | None, pairs: list[tuple[int, int]], resolution: int
) -> None:
    result = fitted(trainer, pairs, resolution)
    width, height = np.array(pairs).T
    assert (np.floor(width * result.scale + 0.5) >= result.width - 1).all()
    assert (np.floor(height * result.scale + 0.5) >= result.height - 1).all()
    assert ((result.crop_share >= 0) & (result.crop_share < 1)).all()
    assert (result.squash == 1).all()


@given(st.sampled_from([None, "kohya"]), sizes, resolutions)
def test_kohyas_buckets_keep_to_step_and_area(
    trainer: str | None, pairs: list[tuple[int, int]], resolution: int
) -> None:
    buckets = set(kohya_buckets(resolution))
    for bucket in buckets_of(trainer, pairs, resolution):
        assert bucket in buckets
        assert bucket[0] % 64 == bucket[1] % 64 == 0
        assert bucket[0] * bucket[1] <= resolution * resolution


@given(sizes, resolutions)
def test_the_order_of_pictures_does_not_matter(pairs: list[tuple[int, int]], resolution: int) -> None:
    assert buckets_of("kohya", pairs, resolution)[::-1] == buckets_of("kohya", pairs[::-1], resolution)
