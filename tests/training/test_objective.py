from dataclasses import replace

import pytest
import torch

from datasieve.training.objective import losses, noise_for, target_of, timestep_weights, timesteps_for


def test_noise_and_timesteps_of_a_picture_do_not_depend_on_the_batch():
    alone = noise_for(torch.Size((1, 8, 4, 4)), [7])
    among = noise_for(torch.Size((3, 8, 4, 4)), [5, 7, 9])
    assert torch.equal(among[1], alone[0])
    assert timesteps_for([5, 7, 9], 1000)[1] == timesteps_for([7], 1000)[0]


def test_timesteps_cover_all_of_the_schedule_evenly():
    drawn = timesteps_for(list(range(4000)), 1000)
    assert 0 <= int(drawn.min()) < 10
    assert 990 <= int(drawn.max()) < 1000
    assert float(drawn.float().mean()) == pytest.approx(499.5, abs=20)


def test_an_offset_shifts_whole_channels():
    plain = noise_for(torch.Size((1, 8, 4, 4)), [7])
    shifted = noise_for(torch.Size((1, 8, 4, 4)), [7], offset=0.5) - plain
    assert torch.allclose(shifted, shifted[..., :1, :1].expand_as(shifted), atol=1e-6)
    assert float(shifted.abs().max()) > 0.05


def test_the_target_is_noise_or_velocity(base):
    x, noise, moments = torch.randn(2, 8, 4, 4), torch.randn(2, 8, 4, 4), torch.tensor([10, 700])
    assert torch.equal(target_of(base, x, noise, moments), noise)
    kept = base.noise.alphas_cumprod[moments][:, None, None, None]
    by_hand = kept.sqrt() * noise - (1 - kept).sqrt() * x
    assert torch.allclose(target_of(replace(base, prediction="v_prediction"), x, noise, moments), by_hand, atol=1e-5)


def test_min_snr_weighs_as_the_paper_has_it(base):
    moments = torch.tensor([0, 999])
    kept = base.noise.alphas_cumprod[moments]
    ratio = kept / (1 - kept)
    assert float(ratio[0]) > 5 > float(ratio[1])
    epsilon = timestep_weights(base, moments, 5.0)
    assert torch.allclose(epsilon, torch.stack([5 / ratio[0], torch.tensor(1.0)]))
    velocity = timestep_weights(replace(base, prediction="v_prediction"), moments, 5.0)
    assert torch.allclose(velocity, torch.stack([5 / (ratio[0] + 1), ratio[1] / (ratio[1] + 1)]))
    assert torch.equal(timestep_weights(base, moments, 0.0), torch.ones(2))


def test_a_mask_makes_the_loss_the_mean_within_it(base):
    x, noise, moments = torch.randn(1, 8, 8, 8), torch.randn(1, 8, 8, 8), torch.tensor([300])
    text = torch.randn(1, 77, base.text_width)
    masks = torch.zeros(1, 8, 8)
    masks[:, 2:5, 1:4] = 1
    with torch.no_grad():
        noisy = base.noise.add_noise(x, noise, moments)
        error = (base.unet(noisy, moments, encoder_hidden_states=text).sample - noise) ** 2
        found = losses(base, x, text, noise, moments, masks)
        whole = losses(base, x, text, noise, moments, torch.ones(1, 8, 8))
        plain = losses(base, x, text, noise, moments)
    assert float(found) == pytest.approx(float(error[:, :, 2:5, 1:4].mean()), rel=1e-5)
    assert float(whole) == pytest.approx(float(plain), rel=1e-5)
