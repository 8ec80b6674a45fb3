"""Decoding: same picture in, same pixels out, whatever container, tag, mode or profile stands in between."""

import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image, ImageCms, ImageOps, PngImagePlugin

from datasieve.batch import BACKGROUND, Decoded, DecodeRequest
from datasieve.imaging.decode import decode
from datasieve.imaging.orient import oriented, stored
from datasieve.imaging.reduce import reduced, working_size

WORKING_ONLY = DecodeRequest(tiles=False, pixel_hash=False)


def scene(width: int, height: int, seed: int = 0) -> Image.Image:
    """A picture with smooth light, edges and some texture, the same in every size."""
    y, x = np.mgrid[0:height, 0:width] / max(width, height)
    generator = np.random.default_rng(seed)
    red = 120 + 90 * np.sin(7 * x + 3 * y)
    green = 110 + 80 * np.cos(5 * y) + 30 * (x > 0.4)
    blue = 100 + 60 * np.sin(40 * x * y) + 20 * (np.hypot(x - 0.3, y - 0.3) < 0.15)
    noise = generator.normal(0, 5, (height, width, 1))
    return Image.fromarray((np.stack([red, green, blue], -1) + noise).clip(0, 255).astype(np.uint8))


def encoded(image: Image.Image, form: str, **options: object) -> bytes:
    out = io.BytesIO()
    image.save(out, form, **options)
    return out.getvalue()


def ok(data: bytes, name: str = "a.png", request: DecodeRequest | None = None) -> Decoded:
    result = decode(data, name, request or DecodeRequest())
    assert result.status == "ok", result.error
    return result


def pixels(data: bytes, name: str = "a.png", request: DecodeRequest | None = None) -> np.ndarray:
    result = ok(data, name, request).pixels
    assert result is not None
    return result


def chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


class TestWorkingPicture:
    def test_small_pictures_are_kept_as_they_are(self) -> None:
        image = scene(300, 200)
        assert np.array_equal(pixels(encoded(image, "PNG")), np.asarray(image))

    @pytest.mark.parametrize(
        ("size", "working"),
        [((1024, 768), (512, 384)), ((1000, 333), (512, 170)), ((3000, 2), (512, 1)), ((513, 512), (512, 511))],
    )
    def test_the_longer_side_becomes_512(self, size: tuple[int, int], working: tuple[int, int]) -> None:
        assert working_size(*size) == working
        assert pixels(encoded(scene(*size), "PNG")).shape == (working[1], working[0], 3)

    @pytest.mark.parametrize("factor", [2, 3])
    def test_whole_factors_give_exact_block_means(self, factor: int) -> None:
        image = scene(512 * factor, 256 * factor)
        exact = np.asarray(image, float).reshape(256, factor, 512, factor, 3).mean((1, 3))
        assert np.abs(pixels(encoded(image, "PNG")) - exact).max() <= 0.6  # rounding

    @pytest.mark.parametrize("size", [(768, 768), (1280, 960), (1500, 1000)])
    def test_other_factors_are_close_to_exact_area_averages(self, size: tuple[int, int]) -> None:
        image = scene(*size)
        width, height = working_size(*size)

        def weights(n: int, m: int) -> np.ndarray:
            edges = np.linspace(0, n, m + 1)
            low, high = edges[:-1, None], edges[1:, None]
            cover = np.clip(np.minimum(high, np.arange(1, n + 1)) - np.maximum(low, np.arange(n)), 0, None)
            return cover / cover.sum(1, keepdims=True)

        rows, columns = weights(size[1], height), weights(size[0], width)
        exact = np.einsum("ij,jkc,lk->ilc", rows, np.asarray(image, float), columns, optimize=True)
        assert np.abs(pixels(encoded(image, "PNG")) - exact).mean() < 1

    def test_flat_colours_stay(self) -> None:
        flat = Image.new("RGB", (1300, 700), (3, 200, 77))
        assert (np.asarray(reduced(flat, (512, 276))) == (3, 200, 77)).all()


class TestJpegPaths:
    @pytest.mark.parametrize("options", [{}, {"progressive": True}, {"subsampling": 0, "quality": 60}])
    @pytest.mark.parametrize("size", [(2048, 1536), (2600, 1700), (4100, 1100)])
    def test_dct_scaling_gives_the_same_working_pixels(self, size: tuple[int, int], options: dict[str, object]) -> None:
        data = encoded(scene(*size), "JPEG", **options)
        whole, scaled = pixels(data, "a.jpg"), pixels(data, "a.jpg", WORKING_ONLY)
        assert whole.shape == scaled.shape
        assert np.abs(whole.astype(int) - scaled).mean() < 1

    def test_the_fast_decoder_agrees_with_pillow(self) -> None:
        data = encoded(scene(500, 333), "JPEG", quality=83)
        assert np.array_equal(pixels(data, "a.jpg"), np.asarray(Image.open(io.BytesIO(data))))

    @pytest.mark.parametrize("share", [0.3, 0.5, 0.9, 0.99])
    @pytest.mark.parametrize("options", [{}, {"progressive": True}])
    @pytest.mark.parametrize("request_", [DecodeRequest(), WORKING_ONLY])
    def test_a_cut_jpeg_is_truncated(self, share: float, options: dict[str, object], request_: DecodeRequest) -> None:
        data = encoded(scene(1200, 900), "JPEG", **options)
        result = decode(data[: int(len(data) * share)], "a.jpg", request_)
        assert (result.status, result.truncated, result.pixels) == ("unreadable", True, None)
        assert "again" in result.error
        assert (result.facts.width, result.facts.height) == (1200, 900)

    def test_a_missing_end_marker_counts_as_cut_as_it_does_for_pillow(self) -> None:
        data = encoded(scene(300, 200), "JPEG")[:-2]
        with pytest.raises(OSError, match="truncated"):
            Image.open(io.BytesIO(data)).load()
        assert decode(data, "a.jpg", DecodeRequest()).truncated

    def test_damaged_scan_data_are_not_scored(self) -> None:
        data = bytearray(encoded(scene(600, 400), "JPEG", restart_marker_blocks=8))
        middle = len(data) // 2
        data[middle : middle + 2000] = b"\x5a" * 2000
        assert decode(bytes(data), "a.jpg", DecodeRequest()).status == "unreadable"

    def test_trailing_bytes_are_noted_and_harmless(self) -> None:
        data = encoded(scene(64, 64), "JPEG")
        result = ok(data + b"a film hides here", "a.jpg")
        assert "junk-after-end" in result.facts.notes
        assert result.pixel_hash == ok(data, "a.jpg").pixel_hash


class TestOrientation:
    @pytest.mark.parametrize("orientation", range(1, 9))
    @pytest.mark.parametrize("form", ["PNG", "TIFF", "JPEG", "WEBP"])
    def test_all_eight_look_the_same(self, orientation: int, form: str) -> None:
        upright = scene(96, 64)
        kept = Image.fromarray(np.ascontiguousarray(stored(np.asarray(upright), orientation)))
        exif = Image.Exif()
        exif[0x0112] = orientation
        options: dict[str, object] = {"quality": 95, "subsampling": 0} if form == "JPEG" else {}
        if form == "WEBP":
            options = {"lossless": True}
        data = encoded(kept, form, exif=exif.tobytes(), **options)
        result = ok(data, f"a.{form.lower()}")
        assert (result.facts.orientation, result.facts.width, result.facts.height) == (orientation, 96, 64)
        assert (result.facts.width_stored, result.facts.height_stored) == kept.size
        assert result.pixels is not None
        if form == "JPEG":
            assert np.abs(result.pixels.astype(int) - np.asarray(upright)).mean() < 4
        else:
            assert np.array_equal(result.pixels, np.asarray(upright))
            assert result.pixel_hash == ok(encoded(upright, "PNG")).pixel_hash
        assert result.tiles is not None
        if form != "JPEG":
            assert np.array_equal(result.tiles[0], np.asarray(kept)[:64, :64])  # tiles are stored pixels

    @pytest.mark.parametrize("orientation", range(1, 9))
    def test_turning_agrees_with_pillow(self, orientation: int) -> None:
        image = scene(30, 20)
        image.getexif()[0x0112] = orientation
        assert np.array_equal(oriented(np.asarray(image), orientation), np.asarray(ImageOps.exif_transpose(image)))

    @pytest.mark.parametrize("block", [b"Exif\0\0", b"Exif\0\0garbage!garbage", b"Exif\0\0MM\0*\xff\xff\xff\xff"])
    def test_broken_exif_is_a_note(self, block: bytes) -> None:
        plain = encoded(scene(80, 60), "JPEG")
        data = plain[:2] + b"\xff\xe1" + struct.pack(">H", len(block) + 2) + block + plain[2:]
        result = ok(data, "a.jpg")
        assert result.facts.orientation == 1
        assert "exif-broken" in result.facts.notes

    def test_an_orientation_of_zero_is_upright_and_noted(self) -> None:
        exif = Image.Exif()
        exif[0x0112] = 0
        facts = ok(encoded(scene(80, 60), "JPEG", exif=exif.tobytes()), "a.jpg").facts
        assert facts.orientation == 1
        assert "orientation-invalid" in facts.notes


class TestDepthAndColour:
    def test_sixteen_bit_grey_is_scaled_over_the_full_range(self) -> None:
        ramp = np.tile(np.linspace(0, 65535, 512).round().astype(np.uint16), (64, 1))
        for form in ("PNG", "TIFF"):
            result = ok(encoded(Image.fromarray(ramp), form))
            assert result.pixels is not None
            assert np.array_equal(result.pixels[..., 0], np.rint(ramp / 257).astype(np.uint8))
            assert (result.facts.bit_depth, result.facts.colour_model, result.grey) == (16, "grey", True)

    def test_bilevel_palette_and_grey_files_become_rgb(self) -> None:
        image = scene(70, 50)
        for mode in ("1", "L", "P"):
            other = image.convert(mode)
            assert np.array_equal(pixels(encoded(other, "PNG")), np.asarray(other.convert("RGB")))

    def test_cmyk_without_a_profile_is_neither_inverted_nor_black(self) -> None:
        image = scene(200, 100)
        result = ok(encoded(image.convert("CMYK"), "JPEG", quality=95), "a.jpg")
        assert result.facts.colour_model == "cmyk"
        assert result.pixels is not None
        assert np.abs(result.pixels.mean((0, 1)) - np.asarray(image).mean((0, 1))).max() < 3

    def test_lab_goes_through_its_definition(self) -> None:
        # L* 53.24, a* 80.09, b* 67.20 is sRGB red under D65; under D50, as TIFF has it, about (54.3, 80.8, 69.9).
        lab = Image.new("LAB", (20, 20), (round(54.29 * 255 / 100), 128 + 81, 128 + 70))
        colour = pixels(encoded(lab, "TIFF"), "a.tif")[0, 0].astype(int)
        assert np.abs(colour - (255, 0, 0)).max() < 12

    def test_a_profile_is_applied(self) -> None:
        # Swapped primaries: a profile that calls the first channel green must turn the picture's red to green.
        srgb = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
        swapped = bytearray(srgb)
        place = {srgb[132 + 12 * i : 136 + 12 * i]: 132 + 12 * i for i in range(srgb[131])}
        swapped[place[b"rXYZ"] : place[b"rXYZ"] + 4], swapped[place[b"gXYZ"] : place[b"gXYZ"] + 4] = b"gXYZ", b"rXYZ"
        red = Image.new("RGB", (40, 40), (255, 0, 0))
        result = ok(encoded(red, "PNG", icc_profile=bytes(swapped)))
        assert result.facts.icc_class == "other"
        assert result.pixels is not None
        assert np.abs(result.pixels[0, 0].astype(int) - (0, 255, 0)).max() <= 2
        assert result.tiles is not None  # native pixels stay as they are

    def test_srgb_is_told_from_its_numbers_and_left_alone(self) -> None:
        image = scene(50, 40)
        srgb = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
        result = ok(encoded(image, "PNG", icc_profile=srgb))
        assert result.facts.icc_class == "srgb"
        assert np.array_equal(result.pixels, np.asarray(image))

    def test_a_broken_profile_leaves_the_pixels(self) -> None:
        image = scene(50, 40)
        result = ok(encoded(image, "PNG", icc_profile=b"\x07" * 400))
        assert result.facts.icc_class == "broken"
        assert np.array_equal(result.pixels, np.asarray(image))


class TestAlpha:
    def test_hidden_colours_count_for_nothing(self) -> None:
        rgba = np.asarray(scene(900, 600).convert("RGBA")).copy()
        rgba[:100, :, 3] = 0
        loud = rgba.copy()
        loud[:100, :, :3] = np.random.default_rng(1).integers(0, 256, (100, 900, 3))
        quiet = rgba.copy()
        quiet[:100, :, :3] = 0
        a, b = (ok(encoded(Image.fromarray(v), "PNG")) for v in (loud, quiet))
        assert np.array_equal(a.pixels, b.pixels)
        assert a.pixels is not None
        assert tuple(a.pixels[0, 0]) == BACKGROUND
        assert a.alpha_share == pytest.approx(1 / 6)
        assert (a.hidden_colour_share, b.hidden_colour_share) == (pytest.approx(1 / 6), 0)

    def test_half_transparent_pixels_mix_with_the_background(self) -> None:
        data = encoded(Image.new("RGBA", (80, 80), (255, 0, 0, 51)), "PNG")  # alpha 0.2
        assert tuple(pixels(data)[5, 5]) == (153, 102, 102)  # 0.2 * (255, 0, 0) + 0.8 * 128

    def test_opaque_alpha_is_no_transparency(self) -> None:
        image = scene(90, 70)
        result = ok(encoded(image.convert("RGBA"), "PNG"))
        assert (result.facts.has_alpha, result.alpha_share) == (True, 0)
        assert result.pixel_hash == ok(encoded(image, "PNG")).pixel_hash

    def test_without_alpha_there_is_no_share(self) -> None:
        assert ok(encoded(scene(40, 40), "PNG")).alpha_share is None

    def test_a_transparent_palette_entry_counts(self) -> None:
        image = Image.new("P", (100, 100), 0)
        image.putpalette([200, 0, 0, 0, 0, 200])
        image.paste(1, (0, 0, 100, 25))
        assert ok(encoded(image, "GIF", transparency=1), "a.gif").alpha_share == pytest.approx(0.25)


class TestHashAndTiles:
    def test_equal_pixels_hash_alike_in_every_lossless_container(self) -> None:
        image = scene(200, 150)
        jpeg = encoded(image, "JPEG")
        opened = Image.open(io.BytesIO(jpeg)).convert("RGB")
        hashes = {ok(jpeg, "a.jpg").pixel_hash}
        hashes |= {ok(encoded(opened, f), "a").pixel_hash for f in ("PNG", "BMP", "TIFF", "PPM")}
        hashes.add(ok(encoded(opened, "WEBP", lossless=True), "a.webp").pixel_hash)
        assert len(hashes) == 1

    def test_one_changed_pixel_or_another_shape_changes_the_hash(self) -> None:
        values = np.asarray(scene(60, 40)).copy()
        first = ok(encoded(Image.fromarray(values), "PNG")).pixel_hash
        assert ok(encoded(Image.fromarray(values.reshape(60, 40, 3)), "PNG")).pixel_hash != first
        values[3, 3, 1] ^= 1
        assert ok(encoded(Image.fromarray(values), "PNG")).pixel_hash != first

    @pytest.mark.parametrize(("size", "count"), [((1000, 700), 16), ((64, 64), 1), ((63, 500), 0), ((72, 64), 2)])
    def test_tiles_are_distinct_and_on_the_block_grid(self, size: tuple[int, int], count: int) -> None:
        width, height = size
        y, x = np.mgrid[0:height, 0:width]
        places = np.stack([x % 256, y % 256, x // 256 * 16 + y // 256], -1).astype(np.uint8)
        tiles = ok(encoded(Image.fromarray(places), "PNG")).tiles
        assert tiles is not None
        assert tiles.shape == (count, 64, 64, 3)
        assert (tiles[:, 0, 0, :2] % 8 == 0).all()
        assert len({tuple(t[0, 0]) for t in tiles}) == count
        if count == 16:
            assert tuple(tiles[0, 0, 0]) == (0, 0, 0)
            last = tiles[-1, -1, -1].astype(int)
            assert last[2] // 16 * 256 + last[0] >= width - 8
            assert last[2] % 16 * 256 + last[1] >= height - 8

    def test_nothing_is_made_that_was_not_asked_for(self) -> None:
        result = ok(encoded(scene(80, 80), "PNG"), request=DecodeRequest(False, False, False))
        assert (result.pixels, result.tiles, result.pixel_hash) == (None, None, "")


class TestContainers:
    def test_the_name_does_not_decide(self) -> None:
        result = ok(encoded(scene(50, 50), "JPEG"), "photo.png")
        assert (result.facts.format, result.facts.extension_fits) == ("JPEG", False)

    @pytest.mark.parametrize("form", ["GIF", "WEBP", "PNG", "AVIF"])
    def test_animations_show_their_first_frame(self, form: str) -> None:
        frames = [Image.new("RGB", (64, 48), c) for c in ((200, 30, 30), (30, 200, 30), (30, 30, 200))]
        data = encoded(frames[0], form, save_all=True, append_images=frames[1:], duration=100)
        result = ok(data, f"a.{form.lower()}")
        assert (result.facts.frames, result.facts.animated) == (3, True)
        assert result.pixels is not None
        assert np.abs(result.pixels[20, 20].astype(int) - (200, 30, 30)).max() < 8

    def test_pages_and_stereo_pairs_do_not_move(self) -> None:
        pages = [scene(64, 64, i) for i in range(3)]
        for form in ("TIFF", "MPO"):
            facts = ok(encoded(pages[0], form, save_all=True, append_images=pages[1:]), "a").facts
            assert (facts.frames, facts.animated) == (3, False)
        assert facts.format == "JPEG"

    def test_avif_is_read(self) -> None:
        assert ok(encoded(scene(90, 60), "AVIF"), "a.avif").facts.format == "AVIF"

    @pytest.mark.parametrize(
        ("data", "form", "package"),
        [
            (b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(64), "HEIF", "pillow-heif"),
            (b"\0\0\0\x0cJXL \r\n\x87\n\0\0\0\x14ftypjxl \0\0\0\0jxl " + bytes(32), "JXL", "pillow-jxl-plugin"),
            (b"\xff\x0a\xfa\x7f\x01" + bytes(32), "JXL", "pillow-jxl-plugin"),
        ],
    )
    def test_formats_without_decoder_are_named_with_their_package(self, data: bytes, form: str, package: str) -> None:
        result = decode(data, "a.bin", DecodeRequest())
        assert (result.status, result.facts.format) == ("unreadable", form)
        if "no-decoder" in result.facts.notes:  # not so where the package is installed: then the file is damaged
            assert package in result.error
            assert "datasieve[formats]" in result.error

    def test_an_empty_file_is_called_empty(self) -> None:
        assert "empty" in decode(b"", "a.jpg", DecodeRequest()).error

    def test_the_content_hash_is_blake2b(self) -> None:
        import hashlib

        assert decode(b"x", "a", DecodeRequest()).content == hashlib.blake2b(b"x", digest_size=16).hexdigest()


class TestBombs:
    def png(self, width: int, height: int, *extra: bytes) -> bytes:
        body = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
        rows = zlib.compress(bytes((width // 8 + 1) * min(height, 4)))
        return (
            b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", body) + b"".join(extra) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
        )

    def test_too_many_pixels_are_refused_from_the_header(self) -> None:
        result = decode(self.png(20000, 20000), "a.png", DecodeRequest())
        assert result.status == "refused"
        assert "20000 x 20000" in result.error
        assert "179.0" in result.error
        assert "--max-pixels" in result.error

    def test_the_limit_is_a_setting(self) -> None:
        data = encoded(scene(100, 100), "PNG")
        assert decode(data, "a.png", DecodeRequest(max_pixels=9_999)).status == "refused"
        assert decode(data, "a.png", DecodeRequest(max_pixels=10_000)).status == "ok"

    def test_a_text_that_unpacks_to_gigabytes_is_not_unpacked(self) -> None:
        text = PngImagePlugin.PngInfo()
        text.add_text("a", "b", zip=True)
        bomb = chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(200_000_000), 9))
        plain = encoded(scene(40, 40), "PNG", pnginfo=text)
        data = plain[:33] + bomb + plain[33:]
        assert np.array_equal(pixels(data), np.asarray(scene(40, 40)))
