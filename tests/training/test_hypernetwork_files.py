import json

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from datasieve.errors import ModelError, OutputError
from datasieve.training.formats.files import kind_of
from datasieve.training.formats.hypernetworks import (
    Hypernetwork,
    positions,
    read_hypernetwork,
    without_dropout,
    write_hypernetwork,
)
from datasieve.training.hypernetwork import Structure, network


def weights(width=8, **options):
    torch.manual_seed(1)
    made = network(width, Structure(init="Normal", **options))
    return {f"linear.{k}": v for k, v in made.state_dict().items()}


def file_of(**options):
    shape = Structure(init="Normal", **options)
    return Hypernetwork(
        name="style",
        layers={8: (weights(**options), weights(**options)), 16: (weights(16, **options), weights(16, **options))},
        layer_structure=shape.layers,
        activation=shape.activation,
        layer_norm=shape.layer_norm,
        dropout_structure=shape.dropout,
        activate_output=shape.activate_output,
        step=1000,
        base_name="sd15",
    )


@pytest.mark.parametrize(
    ("options", "numbers"),
    [
        ({}, [0, 1]),
        ({"activation": "relu"}, [0, 2]),
        ({"activation": "relu", "dropout": (0, 0.1, 0)}, [0, 3]),
        ({"activation": "relu", "layer_norm": True}, [0, 2, 3, 4]),
        ({"activation": "relu", "layer_norm": True, "dropout": (0, 0.1, 0)}, [0, 2, 4, 5]),
    ],
)
def test_weights_stand_where_the_communitys_files_have_them(options, numbers):
    assert [at.number for at in positions(file_of(**options))] == numbers


def test_the_file_has_a1111s_keys_and_kinds_of_values(tmp_path):
    write_hypernetwork(tmp_path / "style.pt", file_of(activation="relu", dropout=(0, 0.1, 0)))
    found = torch.load(tmp_path / "style.pt", weights_only=True)
    assert {k for k in found if isinstance(k, int)} == {8, 16}
    assert isinstance(found[8], tuple)
    assert set(found[8][0]) == {"linear.0.weight", "linear.0.bias", "linear.2.weight", "linear.2.bias"}
    told = {k: v for k, v in found.items() if isinstance(k, str)}
    assert told == {
        "step": 1000,
        "name": "style",
        "layer_structure": [1, 2, 1],
        "activation_func": "relu",
        "is_layer_norm": False,
        "weight_initialization": "Normal",
        "use_dropout": False,
        "dropout_structure": [0.0, 0.0, 0.0],
        "last_layer_dropout": False,
        "activate_output": False,
        "sd_checkpoint": None,
        "sd_checkpoint_name": "sd15",
        "optional_info": None,
    }


def test_taking_dropout_out_changes_nothing_that_is_computed():
    options = {"layers": (1, 2, 2, 1), "activation": "mish", "layer_norm": True, "dropout": (0, 0.3, 0.3, 0)}
    with_it, bare = file_of(**options), without_dropout(file_of(**options))
    x = torch.randn(4, 8)
    old = network(8, Structure(**options)).eval()
    new = network(8, Structure(**options | {"dropout": None})).eval()
    old.load_state_dict({k.removeprefix("linear."): v for k, v in with_it.layers[8][0].items()})
    new.load_state_dict({k.removeprefix("linear."): v for k, v in bare.layers[8][0].items()})
    assert torch.equal(old(x), new(x))


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_what_is_written_is_read_again(tmp_path, suffix):
    network_file = file_of(activation="swish", layer_norm=True)
    write_hypernetwork(tmp_path / f"style{suffix}", network_file)
    assert kind_of(tmp_path / f"style{suffix}") == "hypernetwork"
    again = read_hypernetwork(tmp_path / f"style{suffix}")
    for name in ("name", "layer_structure", "activation", "layer_norm", "activate_output", "step", "base_name"):
        assert getattr(again, name) == getattr(network_file, name), name
    for width, pair in network_file.layers.items():
        for ours, theirs in zip(pair, again.layers[width], strict=True):
            assert all(torch.equal(ours[key], theirs[key]) for key in ours)


def test_novelais_first_names_are_understood(tmp_path):
    old = {k.replace("linear.0", "linear1").replace("linear.1", "linear2"): v for k, v in weights().items()}
    torch.save({8: (old, old)}, tmp_path / "old.pt")
    found = read_hypernetwork(tmp_path / "old.pt")
    assert set(found.layers[8][0]) == set(weights())
    assert (found.name, found.layer_structure, found.activation, found.activate_output) == (
        "old",
        (1, 2, 1),
        "linear",
        True,
    )


def test_kohyas_lists_are_understood_as_pairs(tmp_path):
    torch.save({8: [weights(), weights()]}, tmp_path / "kohya.pt")
    assert set(read_hypernetwork(tmp_path / "kohya.pt").layers) == {8}


def test_dropout_of_old_files_is_derived(tmp_path):
    shape = {"layers": (1, 2, 2, 1), "activation": "relu", "dropout": (0, 0.3, 0, 0)}
    content = {8: (weights(**shape), weights(**shape)), "layer_structure": [1, 2, 2, 1], "activation_func": "relu",
               "use_dropout": True, "last_layer_dropout": False, "activate_output": False}  # fmt: skip
    torch.save(content, tmp_path / "old.pt")
    assert read_hypernetwork(tmp_path / "old.pt").dropout_structure == (0, 0.3, 0, 0)


def test_derived_dropout_of_a_single_layer_moves_no_weight(tmp_path):
    only = weights(layers=(1, 1))
    torch.save({8: (only, only), "layer_structure": [1, 1], "use_dropout": True}, tmp_path / "old.pt")
    assert read_hypernetwork(tmp_path / "old.pt").dropout_structure is None


def test_an_extensions_file_without_skip_connections_is_an_ordinary_one(tmp_path):
    write_hypernetwork(tmp_path / "a.pt", file_of())
    content = torch.load(tmp_path / "a.pt", weights_only=True)
    torch.save(content | {"skip_connection": False, "upsample_linear": "Linear"}, tmp_path / "a.pt")
    assert set(read_hypernetwork(tmp_path / "a.pt").layers) == {8, 16}


def test_weights_keep_the_order_of_computation_by_which_one_reader_takes_them(tmp_path):
    deep = file_of(layers=(1, *[2] * 11, 1))
    write_hypernetwork(tmp_path / "a.safetensors", deep)
    write_hypernetwork(tmp_path / "a.pt", read_hypernetwork(tmp_path / "a.safetensors"))
    keys = list(torch.load(tmp_path / "a.pt", weights_only=True)[8][0])
    assert keys == [f"linear.{i}.{part}" for i in range(12) for part in ("weight", "bias")]


def test_keys_and_values_that_share_their_weights_are_written_twice(tmp_path):
    same = weights()
    write_hypernetwork(tmp_path / "a.safetensors", Hypernetwork("x", {8: (same, same)}))
    assert torch.equal(
        read_hypernetwork(tmp_path / "a.safetensors").layers[8][1]["linear.0.weight"], same["linear.0.weight"]
    )


def test_our_file_is_as_the_documentation_defines_it(tmp_path):
    write_hypernetwork(tmp_path / "a.safetensors", file_of(activation="relu", dropout=(0, 0.1, 0)))
    with safe_open(str(tmp_path / "a.safetensors"), "pt") as file:
        assert {k for k in file.keys() if k.startswith("8.k.")} == {  # noqa: SIM118
            "8.k.linear.0.weight",
            "8.k.linear.0.bias",
            "8.k.linear.3.weight",
            "8.k.linear.3.bias",
        }
        told = file.metadata()
    assert (told["datasieve"], told["version"]) == ("hypernetwork", "1")
    assert json.loads(told["hypernetwork"]) == {
        "name": "style",
        "layer_structure": [1, 2, 1],
        "activation": "relu",
        "layer_norm": False,
        "dropout_structure": [0, 0.1, 0],
        "activate_output": False,
        "weight_init": "Normal",
        "step": 1000,
        "base_name": "sd15",
        "base_hash": "",
        "optional_info": "",
    }


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"version": "2"}, "version 2; version 1 is read"),
        ({"hypernetwork": "[]"}, "no hypernetwork of datasieve's form"),
        ({"hypernetwork": "{}"}, "no hypernetwork of datasieve's form"),
        ({"hypernetwork": "{"}, "no hypernetwork of datasieve's form"),
    ],
)
def test_a_file_of_ours_that_was_changed_is_refused(tmp_path, change, said):
    write_hypernetwork(tmp_path / "a.safetensors", file_of())
    with safe_open(str(tmp_path / "a.safetensors"), "pt") as file:
        told = file.metadata()
    save_file(load_file(tmp_path / "a.safetensors"), str(tmp_path / "a.safetensors"), metadata=told | change)
    with pytest.raises(ModelError, match=said):
        read_hypernetwork(tmp_path / "a.safetensors")


class AsTold(torch.nn.Module):
    """A1111's module, built from its description: linear, activation, norm, dropout, in one list called `linear`."""

    def __init__(self, width, told):
        super().__init__()
        structure, drop = told["layer_structure"], told["dropout_structure"]
        parts = []
        for i in range(len(structure) - 1):
            parts += [torch.nn.Linear(int(width * structure[i]), int(width * structure[i + 1]))]
            if told["activation_func"] != "linear" and (i < len(structure) - 2 or told["activate_output"]):
                parts += [{"relu": torch.nn.ReLU, "swish": torch.nn.Hardswish}[told["activation_func"]]()]
            parts += [torch.nn.LayerNorm(int(width * structure[i + 1]))] if told["is_layer_norm"] else []
            parts += [torch.nn.Dropout(drop[i + 1])] if drop[i + 1] > 0 else []
        self.linear = torch.nn.Sequential(*parts)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25, deadline=None)
@given(
    inner=st.lists(st.sampled_from([0.5, 1, 1.5, 2, 4]), max_size=3),
    activation=st.sampled_from(["linear", "relu", "swish"]),
    layer_norm=st.booleans(),
    activate_output=st.booleans(),
    drops=st.booleans(),
)
def test_a1111s_module_loads_what_is_written_strictly(tmp_path, inner, activation, layer_norm, activate_output, drops):
    options = {
        "layers": (1, *inner, 1),
        "activation": activation,
        "layer_norm": layer_norm,
        "activate_output": activate_output,
        "dropout": (0, *[0.2] * len(inner), 0) if drops and inner else None,
    }
    written = file_of(**options)
    write_hypernetwork(tmp_path / "a.pt", written)
    write_hypernetwork(tmp_path / "a.safetensors", written)
    told = torch.load(tmp_path / "a.pt", weights_only=True)
    theirs = AsTold(8, told).eval()
    theirs.load_state_dict(told[8][1])
    ours = network(8, Structure(**options)).eval()
    ours.load_state_dict({k.removeprefix("linear."): v for k, v in written.layers[8][1].items()})
    x = torch.randn(3, 8)
    assert torch.equal(theirs.linear(x), ours(x))
    assert read_hypernetwork(tmp_path / "a.safetensors").dropout_structure == options["dropout"]


def test_a_file_without_optimizer_loads_for_use(tmp_path):
    write_hypernetwork(tmp_path / "style.pt", file_of())
    assert read_hypernetwork(tmp_path / "style.pt").step == 1000


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"layer_structure": [1, 4, 1]}, r"linear\.0\.weight is \(16, 8\).*calls for \(32, 8\)"),
        ({"is_layer_norm": True}, "lacks linear.1.weight|is"),
        ({"skip_connection": True}, "skip connections"),
        ({"layer_structure": [1]}, "begin and end with 1"),
        ({"layer_structure": [1, float("inf"), 1]}, "begin and end with 1"),
        ({"layer_structure": [2, 2, 1]}, "begin and end with 1"),
        ({"dropout_structure": [0, 0.3]}, "does not fit the layer structure"),
        ({"dropout_structure": [0, float("nan"), 0]}, "does not fit the layer structure"),
        ({"step": float("inf")}, "no hypernetwork of a known kind"),
        ({"layer_structure": torch.ones(2, 2)}, "no hypernetwork of a known kind"),
        ({8: ({"linear.0.weight": torch.ones(1).expand(10**6, 10**6)}, {})}, "claims"),
        ({8: ({}, {})}, "lacks linear.0.weight"),
        ({8: "nonsense"}, "no hypernetwork of a known kind"),
    ],
)
def test_a_file_that_does_not_fit_its_own_structure_is_refused(tmp_path, change, said):
    write_hypernetwork(tmp_path / "a.pt", file_of())
    found = torch.load(tmp_path / "a.pt", weights_only=True) | change
    torch.save(found, tmp_path / "a.pt")
    with pytest.raises(ModelError, match=said):
        read_hypernetwork(tmp_path / "a.pt")


def test_an_embedding_is_not_taken_for_a_hypernetwork(tmp_path):
    save_file({"emb_params": torch.zeros(1, 4)}, str(tmp_path / "a.safetensors"))
    with pytest.raises(ModelError, match="is an embedding"):
        read_hypernetwork(tmp_path / "a.safetensors")


def test_an_extension_of_another_kind_is_refused(tmp_path):
    with pytest.raises(OutputError, match="is written as"):
        write_hypernetwork(tmp_path / "a.bin", file_of())
    assert list(tmp_path.iterdir()) == []
