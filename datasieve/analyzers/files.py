"""Files: what the container, the header and the decoder say about each picture.

Trainers open pictures with few questions asked. A cut file stops the run or trains a grey half; a picture below the
training resolution is enlarged and teaches its blur; alpha is dropped and shows the colours hidden under it; profiles,
orientation tags and 16-bit values are ignored or clipped, each in silence. All of that can be read off the file.

Method: the format's own header (see datasieve.imaging.probe) and one decode. Nothing is estimated except the JPEG
quality, which is that of the libjpeg table nearest to the file's own; `alpha-share` and `hidden-colour-share` are
counted over the stored pixels, `grey` over the working picture (channels within 2 of 255).

Where it fails: headers can lie. A profile attached to pixels it does not belong to, or removed from pixels that need
it, is not seen. Transparency counts every pixel below full opacity, a feathered edge like a missing background.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from datasieve.batch import Request
from datasieve.config import RESOLUTIONS
from datasieve.rules import Rule, Severity, Side
from datasieve.schema import Column, Kind

if TYPE_CHECKING:
    from datasieve.batch import Batch, Decoded

Value = float | int | bool | str | None
_TRAINERS = "behaviour of kohya sd-scripts, OneTrainer, A1111, diffusers and ai-toolkit, read in their code"
_HEADER = "Read from the header alone, by the format's specification."
_EXACT = "a fact of the file, not an estimate; each of the kinds in the tests is told right"


def measure_file(decoded: Decoded) -> dict[str, Value]:
    """Return quantity (without the prefix) -> value for one decoded file; None where the file did not tell."""
    facts = decoded.facts
    known = facts.width_stored > 0 and facts.height_stored > 0
    read = decoded.status == "ok"
    empty = decoded.file_bytes == 0 and decoded.content != ""
    no_decoder, not_image = "no-decoder" in facts.notes, "not-image" in facts.notes
    cannot = decoded.status == "unreadable"
    short, long = sorted((facts.width, facts.height))
    return {
        "extension-fits": facts.extension_fits,
        "width-stored": facts.width_stored if known else None,
        "height-stored": facts.height_stored if known else None,
        "orientation": facts.orientation if known else None,
        "orientation-source": facts.orientation_source,
        "colour-model": facts.colour_model if known else None,
        "bit-depth": facts.bit_depth if known else None,
        "has-alpha": facts.has_alpha if known else None,
        "alpha-share": decoded.alpha_share,
        "hidden-colour-share": decoded.hidden_colour_share,
        "icc-name": facts.icc_name,
        "icc-class": facts.icc_class if known else None,
        "frames": facts.frames if known else None,
        "animated": facts.animated if known else None,
        "paged": (facts.frames > 1 and not facts.animated) if known else None,
        "has-gps": facts.has_gps if known else None,
        "bytes": decoded.file_bytes,
        "short-side": short if known else None,
        "aspect": long / short if known and short else None,
        "grey": decoded.grey if read else None,
        "jpeg-quality": facts.jpeg_quality,
        "jpeg-subsampling": facts.jpeg_subsampling,
        "truncated": decoded.truncated,
        "empty": empty,
        "no-decoder": no_decoder,
        "not-image": not_image,
        "unreadable": cannot and not (decoded.truncated or empty or no_decoder or not_image),
        "refused": decoded.status == "refused",
        "foreign-profile": facts.icc_class in ("wide", "linear", "other") if known else None,
        "profile-broken": facts.icc_class == "broken" if known else None,
        "uncalibrated": "exif-uncalibrated" in facts.notes if known else None,
        "print-colours": facts.colour_model in ("cmyk", "lab") if known else None,
        "notes": " ".join(facts.notes),
    }


def _column(
    name: str, kind: Kind, text: str, unit: str = "", low: float | None = None, high: float | None = None
) -> Column:
    return Column(f"files.{name}", kind, unit, text, low, high)


COLUMNS = (
    _column("extension-fits", "bool", "The file's extension belongs to its format; true where there is none."),
    _column("width-stored", "int", "Width before orientation.", "px", 1),
    _column("height-stored", "int", "Height before orientation.", "px", 1),
    _column("orientation", "int", "Orientation, 1 upright to 8, as in TIFF's tag 274.", "", 1, 8),
    _column("orientation-source", "string", "Where the orientation stands: exif, xmp, irot, jxl; empty when upright."),
    _column("colour-model", "string", "How colours are stored: rgb, grey, bilevel, palette, cmyk, lab, ycbcr, other."),
    _column("bit-depth", "int", "Bits per channel.", "bits", 1),
    _column("has-alpha", "bool", "The file can carry transparency."),
    _column("alpha-share", "float", "Share of pixels that are not fully opaque; null without alpha.", "share", 0, 1),
    _column(
        "hidden-colour-share", "float", "Share of fully transparent pixels, where their colours vary.", "share", 0, 1
    ),
    _column("icc-name", "string", "Description of the embedded ICC profile; empty without one."),
    _column("icc-class", "string", "none, srgb, wide, linear, grey, cmyk, lab, other or broken."),
    _column("frames", "int", "Frames or pages.", "", 1),
    _column("animated", "bool", "The frames are meant to be played."),
    _column("paged", "bool", "Several pages or pictures that are not an animation."),
    _column("has-gps", "bool", "EXIF carries a GPS position."),
    _column("bytes", "int", "Size of the file.", "bytes", 0),
    _column("short-side", "int", "Shorter displayed side.", "px", 1),
    _column("aspect", "float", "Longer over shorter displayed side.", "", 1),
    _column("grey", "bool", "All pixels of the working picture are grey; null when it was not decoded."),
    _column("jpeg-quality", "float", "Quality of the nearest libjpeg table; null when not JPEG.", "", 1, 100),
    _column("jpeg-subsampling", "string", "Chroma subsampling such as 4:2:0; empty when not JPEG."),
    _column("truncated", "bool", "The file ends before its picture does."),
    _column("empty", "bool", "The file has no bytes."),
    _column("no-decoder", "bool", "The format is known, but no installed package reads it."),
    _column("not-image", "bool", "The content is of no known picture format."),
    _column("unreadable", "bool", "The picture data are damaged in another way than being cut."),
    _column("refused", "bool", "The picture was declined because of its size, from its header or for lack of memory."),
    _column("foreign-profile", "bool", "An embedded RGB profile is not sRGB."),
    _column("profile-broken", "bool", "The embedded profile is damaged or belongs to another kind of picture."),
    _column("uncalibrated", "bool", "EXIF says the colours are not sRGB, and no profile says what they are."),
    _column("print-colours", "bool", "Colours are stored as CMYK or CIELAB."),
    _column("notes", "string", "Further facts by name, separated by spaces."),
)


def _rule(
    fault: str,
    column: str,
    side: Side,
    limit: float | bool,
    severity: Severity,
    title: str,
    message: str,
    remedy: str,
    why: str,
    how: str,
    source: str = _TRAINERS,
    evidence: str = _EXACT,
    limits: Mapping[str, float] | None = None,
    setting: str = "",
) -> Rule:
    return Rule(
        f"files.{fault}", f"files.{column}", side, limit, severity, title, message, remedy, why, how,
        source=source, evidence=evidence, limits=limits or {}, setting=setting,
    )  # fmt: skip


RULES = (
    _rule(
        "truncated", "truncated", "is", True, "error", "Cut file",
        "The file ends before its picture does, so part of it is missing.",
        "Replace it by a whole copy, or leave it out.",
        "Some trainers stop at such a file, some skip it silently, some train on a grey lower half as if it were real.",
        "The decoder ran out of data. A JPEG that lacks only its end marker counts, since Pillow refuses it as well.",
        evidence="50 of 50 cut JPEGs found, no false alarm on 1018 whole ones (exact 95 % limit 0.4 %)",
    ),
    _rule(
        "empty", "empty", "is", True, "error", "Empty file",
        "The file has no content (0 bytes).", "Replace it by a whole copy, or delete it.",
        "A trainer that lists files by extension stops here, or counts a picture that is not there.",
        "The size of the file is zero.",
    ),
    _rule(
        "unreadable", "unreadable", "is", True, "error", "Damaged picture",
        "The picture cannot be decoded: {error}", "Replace it or leave it out.",
        "Most trainers stop with an error when they reach it, some hours into the run; others skip it silently.",
        "The decoder refused the data. Faults that leave every value legal are invisible.",
    ),
    _rule(
        "not-image", "not-image", "is", True, "error", "Not a picture",
        "The content is no picture: {error}", "Delete it, or fetch the real picture.",
        "Download scripts save error pages under picture names; trainers that open every file stop at them.",
        "The first bytes fit no known picture format.",
    ),
    _rule(
        "no-decoder", "no-decoder", "is", True, "error", "No decoder installed",
        "This is a {format} file, which nothing installed here can read: {error}",
        "Run `pip install 'datasieve[formats]'` if that brings the reader, or convert it to PNG.",
        "Your trainer most likely cannot read it either, and would leave the picture out or stop.",
        "The format is told from the content; then no installed package reads it.",
    ),
    _rule(
        "refused", "refused", "is", True, "error", "Too many pixels",
        "{files.width-stored} x {files.height-stored} pixels were declined: {error}",
        "Shrink the picture, or raise the limit with --max-pixels.",
        "A few kilobytes can unpack to gigabytes and take the whole training run down.",
        "Width times height of the largest frame against the limit, before anything is decoded.",
        "Pillow's limit against decompression bombs (MAX_IMAGE_PIXELS)",
    ),
    _rule(
        "wrong-extension", "extension-fits", "is", False, "warning", "Wrong extension",
        "The name does not say what the file is: its content is {format}.",
        "Rename it to the extension of {format}, and its caption file needs no change.",
        "Trainers that choose a reader by extension fail on it; caches and upload sites may refuse it.",
        "First bytes against the list of extensions of that format; a file without extension passes.",
    ),
    _rule(
        "animated", "animated", "is", True, "warning", "Animation",
        "The file is an animation of {files.frames} frames; only the first is used.",
        "Save the frame you want to train on as a still picture.",
        "Trainers take the first frame, which is often a fade-in or a title and not what the caption says.",
        _HEADER + " Multi-picture JPEGs and TIFF pages do not count.",
    ),
    _rule(
        "pages", "paged", "is", True, "info", "Several pictures in one file",
        "The file holds {files.frames} pictures or pages; only the first is used.",
        "Save the others as files of their own if they belong to the set.",
        "Everything but the first page is lost without a word.",
        _HEADER,
    ),
    _rule(
        "tiny", "short-side", "below", 64, "warning", "Too small to measure",
        "The shorter side has {value:.0f} px: too few for a subject, and for measuring sharpness or compression.",
        "Replace it by a larger original, or leave the picture out.",
        "A trainer enlarges it eightfold or more; what is learned is the blur of enlarging.",
        "Shorter displayed side in pixels; 64 is the side of the tiles that sharpness and compression are read from.",
        evidence="a plain fact of the file; the limit is where our own measuring ends",
    ),
    _rule(
        "small", "short-side", "below", 512, "warning", "Below training resolution",
        "The shorter side has {value:.0f} px, below the training resolution of {limit:.0f} px.",
        "Find a larger original, or leave the picture out; enlarging it does not add detail.",
        "The trainer enlarges it, and the blur of enlarging is learned as part of the concept.",
        "Shorter displayed side in pixels. Narrow pictures with enough area are reported too.",
        evidence="the limit is the side of the square that the base model was trained at",
        limits=RESOLUTIONS,
        setting="resolution",
    ),
    _rule(
        "aspect", "aspect", "above", 3.0, "warning", "Extreme aspect ratio",
        "The picture is {value:.1f} times as long as it is wide.",
        "Crop it to the subject, to at most 2:1.",
        "Buckets rarely go beyond 2:1 to 4:1; what does not fit is cropped away or squashed.",
        _HEADER,
        evidence="provisional; aspect buckets of the usual trainers end between 2:1 and 4:1",
    ),
    _rule(
        "alpha", "alpha-share", "above", 0.001, "warning", "Transparent parts",
        "{value:.1%} of the pixels are transparent or half so.",
        "Flatten the picture onto a plain background of your choice and save it without alpha.",
        "Trainers drop alpha and show whatever colour lies under it, often black; as a loss mask it hides that part.",
        "Pixels whose alpha is below full, counted over the whole picture; a soft edge counts too.",
    ),
    _rule(
        "hidden-colour", "hidden-colour-share", "above", 0.001, "warning", "Colours under transparency",
        "{value:.1%} of the pixels are invisible but still hold colours, which training will see.",
        "Flatten the picture onto a plain background and save it without alpha.",
        "Dropping alpha, as trainers do, brings back what was erased: old backgrounds, noise, ghost edges.",
        "Fully transparent pixels, counted when their colours span more than 8 of 255.",
    ),
    _rule(
        "rotated", "orientation", "above", 1, "info", "Turned by a tag",
        "The picture is stored turned or mirrored (orientation {value:.0f}) and shown upright by a tag.",
        "Save it upright without the tag.",
        "kohya sd-scripts and diffusers' basic scripts ignore the tag and train it sideways; most others apply it.",
        "EXIF orientation; XMP where EXIF has none; irot and imir in HEIF and AVIF.",
    ),
    _rule(
        "profile", "foreign-profile", "is", True, "warning", "Colours not sRGB",
        "The colours are meant for the profile {files.icc-name} ({files.icc-class}), not for sRGB.",
        "Convert the picture to sRGB.",
        "Trainers ignore profiles: wide-gamut pixels come out dull, linear ones far too dark, and that is learned.",
        "The profile's primaries and tone curve against those of sRGB.",
        evidence="59 of 59 pictures tagged with wide profiles found, no false alarm on 1018 others",
    ),
    _rule(
        "profile-broken", "profile-broken", "is", True, "info", "Broken colour profile",
        "The embedded colour profile is damaged or made for another kind of picture, so it was not applied.",
        "Strip the profile, after a look at whether the colours are right.",
        "Programs disagree on such files: some show other colours, some refuse the file.",
        "Structure, connection space and colour space of the profile (ICC.1:2022).",
        "ICC.1:2022, 7.2",
    ),
    _rule(
        "uncalibrated", "uncalibrated", "is", True, "info", "Lost colour profile",
        "The camera says these colours are not sRGB, but the profile is gone.",
        "Compare with the original; if it is Display P3 or Adobe RGB, convert that to sRGB.",
        "Read as sRGB the colours are duller than they were; mixed with proper ones the set drifts in saturation.",
        "EXIF ColorSpace is 65535 and there is no profile. Some programs write that for sRGB too.",
        "EXIF 3.0, ColorSpace",
    ),
    _rule(
        "bit-depth", "bit-depth", "above", 8, "warning", "More than 8 bits",
        "The picture has {value:.0f} bits per channel.",
        "Save it with 8 bits per channel.",
        "Pillow's plain conversion clips 16-bit grey to white, and OneTrainer divides 16-bit colour by 255.",
        _HEADER + " Here all depths are scaled to the full range.",
    ),
    _rule(
        "grey", "grey", "is", True, "info", "Greyscale",
        "The picture has no colour.", "Leave it out, unless black and white is what you want to train.",
        "A few grey pictures in a colour set pull the concept towards grey, unless their captions say so.",
        "All channels equal within 2 of 255; a sepia print is not grey.",
        evidence="provisional",
    ),
    _rule(
        "cmyk", "print-colours", "is", True, "warning", "Print colours",
        "Colours are stored as {files.colour-model}, not as RGB.", "Convert the picture to sRGB through its profile.",
        "Trainers convert by the plain formula, which gives harsh and shifted colours, or fail.",
        _HEADER + " CIELAB counts too.",
    ),
    _rule(
        "gps", "has-gps", "is", True, "info", "Position in the file",
        "The file tells where it was taken (GPS).", "Strip the metadata before you share the set.",
        "It does not change training, but a shared set gives away homes.",
        _HEADER,
        "EXIF 3.0, GPS IFD",
    ),
)  # fmt: skip


class Files:
    """What each file's header and decoder say."""

    version = 1
    views: tuple[Request, ...] = ()
    needs: tuple[str, ...] = ()
    columns = COLUMNS
    rules = RULES

    def measure(self, batch: Batch) -> Mapping[str, Sequence[Value]]:
        """Return every column, and in `files.unmeasured` why pixels could not be looked at."""
        rows = [measure_file(d) for d in batch.decoded]
        out: dict[str, Sequence[Value]] = {c.name: [r[c.name[6:]] for r in rows] for c in COLUMNS}
        out["files.unmeasured"] = [None if d.status == "ok" else d.error for d in batch.decoded]
        return out


ANALYZER = Files()
