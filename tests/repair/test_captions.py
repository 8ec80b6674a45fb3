"""Repairs of captions: every word is kept unless asked otherwise, twice is the same as once, files survive."""

import csv
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datasieve.captions.clip_tokens import count_tokens
from datasieve.cli import main
from datasieve.errors import ConfigError, InputError, OutputError
from datasieve.repair.caption_files import plan_captions, write_captions
from datasieve.repair.captions import Wish, edit, fitted, levelled, reordered

SAFE = Wish()
TEXT = st.text() | st.lists(
    st.sampled_from(
        ["red hair", ",", ", ", ",,", ".", " ", "\n", "a dog", "sks", "&amp;", "Ã©", "(a:1.2)", r"\(b\)", "<br>", "on"]
    )
).map("".join)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("red thing, table,, table , window,", "red thing, table, window"),
        (",,,", ""),
        ("A red thing stands on a table, by a window.", "A red thing stands on a table, by a window."),
        (r"hero \(old series\), red coat, smile :\)", r"hero \(old series\), red coat, smile :\)"),
        ("hero (old series), red coat", "hero (old series), red coat"),
        ("long_hair, Long hair, (smile:1.2)", "long_hair, (smile:1.2)"),
        ("the cafÃ© &amp; bar", "the café & bar"),
        ("  two\u200b  blanks ", "two blanks"),
        ("\n\nfirst\nsecond", "first\nsecond"),
        ("東京の夜", "東京の夜"),
        ("“curly” – naïve", "“curly” – naïve"),
    ],
)
def test_safe_edits(before: str, after: str) -> None:
    assert edit(before, SAFE).text == after


@settings(deadline=None, max_examples=300)
@given(text=TEXT, trigger=st.sampled_from(["", "sks", "<my-cat>"]), lossy=st.booleans())
def test_mending_what_is_mended_changes_nothing(text: str, trigger: str, lossy: bool) -> None:
    wish = Wish(trigger=trigger, lossy=lossy, reorder=True, limit=9)
    once = edit(text, wish)
    twice = edit(once.text, wish)
    assert twice.text == once.text


def test_what_is_as_it_should_be_is_not_called_changed() -> None:
    assert edit("a photo of a corgi, lying on moss", SAFE).done == ()


def test_the_trigger_goes_first_and_only_once_and_not_into_longer_words() -> None:
    wish = Wish(trigger="mychar")
    assert edit("1girl, mycharacter", wish).text == "mychar, 1girl, mycharacter"
    assert edit("a photo of mychar at dusk", wish).text == "a photo of mychar at dusk"
    assert edit("sks, sksy", Wish(trigger="<cat>", rename="sks")).text == "<cat>, sksy"


@pytest.mark.parametrize("trigger", ["a, b", "a&amp;b", " sks"])
def test_a_trigger_that_repairs_would_change_is_refused(trigger: str) -> None:
    with pytest.raises(ConfigError, match="cannot stand in a caption"):
        Wish(trigger=trigger)


def test_tags_are_ordered_and_sentences_are_not() -> None:
    assert reordered("outdoors, photo_(medium), dog, sks", "sks") == "sks, dog, outdoors, photo_(medium)"
    assert reordered("a dog lying on moss, at dusk", "sks") == "a dog lying on moss, at dusk"


def test_levelling_drops_whole_phrases_from_the_end_and_says_which() -> None:
    text = "a small white dog lying on wet moss in front of a red wall, with long shadows, soft light"
    assert levelled(text, 3.2) == (
        "a small white dog lying on wet moss",
        "in front of a red wall, with long shadows, soft light",
    )
    assert levelled("a dog", 0.5) == ("a dog", "")


def test_fitting_cuts_at_a_phrase_and_keeps_within_the_limit() -> None:
    text = ", ".join(f"red cup number {i}" for i in range(40))
    kept, rest = fitted(text, "transformers", 75)
    assert count_tokens(kept, "transformers") <= 75
    assert f"{kept}, {rest}" == text
    assert kept.rsplit(", ", 1)[1].startswith("red cup number")


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    root = tmp_path / "set"
    root.mkdir()
    for name in ("a", "b", "c", "d"):
        (root / f"{name}.jpg").write_bytes(b"not opened")
    (root / "a.txt").write_bytes(b"red, red,, blue\r\nsecond line\r\n")
    (root / "b.caption").write_bytes("caf\u00e9, bar".encode("cp1252"))
    (root / "c.txt").write_bytes(b"\xef\xbb\xbfa plain caption")
    (root / "d.jpg.txt").write_bytes(b"a photo of a thing")
    return root


def test_files_keep_line_ends_and_names_and_become_utf_8(dataset: Path, tmp_path: Path) -> None:
    before = {p.name: p.read_bytes() for p in dataset.iterdir()}
    out = tmp_path / "out"
    repair = plan_captions(dataset, SAFE)
    assert write_captions(repair, dataset, out) == 4
    assert (out / "a.txt").read_bytes() == b"red, blue\r\nsecond line\r\n"
    assert (out / "b.caption").read_text(encoding="utf-8") == "café, bar"
    assert (out / "c.txt").read_bytes() == b"a plain caption"
    assert (out / "d.txt").read_bytes() == b"a photo of a thing"
    assert {p.name: p.read_bytes() for p in dataset.iterdir()} == before


def test_all_sidecars_can_get_one_extension_and_the_one_that_is_read_wins(dataset: Path) -> None:
    (dataset / "c.caption").write_bytes(b"another caption")
    repair = plan_captions(dataset, SAFE, extension=".caption")
    assert sorted(repair.files) == ["a.caption", "b.caption", "c.caption", "d.caption"]
    assert repair.files["c.caption"] == b"a plain caption"
    assert repair.skipped == {"c.caption": "c.caption takes its place"}


def test_a_repaired_set_has_nothing_left_to_repair(dataset: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    write_captions(plan_captions(dataset, SAFE), dataset, out)
    for image in dataset.glob("*.jpg"):
        (out / image.name).write_bytes(b"not opened")
    again = plan_captions(out, SAFE)
    assert again.changes == []
    assert {p: c for p, c in again.files.items() if (out / p).read_bytes() != c} == {}


def test_metadata_keeps_everything_but_the_captions_that_change(tmp_path: Path) -> None:
    root = tmp_path / "set"
    root.mkdir()
    (root / "a.jpg").write_bytes(b"")
    (root / "b.jpg").write_bytes(b"")
    kept = '{"file_name": "b.jpg",  "text": "fine", "seed": 1.50}'
    lines = ['{"file_name": "a.jpg", "text": "red, red", "label": 3, "tags": ["x"]}', kept, "not json", ""]
    (root / "metadata.jsonl").write_text("\n".join(lines), encoding="utf-8")
    content = plan_captions(root, SAFE).files["metadata.jsonl"].decode()
    assert json.loads(content.split("\n")[0]) == {"file_name": "a.jpg", "text": "red", "label": 3, "tags": ["x"]}
    assert content.split("\n")[1:] == lines[1:]


def test_csv_with_line_breaks_and_commas_survives(tmp_path: Path) -> None:
    root = tmp_path / "set"
    root.mkdir()
    (root / "a.jpg").write_bytes(b"")
    (root / "b.jpg").write_bytes(b"")
    text = 'file_name,text,note\r\na.jpg,"red, red",x\r\nb.jpg,"first\nsecond ""quoted""",y\r\n'
    (root / "metadata.csv").write_bytes(text.encode())
    content = plan_captions(root, SAFE).files["metadata.csv"].decode()
    assert list(csv.reader(content.splitlines(keepends=True))) == [
        ["file_name", "text", "note"],
        ["a.jpg", "red", "x"],
        ["b.jpg", 'first\nsecond "quoted"', "y"],
    ]


def test_levelling_brings_a_set_together_and_stays_there(tmp_path: Path) -> None:
    root = tmp_path / "set"
    root.mkdir()
    scenes = ("on wet moss", "by a red wall", "near a river", "at dusk", "under a lamp")
    for i, scene in enumerate(scenes):
        (root / f"{i}.jpg").write_bytes(b"")
        (root / f"{i}.txt").write_text(f"a photo of a white corgi lying {scene}", encoding="utf-8")
    (root / "5.jpg").write_bytes(b"")
    long = "a photo of a white corgi lying on snow in front of a house with a green door, beside a fence, under clouds"
    (root / "5.txt").write_text(
        long + ", with long shadows on the ground and small birds on the roof", encoding="utf-8"
    )
    repair = plan_captions(root, Wish(lossy=True))
    assert [change.path for change in repair.changes] == ["5.jpg"]
    assert repair.changes[0].after.startswith("a photo of a white corgi lying on snow")
    assert repair.changes[0].dropped
    write_captions(repair, root, tmp_path / "out")
    for image in root.glob("*.jpg"):
        (tmp_path / "out" / image.name).write_bytes(b"")
    assert plan_captions(tmp_path / "out", Wish(lossy=True)).changes == []


def test_writing_into_the_dataset_is_refused(dataset: Path) -> None:
    repair = plan_captions(dataset, SAFE)
    with pytest.raises(OutputError, match="lies in the dataset"):
        write_captions(repair, dataset, dataset / "mended")
    with pytest.raises(InputError, match="not a folder"):
        plan_captions(dataset / "a.txt", SAFE)


def test_a_stopped_run_leaves_whole_files_and_is_run_again(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repair = plan_captions(dataset, SAFE)
    out = tmp_path / "out"
    written = []
    replace = __import__("os").replace

    def stop_at_the_second(*arguments: str) -> None:
        if written:
            raise KeyboardInterrupt
        written.append(arguments)
        replace(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr("os.replace", stop_at_the_second)
        with pytest.raises(KeyboardInterrupt):
            write_captions(repair, dataset, out)
    assert len(list(out.iterdir())) == 1
    write_captions(repair, dataset, out)
    assert len(list(out.iterdir())) == 4


def test_the_command_shows_a_difference_and_writes_only_with_out(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["captions", str(dataset), "--fix"]) == 0
    shown = capsys.readouterr().out
    assert "- red, red,, blue" in shown
    assert "+ red, blue" in shown
    out = tmp_path / "out"
    assert main(["captions", str(dataset), "--fix", "--out", str(out)]) == 0
    assert "Wrote 4 caption files" in capsys.readouterr().out
    assert main(["captions", str(dataset), "--lossy"]) == 2
