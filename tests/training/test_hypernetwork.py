import pytest
import torch

from datasieve.errors import ConfigError, ModelError
from datasieve.training.hypernetwork import Hypernetwork, Structure, network


def predict(base, seed=0):
    generator = torch.Generator().manual_seed(seed)
    latents = torch.randn((2, base.unet.config.in_channels, 8, 8), generator=generator)
    text = torch.randn((2, 77, base.text_width), generator=generator)
    return base.unet(latents, torch.tensor([10, 500]), encoder_hidden_states=text).sample


@pytest.fixture
def attached(base):
    made = []

    def attach(structure=None, **options):
        adapter = Hypernetwork(structure, **options)
        adapter.attach(base)
        made.append(adapter)
        return adapter

    yield attach
    for adapter in made:
        adapter.detach()


def test_the_zero_start_leaves_the_base_as_it_is(base, attached):
    with torch.no_grad():
        before = predict(base)
        adapter = attached(Structure())
        adapter.train(True)
        assert torch.equal(predict(base), before)
    assert adapter.disturbance() == 0


def test_keys_and_values_of_self_and_cross_attention_learn(base, attached):
    adapter = attached(Structure())
    adapter.train(True)
    assert set(adapter.networks) == {"112", "128", "160"}
    predict(base).square().mean().backward()
    for name, parameter in adapter.named_parameters():
        if name.endswith("1.weight"):  # the last layer; behind its zeros the first one has no gradient yet
            assert parameter.grad.abs().max() > 0, name


def test_only_cross_attention_when_that_is_asked_for(base, attached):
    adapter = attached(Structure(cross_only=True))
    assert set(adapter.networks) == {"112"}
    hooked = [n for n, m in base.unet.named_modules() if m._forward_pre_hooks]
    assert hooked
    assert all(".attn2." in name for name in hooked)


def test_strength_counts_in_use_and_never_in_training(base, attached):
    adapter = attached(Structure(init="Normal"))
    with torch.no_grad():
        adapter.train(False)
        full = predict(base)
        adapter.strength = 0.0
        nothing = predict(base)
        adapter.train(True)
        trained = predict(base)
        adapter.detach()
        plain = predict(base)
    assert torch.equal(nothing, plain)
    assert torch.equal(trained, full)
    assert not torch.equal(full, plain)


def test_detaching_leaves_no_trace(base, attached):
    attached(Structure(init="KaimingNormal")).detach()
    assert not [n for n, m in base.unet.named_modules() if m._forward_pre_hooks or m._forward_hooks]


@pytest.mark.parametrize(
    ("structure", "names"),
    [
        (Structure(), ["0.weight", "0.bias", "1.weight", "1.bias"]),
        (Structure(activation="relu"), ["0.weight", "0.bias", "2.weight", "2.bias"]),
        (Structure(activation="relu", dropout=(0, 0.1, 0)), ["0.weight", "0.bias", "3.weight", "3.bias"]),
        (
            Structure(activation="relu", layer_norm=True),
            [f"{i}.{end}" for i in (0, 2, 3, 4) for end in ("weight", "bias")],
        ),
        (
            Structure(activation="relu", layer_norm=True, dropout=(0, 0.1, 0)),
            [f"{i}.{end}" for i in (0, 2, 4, 5) for end in ("weight", "bias")],
        ),
    ],
)
def test_parameters_are_named_as_in_the_communitys_files(structure, names):
    assert list(network(8, structure).state_dict()) == names


@pytest.mark.parametrize(
    ("init", "activation", "width", "published"),
    [("Normal", "linear", 768, 0.109), ("XavierNormal", "linear", 768, 0.94), ("KaimingNormal", "linear", 768, 2.0),
     ("KaimingNormal", "relu", 768, 1.41), ("Normal", "linear", 1280, 0.181)],
)  # fmt: skip
def test_published_starts_disturb_the_base_as_much_as_was_measured_elsewhere(init, activation, width, published):
    torch.manual_seed(0)
    made = network(width, Structure(init=init, activation=activation))
    x = torch.randn(64, width)
    with torch.no_grad():
        share = float(made(x).norm() / x.norm())
    assert share == pytest.approx(published, rel=0.05)


def test_swish_is_hardswish_as_in_the_community():
    assert isinstance(network(8, Structure(activation="swish"))[1], torch.nn.Hardswish)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"layers": (1, 2)}, "begin and end with 1"),
        ({"layers": (2, 1)}, "begin and end with 1"),
        ({"dropout": (0, 1.0, 0)}, "dropout"),
        ({"dropout": (0, 0.5)}, "dropout"),
        ({"init": "magic"}, "magic"),
        ({"activation": "wobble"}, "wobble"),
    ],
)
def test_a_structure_that_cannot_be_is_refused(options, said):
    with pytest.raises(ConfigError, match=said):
        Structure(**options)


def test_a_hypernetwork_of_another_family_is_refused_naming_both_widths(base):
    adapter = Hypernetwork(Structure())
    adapter.networks = torch.nn.ModuleDict({"768": torch.nn.ModuleList([network(768, Structure())] * 2)})
    with pytest.raises(ModelError, match=r"768.*112, 128, 160"):
        adapter.attach(base)
    assert not [n for n, m in base.unet.named_modules() if m._forward_pre_hooks]
