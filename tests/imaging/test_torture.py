"""Files that have broken image readers, against what several decoders agree on (fixtures/torture/manifest.csv)."""

import csv
from pathlib import Path

import pytest

from datasieve.batch import Decoded, DecodeRequest
from datasieve.imaging.decode import decode
from datasieve.imaging.probe import pillow_formats, probe

FOLDER = Path(__file__).parents[2] / "fixtures" / "torture"
ROWS = {r["file"]: r for r in csv.DictReader((FOLDER / "manifest.csv").read_text(encoding="utf-8").splitlines())}
FORMATS = {"PNM": "PPM", "JP2": "JPEG2000", "UNKNOWN": "", "HTML": "", "EMPTY": ""}
MODELS = {"grey": "GRAY", "bilevel": "GRAY", "palette": "RGB", "rgb": "RGB", "cmyk": "CMYK", "lab": "LAB"}

DISPUTED = {
    # The directory says 16 x 16; the picture inside claims 65535 x 32767, and that is what would be allocated.
    "broken/decompression_bomb.ico": {"width_stored", "height_stored", "width", "height", "bit_depth"},
    # Nothing was decoded: the flag stands in a control block before the bomb.
    "broken/decompression_bomb.gif": {"has_alpha"},
    # Name against content means nothing where the content is no picture.
    "broken/html_404_saved_as.jpg": {"ext_matches"},
    "broken/zero_bytes.jpg": {"ext_matches"},
    # A damaged file; its profile is damaged too.
    "broken/crash-0e16d3bfb83be87356d026d66919deaefca44dac.tif": {"icc_class"},
    # Frames of a JPEG XL are known only after decoding; that it moves is known.
    "frames/animation_spline.jxl": {"n_frames"},
    # Palette of grey entries.
    "frames/no_palette_with_transparency.gif": {"colour_model"},
    # One tool finds the profile's white point off by a hair; the profile is usable and sRGB.
    "icc/paris_exif_xmp_modified_icc.jpg": {"icc_class"},
    # A JPEG XL profile is compressed inside the codestream.
    "exotic/grayscale.jxl": {"icc_class", "colour_model"},
    # Pillow does not hand out the profile of a JPEG 2000 whose pixels are cut off.
    "icc/balloon_eciRGBv2_aware.jp2": {"icc_class"},
    # Pillow reads the turn of irot and imir as orientation 5; the manifest counts it as applied.
    "orientation/rot3mir1.avif": {"orientation", "orientation_source"},
}


def decoded(file: str) -> Decoded:
    return decode((FOLDER / file).read_bytes(), file, DecodeRequest())


@pytest.mark.parametrize("file", ROWS)
def test_the_header_is_read_as_other_decoders_read_it(file: str) -> None:
    row = ROWS[file]
    facts = probe((FOLDER / file).read_bytes(), file)
    yes = {True: "yes", False: "no"}
    said = {
        "format_true": facts.format,
        "ext_matches": yes[facts.extension_fits],
        "width_stored": str(facts.width_stored),
        "height_stored": str(facts.height_stored),
        "width": str(facts.width),
        "height": str(facts.height),
        "orientation": str(facts.orientation),
        "orientation_source": facts.orientation_source,
        "colour_model": MODELS.get(facts.colour_model, facts.colour_model),
        "bit_depth": str(facts.bit_depth),
        "has_alpha": yes[facts.has_alpha],
        "n_frames": str(facts.frames),
        "has_gps": yes[facts.has_gps],
        "icc_class": facts.icc_class,
    }
    wanted = {k: row[k] for k in said}
    wanted["format_true"] = FORMATS.get(row["format_true"], row["format_true"])
    icc = row["icc_class"].replace("gray", "grey")
    wanted["icc_class"] = "none" if icc.startswith("cicp") or not icc else icc  # cicp: a code, not a profile
    disputed = DISPUTED.get(file, set())
    assert {k: v for k, v in said.items() if wanted[k] and k not in disputed} == {
        k: v for k, v in wanted.items() if v and k not in disputed
    }


@pytest.mark.parametrize("file", ROWS)
def test_what_decodes_is_decoded_and_the_rest_says_why(file: str) -> None:
    row, result = ROWS[file], decoded(file)
    facts = result.facts
    if facts.format in ("HEIF", "JXL") and facts.format not in pillow_formats():
        assert result.status == "unreadable"
        assert "pip install 'datasieve[formats]'" in result.error
        assert "no-decoder" in facts.notes
        return
    expected = {"yes": "ok", "partial": "unreadable", "no": "unreadable", "": "unreadable", "refuse": "refused"}
    if row["decodes"] in expected:
        assert result.status == expected[row["decodes"]], result.error
    if result.status == "ok":
        assert result.pixels is not None
        height, width = result.pixels.shape[:2]
        assert max(height, width) == min(512, max(facts.width, facts.height))
        assert abs(width * facts.height - height * facts.width) <= max(facts.width, facts.height)
        assert (result.error, len(result.pixel_hash), result.truncated) == ("", 32, False)
    else:
        assert result.pixels is None
        assert result.error.endswith(".")


def test_files_that_were_cut_are_told_from_files_that_are_damaged() -> None:
    cut = {f for f in ROWS if decoded(f).truncated}
    assert {"broken/truncated.jpg", "broken/half_written.jpg", "broken/shortfile.bmp"} <= cut
    assert not cut & {f for f, r in ROWS.items() if r["decodes"] in ("yes", "refuse")}
    assert "broken/badbitcount.bmp" not in cut


@pytest.mark.parametrize(
    ("file", "note"),
    [
        ("frames/apple_gainmap_new.jpg", "jpeg-gainmap"),
        ("icc/truncated_exif_dpi.jpg", "exif-broken"),
        ("broken/decompression_bomb_extents.gif", "later-frame-oversized"),
        ("broken/html_404_saved_as.jpg", "not-image"),
        ("broken/zero_bytes.jpg", "empty"),
    ],
)
def test_peculiarities_are_noted(file: str, note: str) -> None:
    assert note in decoded(file).facts.notes


def test_a_web_page_under_a_picture_name_is_called_one() -> None:
    assert "HTML" in decoded("broken/html_404_saved_as.jpg").error
