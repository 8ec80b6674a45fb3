"""Does `fix` convert wide-gamut pictures as ImageMagick with LittleCMS does?

    python benchmarks/fix_icc.py TORTURE

TORTURE holds pictures with ICC profiles. Each is decoded by us as `fix` does it, and by ImageMagick: `convert -profile`
to LittleCMS's sRGB, relative colorimetric with black point compensation, at 16 bits a channel inside. Printed is the
mean and the 99th percentile of CIEDE2000 over all pixels. Needs ImageMagick 6 or 7 with LittleCMS.
"""

from __future__ import annotations

import argparse
import io
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageCms
from skimage.color import deltaE_ciede2000, rgb2lab

from datasieve.errors import InputError
from datasieve.imaging.decode import whole
from datasieve.imaging.probe import probe

LIMIT = 50_000_000


def magick(file: Path, srgb: Path) -> np.ndarray:
    """Return (h, w, 3) pixels as ImageMagick converts them. Raises CalledProcessError."""
    command = ["convert", str(file) + "[0]", "-alpha", "off", "-intent", "Relative", "-black-point-compensation",
               "-profile", str(srgb), "-auto-orient", "-depth", "8", "-type", "TrueColor", "ppm:-"]  # fmt: skip
    done = subprocess.run(command, check=True, capture_output=True)
    return np.asarray(Image.open(io.BytesIO(done.stdout)).convert("RGB"))


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("torture", type=Path)
    folder = parser.parse_args(argv).torture
    print("| file | profile | bits | CIEDE2000 mean | 99th percentile |\n| --- | --- | --- | --- | --- |")
    means = []
    with tempfile.TemporaryDirectory() as scratch:
        srgb = Path(scratch) / "srgb.icc"
        srgb.write_bytes(ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes())
        for file in sorted(p for p in folder.rglob("*") if p.is_file()):
            facts = probe(file.read_bytes(), file.name)
            # ImageMagick does not turn pictures by their XMP.
            if facts.icc_class not in ("wide", "linear", "other", "cmyk", "grey") or facts.orientation_source == "xmp":
                continue
            try:
                ours = whole(file.read_bytes(), file.name, LIMIT).pixels
                theirs = magick(file, srgb)
            except (InputError, subprocess.CalledProcessError) as error:
                print(f"| {file.name} | {facts.icc_name} | {facts.bit_depth} | not compared: {str(error)[:60]} | |")
                continue
            if ours.shape != theirs.shape:
                print(f"| {file.name} | {facts.icc_name} | {facts.bit_depth} | sizes differ | |")
                continue
            away = deltaE_ciede2000(rgb2lab(ours), rgb2lab(theirs))
            means.append(away.mean())
            cells = f"{facts.icc_name} ({facts.icc_class}) | {facts.bit_depth} | {away.mean():.2f}"
            print(f"| {file.name} | {cells} | {np.percentile(away, 99):.2f} |")
    print(f"\n{sum(m < 1 for m in means)} of {len(means)} within a mean CIEDE2000 of 1.")


if __name__ == "__main__":
    main()
