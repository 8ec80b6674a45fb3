"""Licence-clean captioned pictures for the small models: colour emoji, subject photos, captioned photos.

`collect` draws and reads them once into an .npz; `Pictures.draw` makes augmented pictures with captions from it.

- Emoji: Noto Color Emoji (SIL OFL 1.1; Debian's fonts-noto-color-emoji), drawn by Pillow with raqm, named by the PyPI
  package `emoji` (BSD). They come on coloured backgrounds, at several sizes, now and then in black and white, and the
  caption says so.
- Subject photos: DATA/subjects (CC-BY-4.0, Unsplash, Apache-2.0; named in its references_and_licenses.txt), cut around
  their boxes. `HELD_OUT` subjects take part in no training: every claim about learning uses only those.
- Captioned photos: DATA/captioned, gcompris_tags and gcompris_commons (public domain, CC0). Nothing under the GPL.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

HELD_OUT = ("backpack", "bear_plushie", "cat", "dog6", "duck_toy", "monster_toy", "rc_car", "teapot")
FONT = Path("/usr/share/fonts/truetype/noto/NotoColorEmoji.ttf")
SIDE = 64
STORED = 96  # pictures are kept a little larger than they are drawn, so that crops are real pixels
BACKGROUNDS = {
    "white": (255, 255, 255),
    "black": (12, 12, 14),
    "grey": (128, 128, 130),
    "red": (205, 50, 45),
    "orange": (238, 140, 50),
    "yellow": (246, 220, 90),
    "green": (70, 160, 80),
    "blue": (60, 110, 200),
    "purple": (130, 80, 170),
    "pink": (245, 170, 190),
    "brown": (120, 80, 50),
}
SKIN = re.compile(r"_(?:medium-light|medium-dark|light|medium|dark)_skin_tone")
UNDRAWABLE = re.compile(r"^(?:keycap|Japanese|.*_button)")


def emoji_name(code: str) -> str:
    """Turn `:woman_blond_hair:` into `woman blond hair`."""
    return code.strip(":").replace("_", " ").replace("’", "'").replace("“", "").replace("”", "")


def draw_emoji() -> tuple[list[npt.NDArray[np.uint8]], list[str]]:
    """Return the emoji that the font draws as one picture, (STORED, STORED, 4) RGBA, and their English names."""
    import emoji

    font = ImageFont.truetype(str(FONT), 109, layout_engine=ImageFont.Layout.RAQM)
    pictures, names = [], []
    for sign, facts in emoji.EMOJI_DATA.items():
        code = facts["en"]
        # One skin tone in three is enough of the thousands of people; couples of mixed tones are left out.
        tones = SKIN.findall(code)
        if facts["status"] != emoji.STATUS["fully_qualified"] or len(tones) > 1 or UNDRAWABLE.match(code.strip(":")):
            continue
        canvas = Image.new("RGBA", (420, 170))
        ImageDraw.Draw(canvas).text((10, 10), sign, font=font, embedded_color=True)
        box = canvas.getbbox()
        if box is None or box[2] - box[0] > 150:  # drawn as several signs beside each other
            continue
        cut = canvas.crop(box)
        square = Image.new("RGBA", (max(cut.size),) * 2)
        square.paste(cut, ((square.width - cut.width) // 2, (square.height - cut.height) // 2))
        pictures.append(np.asarray(square.resize((STORED, STORED), Image.Resampling.LANCZOS)))
        is_flag = 0x1F1E6 <= ord(sign[0]) <= 0x1F1FF
        names.append(f"flag of {emoji_name(code)}" if is_flag else emoji_name(code))
    return pictures, names


def commons_name(stem: str) -> str:
    """Make words of a Wikimedia Commons title: no numbers, brackets or underscores."""
    words = re.sub(r"\(.*?\)|[-_,]|\d+", " ", stem)
    return " ".join(words.split()).lower()


def read_photos(data: Path) -> tuple[list[npt.NDArray[np.uint8]], list[str]]:
    """Return square cuts of the photos that may be trained on, (STORED, STORED, 3), and their captions."""
    pictures, captions = [], []
    with open(data / "subjects" / "annotations.csv", encoding="utf-8") as table:
        for row in csv.DictReader(table):
            if row["subject"] in HELD_OUT:
                continue
            photo = Image.open(data / "subjects" / row["file"]).convert("RGB")
            box = [float(row[k]) for k in ("x0", "y0", "x1", "y1")]
            for margin in (0.05, 0.25, 0.6):
                pictures.append(_square(photo, box, margin))
                captions.append(f"{row['noun']}, {row['scene']}" if margin > 0.1 else row["noun"])
    with open(data / "captioned" / "captions.csv", encoding="utf-8") as table:
        for row in csv.DictReader(table):
            if row["set"] not in ("gcompris_tags", "gcompris_commons"):
                continue
            path = data / "captioned" / row["file"]
            if not path.is_file():
                continue
            words = row["caption"] if row["set"] == "gcompris_tags" else commons_name(path.stem)
            pictures.append(_square(Image.open(path).convert("RGB"), (0, 0, 1, 1), 0.0))
            captions.append(words)
    return pictures, captions


def _square(photo: Image.Image, box: Sequence[float], margin: float) -> npt.NDArray[np.uint8]:
    """Cut a square around a box given in shares of the sides, with a margin in shares of the box."""
    width, height = photo.size
    x0, y0, x1, y1 = box[0] * width, box[1] * height, box[2] * width, box[3] * height
    side = min(max(x1 - x0, y1 - y0) * (1 + 2 * margin), width, height)
    left = min(max((x0 + x1 - side) / 2, 0), width - side)
    top = min(max((y0 + y1 - side) / 2, 0), height - side)
    cut = photo.resize((STORED, STORED), Image.Resampling.LANCZOS, box=(left, top, left + side, top + side))
    return np.asarray(cut)


def collect(data: Path, out: Path) -> None:
    """Draw the emoji and read the photos into one .npz."""
    signs, names = draw_emoji()
    photos, captions = read_photos(data)
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = out.with_name(out.name + ".partial.npz")
    np.savez(
        partial, signs=np.stack(signs), names=np.array(names), photos=np.stack(photos), captions=np.array(captions)
    )
    partial.replace(out)
    print(f"{len(signs)} emoji, {len(photos)} photo cuts -> {out}")


class Pictures:
    """Draws augmented pictures with captions; one in fifteen base pictures is held out for measuring."""

    def __init__(self, path: Path, *, held_out: bool = False) -> None:
        stored = np.load(path)
        rng = np.random.default_rng(5)
        self.signs, self.names = stored["signs"], stored["names"].tolist()
        self.photos, self.captions = stored["photos"], stored["captions"].tolist()
        # Many emoji are one person in several skin tones: each base name weighs the same.
        base = [re.sub(r" (?:medium-light|medium-dark|light|medium|dark) skin tone", "", n) for n in self.names]
        of_base = {b: base.count(b) for b in set(base)}
        weight = np.array([1.0 / of_base[b] for b in base] + [1.0] * len(self.photos))
        # Flags are many and alike.
        weight[: len(base)][[b.startswith("flag ") for b in base]] *= 0.3
        weight[len(base) :] *= 1.5
        out = rng.random(len(weight)) < 1 / 15
        weight[~out if held_out else out] = 0
        self.weight = weight / weight.sum()

    def draw(self, n: int, rng: np.random.Generator) -> tuple[npt.NDArray[np.uint8], list[str], npt.NDArray[np.int64]]:
        """Return n pictures, (n, SIDE, SIDE, 3) uint8, their captions, and which base picture each shows."""
        chosen = rng.choice(len(self.weight), size=n, p=self.weight)
        made = [self._sign(i, rng) if i < len(self.names) else self._photo(i - len(self.names), rng) for i in chosen]
        return np.stack([m[0] for m in made]), [m[1] for m in made], chosen

    def _sign(self, i: int, rng: np.random.Generator) -> tuple[npt.NDArray[np.uint8], str]:
        name = self.names[i]
        if " skin tone" in name and rng.random() < 0.5:
            name = re.sub(r" (?:medium-light|medium-dark|light|medium|dark) skin tone", "", name)
        colour = "white" if rng.random() < 0.5 else str(rng.choice(list(BACKGROUNDS)))
        back = np.clip(np.array(BACKGROUNDS[colour]) + rng.integers(-10, 11, 3), 0, 255)
        small = rng.random() < 0.1
        side = int(rng.integers(24, 34) if small else rng.integers(50, SIDE + 1))
        left, top = rng.integers(0, SIDE - side + 1, 2)
        canvas = Image.new("RGB", (SIDE, SIDE), tuple(int(v) for v in back))
        sign = Image.fromarray(self.signs[i]).resize((side, side), Image.Resampling.BILINEAR)
        canvas.paste(sign, (int(left), int(top)), sign)
        words = name
        if small:
            words = f"small {words}"
        if rng.random() < 0.05:
            canvas, words = canvas.convert("L").convert("RGB"), f"black and white {words}"
        if colour != "white" or rng.random() < 0.2:
            words = f"{words} on a {colour} background"
        if rng.random() < 0.25:
            words = f"a {words}" if rng.random() < 0.5 else f"a picture of a {words}"
        return np.asarray(canvas), words

    def _photo(self, i: int, rng: np.random.Generator) -> tuple[npt.NDArray[np.uint8], str]:
        side = int(rng.integers(76, STORED + 1))
        left, top = (int(v) for v in rng.integers(0, STORED - side + 1, 2))
        photo = Image.fromarray(self.photos[i])
        if rng.random() < 0.5:
            photo = photo.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        box = (left, top, left + side, top + side)
        words = self.captions[i]
        photo = photo.resize((SIDE, SIDE), Image.Resampling.BILINEAR, box=box)
        return np.asarray(photo), (f"a photo of {words}" if rng.random() < 0.6 else words)
