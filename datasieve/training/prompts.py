"""From captions to the words that are trained on: templates, tags, and the token that must be in them."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from datasieve.errors import ConfigError, InputError

SUBJECT = (
    "a photo of [name]",
    "a picture of [name]",
    "a close-up photo of [name]",
    "a bright photo of [name]",
    "a good photo of one [name]",
    "[name]",
)
"""For sets without captions; short, so that the token carries what the pictures share."""

STYLE = ("a picture in the style of [name]", "a painting in the style of [name]", "[name] style")

WITH_CAPTION = ("[name], [filewords]", "a photo of [name], [filewords]")
"""For Textual Inversion on captions that do not hold the token."""

TEMPLATES = {"subject": SUBJECT, "style": STYLE, "caption": ("[filewords]",), "name-caption": WITH_CAPTION}


def read_template(choice: str) -> tuple[str, ...]:
    """Return the lines of a template: one of `TEMPLATES`, or a text file with one prompt a line. Raises ConfigError."""
    if choice in TEMPLATES:
        return TEMPLATES[choice]
    try:
        lines = Path(choice).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"the template {choice} cannot be read: {error}",
            remedy=f"Choose from {', '.join(TEMPLATES)}, or name a text file with one prompt a line.",
        ) from None
    kept = tuple(line.strip() for line in lines if line.strip())
    if not kept:
        raise ConfigError(f"the template {choice} holds no prompt", remedy="Write one prompt a line.")
    return kept


def fill(template: str, name: str, caption: str) -> str:
    """Put the name and the caption into a template line."""
    return template.replace("[name]", name).replace("[filewords]", caption).strip(" ,")


def vary(caption: str, draw: random.Random, *, shuffle: bool, dropout: float, keep: int = 0) -> str:
    """Shuffle and drop comma-separated tags; the first `keep` stay where they are.

    Args:
        caption: tags or text; without a comma it is one tag.
        draw: where chance comes from.
        shuffle: put the tags in a new order.
        dropout: chance of each tag to be left out, 0..1; the last one left is never dropped.
        keep: tags at the front that are neither moved nor dropped.
    """
    if not shuffle and dropout <= 0:
        return caption
    tags = [tag.strip() for tag in caption.split(",") if tag.strip()]
    head, tail = tags[:keep], tags[keep:]
    kept = [tag for tag in tail if draw.random() >= dropout]
    if not head and not kept and tail:
        kept = [tail[draw.randrange(len(tail))]]
    if shuffle:
        draw.shuffle(kept)
    return ", ".join(head + kept)


def holds(prompt: str, token: str) -> bool:
    """Tell whether a prompt holds the token as a word of its own: `mychar` is not in `mycharacter`."""
    return re.search(rf"(?<!\w){re.escape(token)}(?!\w)", prompt) is not None


def check_tokens(prompts: Mapping[str, Sequence[str]], tokens: Mapping[str, str]) -> None:
    """Make sure that every prompt that may be drawn holds the token it should teach.

    Args:
        prompts: by image path, every prompt it may be given.
        tokens: by image path, its token.

    Raises:
        InputError: names the images whose prompts lack the token; they would train nothing, silently.
    """
    lacking = [path for path, lines in prompts.items() if not all(holds(line, tokens[path]) for line in lines)]
    if lacking:
        token = tokens[lacking[0]]
        shown = "".join(f"\n    {path}: {prompts[path][0]!r}" for path in lacking[:5])
        more = f"\n    and {len(lacking) - 5} more" if len(lacking) > 5 else ""
        raise InputError(
            f"{len(lacking)} of {len(prompts)} images have prompts without {token}, which would teach it nothing:"
            f"{shown}{more}",
            remedy=f"Put {token} into these captions, or use a template with [name], such as --template name-caption.",
        )
