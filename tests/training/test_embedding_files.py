"""Every known writer's file is read as what it means, and every form we write is what its readers look for."""

import base64
import json
import pickle
import zlib

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image, PngImagePlugin
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from datasieve.errors import ModelError, OutputError
from datasieve.training.formats.embeddings import Embedding, checksum, read_embeddings, write_embedding
from datasieve.training.formats.files import kind_of

V = torch.arange(12, dtype=torch.float32).reshape(3, 4) / 7
G = torch.arange(15, dtype=torch.float32).reshape(3, 5) / 9
A1111 = {
    "string_to_token": {"*": 265},
    "string_to_param": {"*": V},
    "name": "my-cat",
    "step": 700,
    "sd_checkpoint": "6ce0161689",
    "sd_checkpoint_name": "v1-5-pruned",
}


@pytest.mark.parametrize(
    ("name", "content", "want"),
    [
        ("a1111.pt", A1111, {"my-cat": {"text": V}}),
        ("a1111_parameter.pt", A1111 | {"string_to_param": {"*": torch.nn.Parameter(V)}}, {"my-cat": {"text": V}}),
        ("hcp.pt", {"string_to_param": {"*": V}, "name": "x"}, {"x": {"text": V}}),
        ("kohya.pt", {"emb_params": V}, {"kohya": {"text": V}}),
        ("kohya.safetensors", {"emb_params": V}, {"kohya": {"text": V}}),
        ("diffusers.bin", {"<my-cat>": V}, {"<my-cat>": {"text": V}}),
        ("diffusers.safetensors", {"<my-cat>": V}, {"<my-cat>": {"text": V}}),
        ("diffusers_1d.safetensors", {"<my-cat>": V[0].clone()}, {"<my-cat>": {"text": V[:1]}}),
        ("onetrainer.safetensors", {"emp_params": V}, {"onetrainer": {"text": V}}),
        ("sdxl.safetensors", {"clip_l": V, "clip_g": G}, {"sdxl": {"clip_l": V, "clip_g": G}}),
        ("pivotal_emb.safetensors", {"clip_l": V}, {"pivotal_emb": {"clip_l": V}}),
        ("flux.safetensors", {"clip_l": V, "t5": G}, {"flux": {"clip_l": V, "t5": G}}),
        ("half.safetensors", {"emb_params": V.half()}, {"half": {"text": V.half().float()}}),
        (
            "bundled.safetensors",
            {"lora_unet_a.lora_up.weight": G, "bundle_emb.tok.clip_l": V, "bundle_emb.v1.5.string_to_param.*": V},
            {"tok": {"clip_l": V}, "v1.5": {"text": V}},
        ),
        (
            "lora_of_ai_toolkit.safetensors",
            {"lora_unet_a.lora_up.weight": G, "clip_l": V, "clip_g": G},
            {"lora_of_ai_toolkit": {"clip_l": V, "clip_g": G}},
        ),
        ("brain.safetensors", {"emb_params": V.bfloat16()}, {"brain": {"text": V.bfloat16().float()}}),
        ("word_on_lists.safetensors", {"fade_out": V}, {"fade_out": {"text": V}}),
        ("word_of_a_lora.safetensors", {"lora_style": V}, {"lora_style": {"text": V}}),
        ("word_name.bin", {"name": V}, {"name": {"text": V}}),
        ("bare.pt", V, {"bare": {"text": V}}),
        ("listed.pt", [{"<a>": V}, {"<b>": V}], {"listed": {"text": torch.cat([V, V])}}),
        ("old.ti.pt", {"<s1>": V[0], "<s2>": V[1]}, {"<s1>": {"text": V[:1]}, "<s2>": {"text": V[1:2]}}),
    ],
)
def test_each_writers_file_is_understood(tmp_path, name, content, want):
    file = tmp_path / name
    if name.endswith(".safetensors"):
        save_file({k: v.clone() for k, v in content.items()}, str(file))
    else:
        torch.save(content, file)
    found = {e.name: e.vectors for e in read_embeddings(file)}
    assert {n: set(v) for n, v in found.items()} == {n: set(v) for n, v in want.items()}
    for word, vectors in want.items():
        for encoder, value in vectors.items():
            assert torch.equal(found[word][encoder], value)
            assert found[word][encoder].dtype == torch.float32


def test_a1111s_step_and_base_are_kept(tmp_path):
    torch.save(A1111, tmp_path / "a.pt")
    [found] = read_embeddings(tmp_path / "a.pt")
    assert (found.step, found.base_name, found.base_hash) == (700, "v1-5-pruned", "6ce0161689")


def test_ai_toolkits_metadata_are_kept(tmp_path):
    told = {"name": "my-cat", "step": "700", "sd_checkpoint_name": '"sd15"', "format": "pt"}
    save_file({"emb_params": V}, str(tmp_path / "a.safetensors"), metadata=told)
    [found] = read_embeddings(tmp_path / "a.safetensors")
    assert (found.name, found.step, found.base_name) == ("my-cat", 700, "sd15")


def test_onetrainers_output_vectors_are_kept_apart(tmp_path):
    save_file({"emp_params": V, "emp_params_out": G}, str(tmp_path / "a.safetensors"))
    [found] = read_embeddings(tmp_path / "a.safetensors")
    assert torch.equal(found.vectors["text"], V)
    assert torch.equal(found.outputs["text"], G)


def test_cloneofsimos_file_of_several_words_is_read_by_word(tmp_path):
    told = {"<s1>": "<embed>", "<s2>": "<embed>"}
    save_file({"<s1>": V[0].clone(), "<s2>": V[1].clone()}, str(tmp_path / "a.safetensors"), metadata=told)
    assert {e.name for e in read_embeddings(tmp_path / "a.safetensors")} == {"<s1>", "<s2>"}


@pytest.mark.parametrize("before_torch_1_12", [False, True])
def test_an_original_file_opens_only_when_its_type_is_allowed(tmp_path, before_torch_1_12):
    parameters = torch.nn.ParameterDict({"*": torch.nn.Parameter(V)})
    if before_torch_1_12:
        del parameters.__dict__["_keys"]
    content = {"string_to_token": {"*": torch.tensor(265)}, "string_to_param": parameters}
    torch.save(content, tmp_path / "original.pt")
    with pytest.raises(ModelError, match="ParameterDict") as caught:
        read_embeddings(tmp_path / "original.pt")
    assert "--allow-parameter-dict" in caught.value.remedy
    [found] = read_embeddings(tmp_path / "original.pt", allow_parameter_dict=True)
    assert torch.equal(found.vectors["text"], V)


def test_an_original_file_of_several_words_gives_each_of_them(tmp_path):
    torch.save({"string_to_param": {"<a>": V, "<b>": G}}, tmp_path / "two.pt")
    assert {e.name: e.vectors["text"].shape for e in read_embeddings(tmp_path / "two.pt")} == {
        "<a>": V.shape,
        "<b>": G.shape,
    }


def test_lists_by_encoder_are_told_apart_by_width(tmp_path):
    torch.save([{"<a>": torch.zeros(1, 768)}, {"<a>": torch.ones(1, 1280)}], tmp_path / "sdxl.pt")
    [found] = read_embeddings(tmp_path / "sdxl.pt")
    assert {k: v.shape for k, v in found.vectors.items()} == {"clip_l": (1, 768), "clip_g": (1, 1280)}


def test_both_files_of_diffusers_sdxl_script_are_one_word(tmp_path):
    save_file({"<my-cat>": torch.zeros(1, 768)}, str(tmp_path / "learned_embeds-steps-50.safetensors"))
    save_file({"<my-cat>": torch.ones(1, 1280)}, str(tmp_path / "learned_embeds_2-steps-50.safetensors"))
    [found] = read_embeddings(tmp_path / "learned_embeds-steps-50.safetensors")
    assert {k: v.shape for k, v in found.vectors.items()} == {"clip_l": (1, 768), "clip_g": (1, 1280)}


@pytest.mark.parametrize("step", [float("nan"), float("inf"), "many", True, torch.tensor(3)])
def test_a_step_that_is_no_number_is_unknown(tmp_path, step):
    torch.save(A1111 | {"step": step}, tmp_path / "a.pt")
    assert read_embeddings(tmp_path / "a.pt")[0].step is None


def test_a_hash_that_looks_like_a_number_stays_a_hash(tmp_path):
    told = {"sd_checkpoint": "1234567e89", "modelspec.author": "me", "format": "pt"}
    save_file({"emb_params": V}, str(tmp_path / "a.safetensors"), metadata=told)
    [found] = read_embeddings(tmp_path / "a.safetensors")
    assert found.base_hash == "1234567e89"
    assert found.notes == ("the entry modelspec.author",)


def picture_data():
    tensor = {"TORCHTENSOR": V.tolist()}
    return json.dumps(A1111 | {"string_to_param": {"*": tensor}}).encode()


def test_an_embedding_in_a_pictures_text_is_read(tmp_path):
    info = PngImagePlugin.PngInfo()
    info.add_text("sd-ti-embedding", base64.b64encode(picture_data()).decode())
    Image.new("RGB", (8, 8), "red").save(tmp_path / "cat.png", pnginfo=info)
    [found] = read_embeddings(tmp_path / "cat.png")
    assert found.name == "my-cat"
    assert torch.equal(found.vectors["text"], V)


def test_an_embedding_hidden_in_a_pictures_sides_is_read(tmp_path):
    height, state, masks = 64, 0, []
    data = np.frombuffer(zlib.compress(picture_data(), 9), np.uint8)
    size = -(-len(data) // (height * 3)) * height * 3
    padded = np.resize(data, size)
    for _ in range(size):
        state = (state * 1664525 + 1013904223) % 2**32
        masks.append(state % 255 & 15)
    masks = np.array(masks, np.uint8).reshape(height, -1, 3)
    bands = [((half.reshape(height, -1, 3)) ^ masks) | 0x50 for half in (padded & 15, padded >> 4)]
    middle = np.full((height, 40, 3), 0x77, np.uint8)
    black = np.zeros((height, 1, 3), np.uint8)
    whole = np.concatenate([bands[0], black, middle, black, bands[1]], axis=1)
    Image.fromarray(whole).save(tmp_path / "cat.png")
    [found] = read_embeddings(tmp_path / "cat.png")
    assert torch.equal(found.vectors["text"], V)


def test_a_picture_without_one_says_so(tmp_path):
    Image.new("RGB", (8, 8), "red").save(tmp_path / "plain.png")
    with pytest.raises(ModelError, match=r"plain\.png carries no embedding"):
        read_embeddings(tmp_path / "plain.png")


@pytest.mark.parametrize(
    "told", [b"[1]", b"{", b'{"string_to_param": {"*": {"TORCHTENSOR": [[1], [1, 2]]}}}', b"[" * 10**5]
)
def test_a_picture_with_something_else_in_its_text_says_so(tmp_path, told):
    info = PngImagePlugin.PngInfo()
    info.add_text("sd-ti-embedding", base64.b64encode(told).decode())
    Image.new("RGB", (8, 8), "red").save(tmp_path / "cat.png", pnginfo=info)
    with pytest.raises(ModelError, match=r"cat\.png"):
        read_embeddings(tmp_path / "cat.png")


def test_a_few_bytes_that_claim_to_be_a_huge_tensor_take_no_memory(tmp_path):
    torch.save({"emb_params": torch.ones(1).expand(10**6, 10**6)}, tmp_path / "huge.pt")
    with pytest.raises(ModelError, match="claims 1000000000000 numbers"):
        read_embeddings(tmp_path / "huge.pt")


class Evil:
    def __reduce__(self):
        return (print, ("this must never be printed",))


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("empty.pt", b"", "empty"),
        ("noise.pt", b"\x80\x02nonsense", "cannot be read|not opened"),
        ("noise.safetensors", b"nonsense" * 8, "no whole"),
        ("evil.pt", pickle.dumps({"string_to_param": Evil()}), "could run code|cannot be read"),
        ("short.safetensors", b"\xff\xff\0\0\0\0\0\0{", "no whole"),
    ],
)
def test_bad_files_are_told_by_name_and_nothing_in_them_runs(tmp_path, capsys, name, content, said):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ModelError, match=said) as caught:
        read_embeddings(tmp_path / name)
    assert name in caught.value.message
    assert "never be printed" not in capsys.readouterr().out


def test_a_zipped_pickle_with_code_is_refused(tmp_path, capsys):
    torch.save({"string_to_param": Evil()}, tmp_path / "evil.pt")
    with pytest.raises(ModelError, match="could run code"):
        read_embeddings(tmp_path / "evil.pt")
    assert "never be printed" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"IN01": V, "MID": V, "OUT03": V}, "XTI"),
        ({"a": V, "b": V}, "no embedding that is known"),
        ({"emb_params": torch.full((2, 2), float("nan"))}, "NaN"),
        ({"emb_params": torch.zeros(2, 2, 2)}, "matrix"),
        ({"lora_unet_x.lora_up.weight": V}, "LoRA"),
        ({"model.diffusion_model.x": V}, "whole model"),
        ({"emb_params": torch.zeros(2, 2, dtype=torch.int64)}, "fractional numbers"),
        ({"emb_params": torch.zeros(0, 4)}, "matrix"),
    ],
)
def test_what_cannot_be_used_says_why(tmp_path, content, said):
    save_file({k: v.clone() for k, v in content.items()}, str(tmp_path / "a.safetensors"))
    with pytest.raises(ModelError, match=said):
        read_embeddings(tmp_path / "a.safetensors")


ONE = Embedding("<my-cat>", {"text": V}, step=700, base_name="sd15", base_hash="6ce0161689")


def test_our_file_has_kohyas_single_key_and_tells_the_rest_in_its_metadata(tmp_path):
    write_embedding(tmp_path / "cat.safetensors", ONE, "datasieve")
    assert list(load_file(tmp_path / "cat.safetensors")) == ["emb_params"]
    with safe_open(str(tmp_path / "cat.safetensors"), "pt") as file:
        assert file.metadata()["name"] == "<my-cat>"
    [again] = read_embeddings(tmp_path / "cat.safetensors")
    assert (again.name, again.step, again.base_name) == ("<my-cat>", 700, "sd15")
    assert torch.equal(again.vectors["text"], V)


def test_a1111s_file_is_the_dictionary_that_it_writes_itself(tmp_path):
    write_embedding(tmp_path / "cat.pt", ONE, "a1111")
    found = torch.load(tmp_path / "cat.pt", weights_only=True)
    assert set(found) == {*A1111}
    assert found["string_to_token"] == {"*": 265}
    assert torch.equal(found["string_to_param"]["*"], V)


def test_the_optimizers_file_beside_an_embedding_is_told_apart(tmp_path):
    torch.save({"hash": "1379", "optimizer_state_dict": {}}, tmp_path / "cat.pt.optim")
    with pytest.raises(ModelError, match="optimizer's state") as caught:
        read_embeddings(tmp_path / "cat.pt.optim")
    assert "without .optim" in caught.value.remedy


def test_a_row_of_a_table_takes_only_itself_into_the_file(tmp_path):
    table = torch.randn(5000, 64)
    for form, name in (("a1111", "a.pt"), ("datasieve", "a.safetensors")):
        write_embedding(tmp_path / name, Embedding("x", {"text": table[7:9]}), form)
        assert (tmp_path / name).stat().st_size < 5000


def test_one_tensor_under_two_keys_is_written_twice(tmp_path):
    word = Embedding("x", {"text": V}, {"text": V})
    write_embedding(tmp_path / "a.safetensors", word, "onetrainer")
    assert set(load_file(tmp_path / "a.safetensors")) == {"emp_params", "emp_params_out"}


def test_what_a_form_does_not_hold_is_listed(tmp_path):
    word = Embedding("x", {"text": V}, {"text": V}, step=0, base_name="sd15", notes=("the entry notes",))
    assert write_embedding(tmp_path / "a.safetensors", word, "diffusers") == [
        "the entry notes",
        "the output vectors",
        "the step",
        "the base",
    ]


@pytest.mark.parametrize("name", ["", "\udcff"])
def test_a_name_that_files_cannot_hold_is_refused(tmp_path, name):
    with pytest.raises(ModelError, match="cannot be a name"):
        write_embedding(tmp_path / "a.safetensors", Embedding(name, {"text": V}), "diffusers")
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_is_full_leaves_nothing_half_written(tmp_path, monkeypatch):
    from safetensors import SafetensorError

    def full(*_, **__):
        raise SafetensorError("Error while serializing: No space left on device (os error 28)")

    monkeypatch.setattr("safetensors.torch.save_file", full)
    with pytest.raises(OutputError, match="No space left"):
        write_embedding(tmp_path / "a.safetensors", ONE, "datasieve")
    assert list(tmp_path.iterdir()) == []


def test_onetrainers_file_has_its_own_spelling(tmp_path):
    lost = write_embedding(tmp_path / "cat.safetensors", ONE, "onetrainer")
    assert list(load_file(tmp_path / "cat.safetensors")) == ["emp_params"]
    assert "the name" in lost


def test_both_encoders_of_an_sdxl_word_stand_in_one_file(tmp_path):
    word = Embedding("<my-cat>", {"clip_l": V, "clip_g": G})
    write_embedding(tmp_path / "cat.safetensors", word, "datasieve")
    assert set(load_file(tmp_path / "cat.safetensors")) == {"clip_l", "clip_g"}
    with pytest.raises(ModelError, match="SD 1 and 2's text encoder") as caught:
        write_embedding(tmp_path / "cat.pt", word, "a1111")
    assert "A1111, ComfyUI" in caught.value.remedy


@pytest.mark.parametrize(("form", "name"), [("a1111", "a.safetensors"), ("datasieve", "a.pt"), ("diffusers", "a.png")])
def test_an_extension_that_does_not_fit_the_form_is_refused(tmp_path, form, name):
    with pytest.raises(OutputError, match="is written as"):
        write_embedding(tmp_path / name, ONE, form)
    assert list(tmp_path.iterdir()) == []


def test_numbers_that_are_not_finite_are_never_written(tmp_path):
    with pytest.raises(ModelError, match="NaN"):
        write_embedding(tmp_path / "a.pt", Embedding("x", {"text": V / 0}), "a1111")
    assert list(tmp_path.iterdir()) == []


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25, deadline=None)
@given(
    name=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20).filter(lambda n: n not in "*"),
    shape=st.tuples(st.integers(1, 8), st.integers(1, 9)),
    form=st.sampled_from(["a1111", "datasieve"]),
    step=st.none() | st.integers(0, 10**6),
)
def test_what_is_written_is_read_again(tmp_path, name, shape, form, step):
    file = tmp_path / f"a{'.pt' if form == 'a1111' else '.safetensors'}"
    vectors = torch.randn(shape)
    write_embedding(file, Embedding(name, {"text": vectors}, step=step), form)
    [found] = read_embeddings(file)
    assert kind_of(file) == "embedding"
    assert (found.name, found.step) == (name, step)
    assert torch.equal(found.vectors["text"], vectors)


def test_the_checksum_is_a1111s():
    # By hand, for one number 0.05: int(5.0) = 5, (0 * 281) ^ (5 * 997) = 4985 = 0x1379.
    assert checksum(torch.tensor([[0.05]])) == "1379"
    # And a second, -0.03: int(-3.0) = -3; (4985 * 281) ^ (-3 * 997) in 32 bits, of which the low 16.
    assert checksum(torch.tensor([[0.05, -0.03125]])) == f"{((4985 * 281) ^ (-3 * 997)) & 0xFFFF:04x}"
