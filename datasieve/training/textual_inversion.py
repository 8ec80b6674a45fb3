"""Textual Inversion (Gal et al. 2022): a few token vectors, beside the frozen table.

The vectors are a parameter of their own. Captions are cut at the placeholders, and ids beyond the table's end stand for
the learned vectors; a hook on the table looks these up in the parameter. So nothing is resized, no other row can move,
and gradient clipping sees the new vectors' norm alone (in a resized table most of the gradient's norm belongs to other
rows).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from datasieve.errors import ConfigError, ModelError, OutputError

if TYPE_CHECKING:
    from datasieve.training.base import Base

NORM_PRIORS = ("none", "pull", "rescale")
PULL = 100.0
"""How fast "pull" acts: each step takes min(1, PULL x learning rate) of the way, as in cloneofsimo's trainer."""


@dataclass(frozen=True)
class Token:
    """A placeholder and what it starts from.

    Attributes:
        word: as it stands in captions, such as `<my-cat>`.
        vectors: how many token vectors it has.
        init: words to start from; "" draws vectors like the table's own.
    """

    word: str
    vectors: int = 1
    init: str = ""


class TextualInversion:
    """One or several placeholders with their vectors. Implements `datasieve.training.adapter.Adapter`.

    Args:
        tokens: the placeholders.
        norm_prior: "none"; "pull" draws each vector's norm towards the table's median norm after each step (direction
            kept); "rescale" sets it there.
        seed: of random starts.

    Raises:
        ConfigError: no token, two alike, or a token that is an ordinary word.
    """

    kind = "ti"
    learns_text = True

    def __init__(self, tokens: Sequence[Token], *, norm_prior: str = "none", seed: int = 0) -> None:
        words = [token.word for token in tokens]
        if not words or len(set(words)) < len(words):
            raise ConfigError("each concept needs a token of its own", remedy="Give --token concept=<word> for each.")
        for token in tokens:
            if not token.word.strip() or token.word != token.word.strip() or token.vectors < 1:
                raise ConfigError(f"{token.word!r} cannot be a token", remedy="Use a made-up word such as <my-cat>.")
        if norm_prior not in NORM_PRIORS:
            raise ConfigError(f"there is no norm prior {norm_prior!r}", remedy=f"Choose from {', '.join(NORM_PRIORS)}.")
        self.placeholders = tuple(tokens)
        self.norm_prior = norm_prior
        self.seed = seed
        self.rate = 0.0  # set by the loop, read by "pull"
        self._base: Base | None = None
        self._hooks: list[Any] = []
        # The longest first, so that <cat> is not found within <cat>s.
        longest = sorted(words, key=len, reverse=True)
        self._pattern = re.compile("|".join(rf"(?<!\w){re.escape(w)}(?!\w)" for w in longest))

    @classmethod
    def of_vectors(cls, learned: Mapping[str, torch.Tensor]) -> TextualInversion:
        """Return learned placeholders, ready to be attached: word -> (vectors, width)."""
        made = cls([Token(word, len(rows)) for word, rows in learned.items()])
        made.vectors = torch.nn.Parameter(torch.cat([rows.detach().float() for rows in learned.values()]))
        made.first = made.vectors.detach().clone()
        return made

    # -- hanging on the base ----------------------------------------------------------------------------------------

    def attach(self, base: Base) -> None:
        """See `Adapter.attach`. Starts the vectors when there are none yet."""
        table = base.token_table
        for token in self.placeholders:
            pieces = base.tokenizer.tokenize(token.word)
            if len(pieces) == 1:
                raise ConfigError(
                    f"{token.word!r} already is a word of this base, and loaders refuse it",
                    remedy=f"Use a made-up word such as <{token.word}>.",
                )
        if not hasattr(self, "vectors"):
            self.vectors = torch.nn.Parameter(self._start(base))
            self.first = self.vectors.detach().clone()
        if self.vectors.shape[1] != base.text_width:
            raise ModelError(
                f"the embedding is {self.vectors.shape[1]} wide, the text encoder of {base.path} {base.text_width}",
                remedy="An embedding only fits the family of base that it was trained on.",
            )
        self.vectors.data = self.vectors.data.to(base.device)
        self._base, rows = base, table.weight.shape[0]
        seen: dict[str, torch.Tensor] = {}

        def before(_: Any, arguments: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
            seen["ids"] = arguments[0]
            return (arguments[0].clamp(max=rows - 1), *arguments[1:])

        def after(_: Any, __: Any, output: torch.Tensor) -> torch.Tensor:
            ids = seen.pop("ids")
            new = ids >= rows
            if not bool(new.any()):
                return output
            looked_up = torch.nn.functional.embedding((ids - rows).clamp(min=0), self.vectors).to(output.dtype)
            return torch.where(new[..., None], looked_up, output)

        self._hooks = [table.register_forward_pre_hook(before), table.register_forward_hook(after)]

    def detach(self) -> None:
        """See `Adapter.detach`."""
        for hook in self._hooks:
            hook.remove()
        self._hooks, self._base = [], None

    def _start(self, base: Base) -> torch.Tensor:
        """Return the vectors to start from, (all tokens' vectors, width), norms at the table's median."""
        table = base.token_table.weight.detach().float().cpu()
        median = float(table.norm(dim=1).median())
        generator = torch.Generator().manual_seed(self.seed)
        parts = []
        for token in self.placeholders:
            ids = base.tokenizer(token.init, add_special_tokens=False).input_ids if token.init else []
            if token.init and not ids:
                raise ConfigError(f"the start {token.init!r} holds no word", remedy="Give --init a word or two.")
            if ids:
                # Fewer words than vectors: go round; a little noise keeps equal rows from staying equal.
                rows = table[[ids[i % len(ids)] for i in range(token.vectors)]].clone()
                again = torch.arange(token.vectors) >= len(ids)
                noise = torch.randn(rows.shape, generator=generator) * table.std() * 0.1
                rows[again] += noise[again]
            else:
                rows = table.mean(0) + table.std(0) * torch.randn(token.vectors, table.shape[1], generator=generator)
            parts.append(rows * (median / rows.norm(dim=1, keepdim=True).clamp(min=1e-8)))
        return torch.cat(parts)

    # -- parameters -------------------------------------------------------------------------------------------------

    def named_parameters(self) -> Iterable[tuple[str, torch.nn.Parameter]]:
        """See `Adapter.named_parameters`."""
        return [("vectors", self.vectors)]

    def state(self) -> Mapping[str, torch.Tensor]:
        """See `Adapter.state`."""
        return {"vectors": self.vectors.detach().cpu().clone(), "first": self.first.cpu().clone()}

    def load_state(self, state: Mapping[str, torch.Tensor]) -> None:
        """See `Adapter.load_state`."""
        given, wanted = state["vectors"], self.vectors
        if given.shape != wanted.shape:
            raise ModelError(f"the checkpoint holds vectors of shape {tuple(given.shape)}, not {tuple(wanted.shape)}")
        with torch.no_grad():
            wanted.copy_(given.to(wanted.device))
        self.first = state["first"].clone()

    def train(self, training: bool) -> None:
        """See `Adapter.train`: nothing differs here."""

    def rows_of(self, word: str) -> slice:
        """Return which rows of `vectors` are a placeholder's."""
        start = 0
        for token in self.placeholders:
            if token.word == word:
                return slice(start, start + token.vectors)
            start += token.vectors
        raise KeyError(word)

    # -- captions ---------------------------------------------------------------------------------------------------

    def tokens(self, captions: Sequence[str]) -> torch.Tensor:
        """See `Adapter.tokens`. A placeholder takes as many places as it has vectors, in order."""
        assert self._base is not None, "attach the adapter first"
        tokenizer, rows = self._base.tokenizer, self._base.token_table.weight.shape[0]
        room = int(tokenizer.model_max_length)
        out = torch.full((len(captions), room), int(tokenizer.pad_token_id), dtype=torch.int64)
        for i, caption in enumerate(captions):
            ids: list[int] = []
            end = 0
            for found in self._pattern.finditer(caption):
                ids += tokenizer(caption[end : found.start()], add_special_tokens=False).input_ids
                place = self.rows_of(found.group())
                ids += range(rows + place.start, rows + place.stop)
                end = found.end()
            ids += tokenizer(caption[end:], add_special_tokens=False).input_ids
            ids = [int(tokenizer.bos_token_id), *ids[: room - 2], int(tokenizer.eos_token_id)]
            out[i, : len(ids)] = torch.tensor(ids)
        return out

    # -- after each step, and at the end ----------------------------------------------------------------------------

    def after_step(self) -> None:
        """See `Adapter.after_step`: applies the norm prior."""
        if self.norm_prior == "none":
            return
        assert self._base is not None, "attach the adapter first"
        median = self._base.token_table.weight.detach().float().norm(dim=1).median()
        share = 1.0 if self.norm_prior == "rescale" else min(1.0, PULL * self.rate)
        with torch.no_grad():
            norm = self.vectors.norm(dim=1, keepdim=True).clamp(min=1e-8)
            self.vectors.mul_((norm + share * (median - norm)) / norm)

    def export(self, path: Path, *, step: int) -> list[Path]:
        """See `Adapter.export`. With several placeholders the word stands in the file's name.

        Raises:
            OutputError: the vectors are what they started from, or the file does not hold what was learned.
        """
        from datasieve.training.formats.embeddings import Embedding, read_embeddings, write_embedding

        files = []
        for token in self.placeholders:
            rows = self.rows_of(token.word)
            learned = self.vectors.detach().float().cpu()[rows].contiguous()
            if torch.equal(learned, self.first[rows].cpu()):
                raise OutputError(
                    f"{token.word} was never changed, so there is nothing to save",
                    remedy="Look whether the captions hold the token, and whether the learning rate is above 0.",
                )
            several = len(self.placeholders) > 1
            file = path.with_name(f"{path.stem}-{plain_name(token.word)}{path.suffix}") if several else path
            base_name = Path(self._base.path).name if self._base is not None else ""
            embedding = Embedding(name=token.word, vectors={"text": learned}, step=step, base_name=base_name)
            write_embedding(file, embedding, "datasieve")
            kept = next(iter(read_embeddings(file)[0].vectors.values()))
            if not torch.equal(kept, learned):
                raise OutputError(f"{file} does not hold what was learned", remedy="Check the disk and try again.")
            files.append(file)
        return files


def plain_name(word: str) -> str:
    """Return a placeholder as a safe file name: `<my-cat>` becomes `my-cat`."""
    return re.sub(r"[^\w.-]+", "-", word).strip("-.") or "token"
