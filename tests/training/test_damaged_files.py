"""Whatever happens to the bytes of a file, it is read or refused by name; nothing else comes out."""

import base64
import json

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image, PngImagePlugin

from datasieve.errors import ModelError
from datasieve.training.formats.embeddings import Embedding, read_embeddings, write_embedding
from datasieve.training.formats.files import kind_of
from datasieve.training.formats.hypernetworks import Hypernetwork, read_hypernetwork, write_hypernetwork

V = torch.ones(2, 3)
WEIGHTS = {"linear.0.weight": torch.ones(3, 3), "linear.0.bias": torch.ones(3)}
NETWORK = Hypernetwork("style", {3: (WEIGHTS, WEIGHTS)}, layer_structure=(1, 1))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    for form, name in (("a1111", "a.pt"), ("datasieve", "b.safetensors")):
        write_embedding(folder / name, Embedding("<cat>", {"text": V}, step=3), form)
    write_hypernetwork(folder / "c.pt", NETWORK)
    write_hypernetwork(folder / "d.safetensors", NETWORK)
    torch.save({"<cat>": V}, folder / "e.pt", _use_new_zipfile_serialization=False)
    info = PngImagePlugin.PngInfo()
    told = {"string_to_param": {"*": {"TORCHTENSOR": V.tolist()}}, "name": "cat"}
    info.add_text("sd-ti-embedding", base64.b64encode(json.dumps(told).encode()).decode())
    Image.new("RGB", (8, 8), "red").save(folder / "f.png", pnginfo=info)
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=150, deadline=None
)
@given(data=st.data(), name=st.sampled_from(["a.pt", "b.safetensors", "c.pt", "d.safetensors", "e.pt", "f.png"]))
@pytest.mark.filterwarnings("ignore")  # torch and Pillow may say what they think of the bytes
def test_damaged_bytes_are_read_or_refused_by_name(tmp_path, whole, data, name):
    damaged = bytearray(whole[name])
    for _ in range(data.draw(st.integers(0, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    end = data.draw(st.none() | st.integers(1, len(damaged)))
    (tmp_path / name).write_bytes(bytes(damaged[:end]))
    for read in (kind_of, read_embeddings, read_hypernetwork):
        try:
            read(tmp_path / name)
        except ModelError as error:
            assert name in error.message  # noqa: PT017
