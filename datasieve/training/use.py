"""Learned files in use: loaded, hung on a base, and drawn with."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from datasieve.errors import ConfigError, ModelError

if TYPE_CHECKING:
    import torch

    from datasieve.training.base import Base


@contextlib.contextmanager
def adapted(base: Base, files: Sequence[tuple[Path, float]]) -> Iterator[Callable[[Sequence[str]], torch.Tensor]]:
    """Hang embeddings and hypernetworks on a base for a while; yields what turns prompts into tokens.

    Args:
        base: what they were trained on, or one like it.
        files: each with its strength; several hypernetworks act one after another, in this order.

    Raises:
        ModelError: a file cannot be read, or does not fit the base.
        ConfigError: a strength is given for an embedding, or two embeddings have one name.
    """
    from datasieve.training.formats.embeddings import read_embeddings
    from datasieve.training.formats.hypernetworks import read_hypernetwork
    from datasieve.training.hypernetwork import Hypernetwork
    from datasieve.training.textual_inversion import TextualInversion

    words: dict[str, torch.Tensor] = {}
    networks: list[Hypernetwork] = []
    for path, strength in files:
        if is_hypernetwork(path):
            networks.append(Hypernetwork.of_file(read_hypernetwork(path), strength))
            continue
        if strength != 1.0:
            raise ConfigError(
                f"{path} is an embedding, which has no strength", remedy="Weigh its word in the prompt instead."
            )
        for embedding in read_embeddings(path):
            if len(embedding.vectors) != 1:
                raise ModelError(
                    f"{path} holds vectors for {', '.join(embedding.vectors)}, this base has one text encoder",
                    remedy="Use it with the family of base that it was trained on.",
                )
            word = embedding.name if embedding.name not in ("", "*", "emb_params", "emp_params") else path.stem
            if word in words:
                raise ConfigError(f"two embeddings are called {word}", remedy="Rename one of the files.")
            words[word] = next(iter(embedding.vectors.values()))
    attached: list[Hypernetwork | TextualInversion] = []
    try:
        for network in networks:
            network.attach(base)
            attached.append(network)
        text = TextualInversion.of_vectors(words) if words else None
        if text is not None:
            text.attach(base)
            attached.append(text)
        yield text.tokens if text is not None else plain_tokens(base)
    finally:
        for adapter in attached:
            adapter.detach()


def plain_tokens(base: Base) -> Callable[[Sequence[str]], torch.Tensor]:
    """Return what turns prompts into tokens when no new word is there."""

    def tokens(prompts: Sequence[str]) -> torch.Tensor:
        length = int(base.tokenizer.model_max_length)
        found = base.tokenizer(
            list(prompts), padding="max_length", truncation=True, max_length=length, return_tensors="pt"
        )
        ids: torch.Tensor = found.input_ids
        return ids

    return tokens


def is_hypernetwork(path: Path) -> bool:
    """Tell whether a file holds a hypernetwork, by its contents. Raises ModelError when it cannot be read."""
    from datasieve.training.formats.files import kind_of

    return kind_of(path) == "hypernetwork"
