from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from datasieve.errors import InputError
from datasieve.records import image_id
from datasieve.sources import open_source
from tests.sources.layouts import JPEG, PNG, listed, notes, put, shard


def samples(prefix: str, number: int, size: int = 3000) -> list[tuple[str, bytes]]:
    pairs = [
        ((f"{prefix}{i}.jpg", JPEG + bytes([i]) * size), (f"{prefix}{i}.txt", b"thing %d" % i)) for i in range(number)
    ]
    return [member for pair in pairs for member in pair]


def test_records_point_at_the_bytes_inside_the_shard(tmp_path: Path) -> None:
    members = samples("s", 4)
    shard(tmp_path / "in" / "000.tar", members)
    ingest, found = listed(tmp_path)
    assert (ingest.layout, ingest.total) == ("webdataset", None)
    assert [(r.path, r.captions, r.group) for r in found.values()] == [
        (f"in/000.tar::s{i}.jpg", (f"thing {i}",), "in/000.tar") for i in range(4)
    ]
    assert [r.location.read() for r in found.values()] == [content for name, content in members if name.endswith("jpg")]
    assert all(r.image_id == image_id(p) for p, r in found.items())
    assert ingest.notes == []
    assert list(listed(tmp_path / "in" / "000.tar")[1]) == [f"000.tar::s{i}.jpg" for i in range(4)]


@pytest.mark.parametrize("style", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_long_and_foreign_names_in_every_tar_format(tmp_path: Path, style: int) -> None:
    name = "d" * 60 + "/" + ("猫" if style != tarfile.USTAR_FORMAT else "c") * 30 + ".jpg"
    with tarfile.open(tmp_path / "a.tar", "w", format=style) as tar:
        entry = tarfile.TarInfo(name)
        entry.size = len(JPEG)
        tar.addfile(entry, io.BytesIO(JPEG))
    _, found = listed(tmp_path)
    assert found[f"a.tar::{name}"].location.read() == JPEG


def test_json_gives_caption_and_concept_and_txt_goes_first(tmp_path: Path) -> None:
    about = json.dumps({"caption": "from json", "concept": "toy"}).encode()
    members = [
        ("a.png", PNG),
        ("a.json", about),
        ("b.png", PNG),
        ("b.json", about),
        ("b.txt", b"from txt"),
        ("c.png", PNG),
    ]
    shard(tmp_path / "0.tar", [*members, ("c.json", b"{")])
    ingest, found = listed(tmp_path)
    described = [(r.captions, r.concept) for r in found.values()]
    assert described == [(("from json",), "toy"), (("from txt",), "toy"), ((), "")]
    assert [n.path for n in notes(ingest, "metadata-malformed")] == ["0.tar::c.json"]


def test_keys_end_at_the_first_dot_and_dotted_names_are_still_paired(tmp_path: Path) -> None:
    members = [("track 2.0 (clean).jpg", JPEG), ("track 2.0 (clean).txt", b"a"), ("ok.jpg", JPEG), ("ok.txt", b"b")]
    shard(
        tmp_path / "0.tar", [*members, ("ok.seg.png", PNG), ("v1.5.jpg", JPEG), ("v1.5.txt", b"c"), ("v1.6.jpg", JPEG)]
    )
    ingest, found = listed(tmp_path)
    dotted = ["0.tar::track 2.0 (clean).jpg", "0.tar::v1.5.jpg", "0.tar::v1.6.jpg"]
    assert {p: r.captions for p, r in found.items()} == dict(
        zip([*dotted, "0.tar::ok.jpg"], [("a",), ("c",), (), ("b",)], strict=True)
    )
    assert [n.path for n in notes(ingest, "shard-key")] == dotted
    assert ingest.passed_over == {"further field of a sample": 1}


@settings(max_examples=40, deadline=None)
@example(3 * 4608)
@example(3 * 4608 + 1)
@given(st.integers(1, 15_000))
def test_samples_before_a_cut_are_used_wherever_it_is(tmp_path_factory: pytest.TempPathFactory, length: int) -> None:
    root = tmp_path_factory.mktemp("cut")
    shard(root / "0.tar", [("whole.jpg", JPEG)])
    whole = shard(root / "1.tar", samples("s", 3)).read_bytes()
    (root / "1.tar").write_bytes(whole[:length])
    ingest, found = listed(root)
    # A member takes a block of 512 for its header and its content in whole blocks: 3,584 + 1,024 for each sample here.
    complete = [i for i in range(3) if length >= i * 4608 + 512 + len(JPEG) + 3000]
    assert list(found) == ["0.tar::whole.jpg", *(f"1.tar::s{i}.jpg" for i in complete)]
    for i, record in zip(complete, list(found.values())[1:], strict=True):
        assert record.location.read() == JPEG + bytes([i]) * 3000
    if length < 3 * 4608 + 512:
        assert [n.path for n in notes(ingest, "shard-truncated")] == ["1.tar"]


@pytest.mark.parametrize("content", [b"", b"this is no tar" * 100, bytes(10240)])
def test_a_shard_without_samples_is_named_and_the_others_are_read(tmp_path: Path, content: bytes) -> None:
    shard(tmp_path / "0.tar", samples("s", 1))
    put(tmp_path, {"1.tar": content})
    ingest, found = listed(tmp_path)
    assert len(found) == 1
    assert [n.path for n in notes(ingest, "shard-truncated")] == ["1.tar"]
    with pytest.raises(InputError, match=r"1\.tar"):
        open_source(tmp_path / "1.tar")


def test_damage_in_the_middle_is_not_the_end_of_the_archive(tmp_path: Path) -> None:
    raw = bytearray(shard(tmp_path / "0.tar", samples("s", 3)).read_bytes())
    raw[4608 : 4608 + 512] = b"\xaa" * 512
    (tmp_path / "0.tar").write_bytes(raw)
    ingest, found = listed(tmp_path)
    assert list(found) == ["0.tar::s0.jpg"]
    assert "damaged header at byte 4608" in notes(ingest, "shard-truncated")[0].message


@pytest.mark.parametrize(
    ("numbers", "named"),
    [
        ([0, 3], "00001 and 00002"),
        ([0, 2], "00001"),
        ([0, 9], "00001 to 00008"),
        ([0, 1, 2], ""),
        ([5], ""),
        ([20240101, 20250101], ""),
    ],
)
def test_missing_numbers_are_a_gap_unless_they_are_dates(tmp_path: Path, numbers: list[int], named: str) -> None:
    for number in numbers:
        shard(tmp_path / f"set-{number:05d}.tar", samples(f"{number}_", 1))
    put(tmp_path, {"00001_stats.json": "{}"})
    ingest, found = listed(tmp_path)
    assert len(found) == len(numbers)
    gaps = notes(ingest, "shard-gap")
    assert [g.message.rsplit(": ", 1)[1] for g in gaps] == ([named] if named else [])


def test_links_devices_shadows_and_repeats_are_passed_over(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "0.tar", "w") as tar:
        for name, kind in [
            ("a.jpg", tarfile.SYMTYPE),
            ("b.jpg", tarfile.CHRTYPE),
            ("d", tarfile.DIRTYPE),
            ("c.jpg", tarfile.LNKTYPE),
        ]:
            entry = tarfile.TarInfo(name)
            entry.type = kind
            entry.linkname = "/etc/passwd"
            tar.addfile(entry)
        for name in [
            "./x.jpg",
            "._x.jpg",
            "__MACOSX/._y.jpg",
            ".hidden.jpg",
            "LICENSE",
            "y.cls",
            "z.jpg",
            "z.txt",
            "x.jpg",
            "q.txt",
        ]:
            entry = tarfile.TarInfo(name)
            entry.size = len(JPEG)
            tar.addfile(entry, io.BytesIO(JPEG))
    ingest, found = listed(tmp_path)
    assert list(found) == ["0.tar::x.jpg", "0.tar::z.jpg"]
    counts = {"link or device": 3, "archive shadow": 2, "hidden": 1, "not an image": 2, "repeated member": 1}
    assert ingest.passed_over == {**counts, "caption without image": 1}


def test_files_of_a_sample_that_lie_apart_are_noted(tmp_path: Path) -> None:
    shard(tmp_path / "0.tar", [("a.jpg", JPEG), ("b.jpg", JPEG), ("a.txt", b"x"), ("b.txt", b"y")])
    ingest, found = listed(tmp_path)
    assert [r.captions for r in found.values()] == [(), ()]
    assert "do not lie together" in notes(ingest, "shard-key")[0].message


def test_folders_in_a_shard_are_concepts(tmp_path: Path) -> None:
    shard(tmp_path / "0.tar", [("cat/1.jpg", JPEG), ("dog/1.jpg", JPEG)])
    assert [r.concept for r in listed(tmp_path)[1].values()] == ["cat", "dog"]


def test_shards_beside_loose_images_are_archives(tmp_path: Path) -> None:
    shard(tmp_path / "backup.tar", samples("s", 2))
    put(tmp_path, {"a.jpg": JPEG})
    ingest, found = listed(tmp_path)
    assert list(found) == ["a.jpg"]
    assert [n.path for n in notes(ingest, "archive")] == ["backup.tar"]


def test_a_shard_is_not_read_ahead(tmp_path: Path) -> None:
    shard(tmp_path / "0.tar", samples("s", 1))
    put(tmp_path, {"1.tar": b"no tar"})
    ingest = open_source(tmp_path)
    assert ingest.notes == []
    list(ingest.records)
    assert len(ingest.notes) == 1
