import numpy as np
import pytest

from datasieve.training.early_warning import RelativeLoss, curvature, drifts, judge


def test_a_straight_line_does_not_bend_whatever_its_slope():
    for slope in (-0.02, 0.0, 0.02):
        assert curvature([1 + slope * i for i in range(75)], 25) == pytest.approx(0, abs=1e-9)


def test_a_fall_that_turns_into_a_rise_bends_upwards_and_the_reverse_downwards():
    valley = [1.0] * 25 + [0.5] * 25 + [1.0] * 25
    assert curvature(valley, 25) == pytest.approx(1)
    assert curvature([-v for v in valley], 25) == pytest.approx(-1)


def test_a_loss_that_levels_off_raises_no_alert():
    falling = [1.0] * 25 + [0.6] * 25 + [0.5] * 25
    assert curvature(falling, 25) == 0
    assert judge(falling, [], 25)[0] == "none"


def test_scatter_alone_rarely_raises_an_alert():
    rng = np.random.default_rng(0)
    alerts = sum(judge(list(1 + 0.3 * rng.standard_normal(75)), [], 25)[0] != "none" for _ in range(500))
    assert alerts <= 5


def test_too_few_steps_say_nothing():
    assert curvature([1.0, 0.1, 5.0] * 10, 25) == 0


def test_vectors_fade_when_they_are_small_and_fall_fast():
    fading = [0.012, 0.010, 0.008, 0.006, 0.004]
    assert drifts(fading)
    assert not drifts(fading[1:])  # too few records
    assert not drifts([v * 100 for v in fading])  # falling, but still large
    assert not drifts([0.004] * 5)  # small, but steady


def test_both_signs_together_roll_back_where_one_would_not():
    bending = [1.0] * 25 + [0.5] * 25 + [0.8] * 25
    # ((c - b) - (b - a)) / 0.8 = 1, times 2 (c - b) / 0.8 = 0.75
    assert curvature(bending, 25) == pytest.approx(0.75)
    assert judge(bending, [], 25)[0] == "none"
    assert judge([1.0] * 25 + [0.5] * 25 + [0.62] * 25, [0.012, 0.010, 0.008, 0.006, 0.004], 25)[0] == "alert"
    assert judge(bending, [0.012, 0.010, 0.008, 0.006, 0.004], 25)[0] == "roll back"


def test_relative_losses_do_not_depend_on_which_timesteps_were_drawn():
    relative = RelativeLoss(1000)
    for _ in range(20):
        relative.of([1.0, 0.01], [50, 950])
    assert relative.of([0.5], [70]) == pytest.approx(0.5)
    assert relative.of([0.005], [930]) == pytest.approx(0.5)
    again = RelativeLoss(1000)
    again.load(relative.state())
    assert again.of([0.5, 0.02], [70, 930]) == pytest.approx((0.5 + 2) / 2)
