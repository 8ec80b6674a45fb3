"""Copies are found under re-encoding, scaling, slight crops and turns; different pictures are left alone."""

import io
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import scipy.fft
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from datasieve.analyzers import Comparison, _copies, load
from datasieve.analyzers._copies import MIN_DETAIL, Match, choose, components, find_copies
from datasieve.analyzers._signature import (
    SIDE,
    TURNS,
    area_weights,
    coefficients,
    detail,
    hashes,
    likeness,
    structure,
    turn,
    turn_coefficients,
)
from datasieve.batch import Batch, Decoded
from datasieve.config import Settings
from datasieve.policy import judge
from datasieve.records import ImageFacts, ImageRecord, Location, image_id

ANALYZER = load("duplicates")
Transpose = Image.Transpose


def scene(seed: int, width: int = 320, height: int = 320) -> Image.Image:
    """A picture with structure at every scale, as photographs have."""
    generator = np.random.default_rng(seed)
    total = np.zeros((height, width, 3))
    for side in (3, 6, 12, 24, 48):
        noise = Image.fromarray(generator.integers(0, 256, (side, side, 3), np.uint8))
        total += np.asarray(noise.resize((width, height), Image.Resampling.BICUBIC), np.float64) * (3 / side)
    total -= total.min()
    return Image.fromarray((total / total.max() * 255).astype(np.uint8))


def jpeg(picture: Image.Image, quality: int) -> Image.Image:
    data = io.BytesIO()
    picture.save(data, "JPEG", quality=quality)
    return Image.open(data).convert("RGB")


def cropped(picture: Image.Image, share: float) -> Image.Image:
    dx, dy = round(picture.width * share), round(picture.height * share)
    return picture.crop((dx, dy, picture.width - dx, picture.height - dy))


def half(picture: Image.Image) -> Image.Image:
    return picture.resize((picture.width // 2, picture.height // 2), Image.Resampling.BICUBIC)


def table(pictures: dict[str, Image.Image], **fields: Sequence[Any]) -> pa.Table:
    """Measure pictures; `fields` replace columns: content, status, files.bytes (as bytes)."""
    decoded = []
    for path, picture in pictures.items():
        pixels = np.asarray(picture.convert("RGB"))
        facts = ImageFacts(width=picture.width, height=picture.height)
        decoded.append(Decoded(pixels=pixels, facts=facts, content=path, pixel_hash=str(hash(pixels.tobytes()))))
    records = [ImageRecord(image_id(p), p, Location(p)) for p in pictures]
    values = ANALYZER.measure(Batch(records, decoded))  # type: ignore[attr-defined]  # the protocol of its stage
    return pa.table(
        {
            "image_id": [image_id(p) for p in pictures],
            "path": list(pictures),
            "concept": [""] * len(pictures),
            "content": fields.get("content", [d.content for d in decoded]),
            "width": [p.width for p in pictures.values()],
            "height": [p.height for p in pictures.values()],
            "status": fields.get("status", ["ok"] * len(pictures)),
            "files.bytes": fields.get("bytes", [1000] * len(pictures)),
            **{name: list(column) for name, column in values.items()},
        }
    )


def compare(rows: pa.Table) -> Comparison:
    result: Comparison = ANALYZER.compare(rows, Settings())  # type: ignore[attr-defined]  # the protocol of its stage
    return result


def findings(rows: pa.Table) -> dict[str, str]:
    """Return path -> rule for each finding; every image has at most one."""
    for name, values in compare(rows).columns.items():
        rows = rows.append_column(name, pa.array(list(values)))
    out: dict[str, str] = {}
    for finding in judge(rows, ANALYZER.rules, "image", Settings().words()):
        assert finding.path is not None
        assert finding.path not in out
        assert "unknown" not in finding.message
        out[finding.path] = finding.rule
    return out


COPIES: dict[str, Callable[[Image.Image], Image.Image]] = {
    "saved again": lambda p: jpeg(p, 45),
    "half size": half,
    "cropped 2 %": lambda p: cropped(p, 0.02),
    "cropped 4 %": lambda p: cropped(p, 0.04),
    "cropped, scaled and saved": lambda p: jpeg(half(cropped(p, 0.03)), 60),
    "squeezed": lambda p: p.resize((p.width, round(p.height * 0.8))),
    "darker": lambda p: p.point(lambda v: v * 0.8),
}


@pytest.mark.parametrize("name", COPIES)
@pytest.mark.parametrize("size", [(320, 320), (400, 300)])
def test_a_changed_copy_is_a_near_copy_of_the_larger(name: str, size: tuple[int, int]) -> None:
    # Squeezing apart, all copies here are no larger; the original has more pixels or, else, more bytes.
    pictures = {"z original.png": scene(1, *size), "a copy.png": COPIES[name](scene(1, *size)), "other.png": scene(2)}
    rows = table(pictures, bytes=[2000, 1000, 1000])
    assert findings(rows) == {"a copy.png": "duplicates.near"}
    found = compare(rows)
    assert found.columns["duplicates.near-of"] == [None, "z original.png", None]
    assert [p[:3] for p in found.pairs] == [("near", 0, 1)]
    assert found.pairs[0][3] > 0.985


TURNED = {
    "mirrored left to right": (Transpose.FLIP_LEFT_RIGHT, "duplicates.mirrored"),
    "mirrored top to bottom": (Transpose.FLIP_TOP_BOTTOM, "duplicates.mirrored"),
    "turned by 180 degrees": (Transpose.ROTATE_180, "duplicates.rotated"),
    "turned by 90 degrees to the left": (Transpose.ROTATE_90, "duplicates.rotated"),
    "turned by 90 degrees to the right": (Transpose.ROTATE_270, "duplicates.rotated"),
    "mirrored and turned by 90 degrees to the left": (Transpose.TRANSPOSE, "duplicates.rotated"),
    "mirrored and turned by 90 degrees to the right": (Transpose.TRANSVERSE, "duplicates.rotated"),
}


@pytest.mark.parametrize("name", TURNED)
@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
def test_a_turned_and_recompressed_copy_is_labelled_as_such(name: str, order: tuple[str, str]) -> None:
    operation, rule = TURNED[name]
    base = scene(3, 320, 240)
    copy = jpeg(half(cropped(base, 0.03)).transpose(operation), 70)
    pictures = dict(sorted({order[0]: base, order[1]: copy, "c": scene(4)}.items()))
    rows = table(pictures)
    assert findings(rows) == {order[1]: rule}
    found = compare(rows)
    at = list(pictures).index(order[1])
    assert found.columns["duplicates.turn"][at] == name
    assert found.columns["duplicates.flip-of"][at] == order[0]


def test_the_turns_are_pillows() -> None:
    picture = np.random.default_rng(5).integers(0, 256, (8, 8), np.uint8)
    for number, name in enumerate(TURNS[1:], 1):
        expected = np.asarray(Image.fromarray(picture).transpose(TURNED[name][0]))
        assert np.array_equal(turn(picture[None], number)[0], expected), name


def test_equal_bytes_are_one_group_listed_once_whatever_the_folders() -> None:
    picture, other = scene(6), scene(7)
    pictures = {"two/c.png": picture, "two/a.png": picture, "one/b.png": picture, "one/a.png": picture, "x.png": other}
    content = ["other bytes", "same", "same", "same", "x"]
    rows = table(pictures, content=content, bytes=[9000, 1000, 1000, 1000, 1000])
    assert findings(rows) == {
        "two/c.png": "duplicates.pixels",
        "two/a.png": "duplicates.exact",
        "one/b.png": "duplicates.exact",
    }
    found = compare(rows)
    assert found.columns["duplicates.exact-of"] == ["one/a.png"] * 3 + [None, None]
    assert found.columns["duplicates.group"] == [0, 0, 0, 0, None]
    assert found.columns["duplicates.group-size"] == [4, 4, 4, 4, 1]
    assert sorted(found.pairs) == [("exact", 3, 1, 1.0), ("exact", 3, 2, 1.0), ("pixels", 3, 0, 1.0)]


def test_equal_stored_pixels_shown_another_way_round_are_not_equal_pixels() -> None:
    rows = table({"upright": scene(8), "sideways": scene(8).transpose(Transpose.ROTATE_90)})
    rows = rows.set_column(
        rows.column_names.index("duplicates.pixel-hash"), "duplicates.pixel-hash", pa.array(["as stored"] * 2)
    )
    assert findings(rows) == {"upright": "duplicates.rotated"}


def test_a_mirror_image_and_a_copy_of_it_are_two_findings_about_two_choices() -> None:
    base = scene(9)
    mirror = base.transpose(Transpose.FLIP_LEFT_RIGHT)
    rows = table({"a": base, "b": jpeg(base, 60), "c": mirror, "d": half(mirror)}, bytes=[4, 3, 2, 1])
    assert findings(rows) == {"b": "duplicates.near", "c": "duplicates.mirrored", "d": "duplicates.near"}
    assert compare(rows).columns["duplicates.near-of"] == [None, "a", None, "c"]
    assert compare(rows).columns["duplicates.group"] == [0, 0, 0, 0]


def test_a_crop_that_fix_made_is_no_copy_of_its_source_but_a_stranger_s_is() -> None:
    picture = scene(5)
    rows = table({"a": picture, "a-close": cropped(picture, 0.02), "b": jpeg(picture, 60)})
    assert compare(rows).columns["duplicates.near-of"] == [None, "a", "a"]
    told = rows.replace_schema_metadata({"derived": '{"a-close": "a"}'})
    near = compare(told).columns["duplicates.near-of"]
    assert near[0] is None
    assert near[1] != "a"
    assert "a" in near or "a-close" in near


def test_representatives_have_most_pixels_then_most_bytes_then_the_first_path() -> None:
    base = scene(10)
    same_size = {"b": jpeg(base, 90), "a": jpeg(base, 80), "c": jpeg(base, 70)}
    assert findings(table(same_size, bytes=[1, 1, 2])) == {"a": "duplicates.near", "b": "duplicates.near"}
    assert findings(table(same_size, bytes=[1, 1, 1])) == {"b": "duplicates.near", "c": "duplicates.near"}
    larger = {**same_size, "z": base.resize((400, 400))}
    assert set(findings(table(larger, bytes=[9, 9, 9, 1]))) == {"a", "b", "c"}


def test_different_small_things_on_one_white_wall_are_not_copies() -> None:
    pictures = {}
    for i in range(8):
        picture = Image.new("RGB", (320, 320), (244, 244, 242))
        picture.paste(scene(20 + i, 36, 36), (142, 142))
        pictures[f"thing {i}"] = picture
    assert findings(table(pictures)) == {}


def test_a_small_thing_on_a_white_wall_saved_again_is_a_copy() -> None:
    picture = Image.new("RGB", (320, 320), (244, 244, 242))
    picture.paste(scene(20, 60, 60), (142, 142))
    assert findings(table({"a": picture, "b": jpeg(picture, 80)})) == {"b": "duplicates.near"}


def test_frames_of_one_scene_in_which_something_moves_are_not_copies() -> None:
    pictures = {}
    for i in range(4):
        picture = scene(30, 320, 240)
        picture.paste(scene(31, 60, 70), (30 + 50 * i, 60 + 8 * i))
        pictures[f"shot {i}"] = picture
    assert findings(table(pictures)) == {}


def test_walls_and_gradients_are_not_near_copies_but_equal_ones_are_exact() -> None:
    ramp = Image.fromarray(np.tile(np.linspace(20, 230, 256).astype(np.uint8)[None, :, None], (256, 1, 3)))
    pictures = {
        "warm": Image.new("RGB", (320, 320), (250, 240, 225)),
        "cool": Image.new("RGB", (320, 320), (225, 240, 250)),
        "black": Image.new("RGB", (320, 320)),
        "ramp": ramp,
        "ramp, larger": ramp.resize((300, 300)),
    }
    assert findings(table(pictures)) == {}
    assert findings(table({**pictures, "warm again": pictures["warm"]})) == {"warm again": "duplicates.pixels"}


def test_unrelated_pictures_are_left_alone() -> None:
    rows = table({f"{i}": scene(100 + i) for i in range(40)})
    found = compare(rows)
    assert found.pairs == []
    assert set(found.columns["duplicates.is-near-copy"]) == {False}


def test_unreadable_files_are_nobodys_copy_and_stay_null() -> None:
    rows = table({"a": scene(1), "b": scene(1), "c": scene(1)}, content=["x"] * 3, status=["ok", "unreadable", "ok"])
    found = compare(rows)
    assert found.columns["duplicates.is-exact-copy"] == [False, None, True]
    assert found.columns["duplicates.group-size"] == [2, None, 2]


def test_rows_without_measurements_are_passed_over() -> None:
    rows = table({"a": scene(1), "b": jpeg(scene(1), 50)})
    for name in ("duplicates.signature", "duplicates.phash", "duplicates.pixel-hash"):
        rows = rows.set_column(rows.column_names.index(name), name, pa.array([None, None], pa.string()))
    empty = pa.array([None, None], pa.float32())
    rows = rows.set_column(rows.column_names.index("duplicates.detail"), "duplicates.detail", empty)
    assert compare(rows).pairs == []


def test_an_empty_table_compares_to_nothing() -> None:
    rows = table({"a": scene(1)}).slice(0, 0)
    assert all(list(v) == [] for v in compare(rows).columns.values())


@settings(max_examples=25, deadline=None)
@given(st.permutations(range(5)))
def test_the_order_of_rows_does_not_matter(order: Sequence[int]) -> None:
    rows = PERMUTED.take(pa.array(order))
    assert findings(rows) == {"b": "duplicates.near", "c": "duplicates.mirrored", "e": "duplicates.exact"}


PERMUTED = table(
    {
        "a": scene(40),
        "b": half(scene(40)),
        "c": half(scene(40)).transpose(Transpose.FLIP_LEFT_RIGHT),
        "d": scene(41),
        "e": scene(41),
    },
    content=["1", "2", "3", "4", "4"],
)


def test_coefficients_are_scipys_dct() -> None:
    picture = np.random.default_rng(11).integers(0, 256, (1, SIDE, SIDE), np.uint8)
    expected = scipy.fft.dctn(picture[0].astype(float), 2)[:8, :8] / 4
    found = coefficients(picture)[0]
    assert np.allclose(found.ravel()[1:], expected.ravel()[1:])
    assert found[0, 0] == pytest.approx(0, abs=1e-9)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(0, 7))
def test_hashes_of_turned_pictures_follow_from_the_coefficients(seed: int, number: int) -> None:
    picture = np.random.default_rng(seed).integers(0, 256, (2, SIDE, SIDE), np.uint8)
    assert np.array_equal(
        hashes(turn_coefficients(coefficients(picture), number)), hashes(coefficients(turn(picture, number)))
    )


def test_a_hash_has_half_its_bits_set_and_a_flat_picture_none() -> None:
    picture = np.random.default_rng(12).integers(0, 256, (3, SIDE, SIDE), np.uint8)
    assert [bin(int(h)).count("1") for h in hashes(coefficients(picture))] == [31, 31, 31]
    assert hashes(coefficients(np.full((1, SIDE, SIDE), 77, np.uint8))).tolist() == [0]


def test_detail_is_the_rms_around_a_plane() -> None:
    ramp = np.arange(SIDE, dtype=np.uint8) * 4
    stripes = np.where(np.arange(SIDE) % 2, 110, 90).astype(np.uint8)
    rows = np.stack([np.tile(ramp, (SIDE, 1)), np.tile(ramp[:, None], (1, SIDE)), np.tile(stripes, (SIDE, 1))])
    assert detail(rows) == pytest.approx([0, 0, 10], abs=0.1)
    assert detail(rows)[2] > MIN_DETAIL


def test_structure_is_small_for_a_small_thing_and_large_for_a_texture() -> None:
    wall = np.full((SIDE, SIDE), 240, np.uint8)
    wall[14:18, 14:18] = 40
    texture = np.random.default_rng(13).integers(0, 256, (SIDE, SIDE), np.uint8)
    small, large = structure(np.stack([wall, texture]))
    assert small < _copies.FEW_CELLS < 0.5 < large


def test_area_weights_keep_the_mean_and_follow_fractions() -> None:
    # 5 cells over 2 parts: the middle one belongs half to each.
    assert np.allclose(area_weights(2, 0, 5, 6), np.array([[2, 2, 1, 0, 0, 0], [0, 0, 1, 2, 2, 0]]) / 5)
    assert np.allclose(area_weights(SIDE, 0, 20.25, 128).sum(1), 1)


def test_padding_does_not_reach_the_signature() -> None:
    alone, together = scene(14, 200, 100), scene(15, 512, 512)
    one, two = table({"a": alone}), table({"a": alone, "b": together})
    for name in ("duplicates.signature", "duplicates.phash", "duplicates.detail"):
        assert one[name][0] == two[name][0]


@pytest.mark.parametrize("size", [(1, 1), (1, 512), (512, 1), (3, 2)])
def test_tiny_pictures_are_measured_without_a_warning(size: tuple[int, int]) -> None:
    rows = table({"a": Image.new("RGB", size, (200, 10, 10))})
    assert rows["duplicates.detail"][0].as_py() == pytest.approx(0, abs=1e-6)


def test_aligning_recovers_a_crop_and_not_a_stranger() -> None:
    rows = table({"a": scene(16), "b": cropped(scene(16), 0.035), "c": scene(17)})
    cells = np.stack([_read(rows, i) for i in range(3)])
    alike = likeness(cells[[0, 0]], cells[[1, 2]], np.array([0.03, 0.03]))
    assert alike.correlation[0] > 0.99
    assert alike.correlation[1] < 0.9
    assert alike.local[0] < 0.5 < alike.local[1]


def _read(rows: pa.Table, row: int) -> np.ndarray:
    import base64

    text = rows["duplicates.signature"][row].as_py()
    return np.frombuffer(base64.b64decode(text), np.uint8).reshape(SIDE, SIDE)


def test_a_chain_of_small_changes_points_only_at_pictures_it_was_compared_with() -> None:
    chain = [Match(i, i + 1, 0, 0.99) for i in range(4)]
    copies = choose(range(5), chain)
    assert {row: match.first for row, match in copies.items()} == {1: 0, 3: 2}


def test_the_best_representative_is_named_and_turns_are_told_from_its_side() -> None:
    copies = choose([2, 0, 1], [Match(0, 1, 0, 0.99), Match(1, 2, 4, 0.995)])
    assert copies[1] == Match(2, 1, 5, 0.995)


def test_components_number_groups_by_their_first_row() -> None:
    assert components(6, [(4, 1), (5, 3), (3, 0)]) == ([0, 1, None, 0, 1, 0], [3, 2, 1, 3, 2, 3])


def test_many_alike_images_are_checked_in_part_and_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_copies, "MOST_CHECKS", 100)
    base = _read(table({"a": scene(18)}), 0).astype(np.int16)
    noise = np.random.default_rng(19).integers(-2, 3, (60, SIDE, SIDE))
    frames = np.clip(base + noise, 0, 255).astype(np.uint8)
    found, spared = find_copies(lambda rows: frames[rows], detail(frames))
    assert "160 most alike" in spared
    assert {m.kind for m in found} == {"near"}


def test_messages_name_the_other_file() -> None:
    rows = table({"folder/first.png": scene(50), "folder/second.png": half(scene(50))})
    for name, values in compare(rows).columns.items():
        rows = rows.append_column(name, pa.array(list(values)))
    (finding,) = judge(rows, ANALYZER.rules, "image", Settings().words())
    assert "folder/first.png" in finding.message
