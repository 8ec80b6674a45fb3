"""What a named trainer makes of a caption: which part it reads, whose tokenizer it uses, how many tokens it keeps.

As the trainers' documents and published notes on their code tell; not run here. kohya reads the first line; OneTrainer
one line at random; A1111 cuts nothing but takes emphasis apart; the others read the text whole and cut it at 75 tokens.
"""

from __future__ import annotations

from datasieve.captions.clip_tokens import CHUNK, Flavour
from datasieve.captions.style import plain


def flavour(trainer: str | None, base: str) -> Flavour:
    """Return whose way of tokenizing a trainer follows.

    A1111 takes open_clip's tokenizer for SD 2.x; everything else loads transformers' CLIPTokenizer.
    """
    return "open_clip" if trainer == "a1111" and base == "sd21" else "transformers"


def token_limit(trainer: str | None) -> int | None:
    """Return how many tokens of a caption the trainer's defaults read; None when it reads all, in chunks of 75.

    kohya's `--max_token_length` 150 or 225 raises its limit; it cannot be seen from the captions.
    """
    return None if trainer == "a1111" else CHUNK


def readings(caption: str, trainer: str | None) -> tuple[str, ...]:
    """Return the texts one of which the trainer reads of `caption`: nearly always one.

    An empty caption is one empty text.
    """
    if "\n" in caption:
        if trainer == "kohya":
            return (caption.split("\n", 1)[0].strip(),)
        if trainer == "onetrainer":
            return tuple(line.strip() for line in caption.split("\n") if line.strip()) or ("",)
    if trainer == "a1111":
        return (plain(caption),)
    return (caption,)
