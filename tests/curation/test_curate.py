import json
import os
import shutil

import pyarrow.parquet as pq
import pytest
from PIL import Image

from datasieve import audit
from datasieve.cli import main
from datasieve.curation.choose import Wish
from datasieve.curation.run import curate
from datasieve.errors import InputError, OutputError
from datasieve.sources import open_source
from tests.pipeline.conftest import scene


@pytest.fixture(scope="module")
def audited(tmp_path_factory):
    """Two concepts of eight scenes; in `red` one copy, one broken file, one caption with characters of all kinds."""
    root = tmp_path_factory.mktemp("set") / "photos"
    for c, concept in enumerate(("red", "blue")):
        (root / concept).mkdir(parents=True)
        for i in range(8):
            scene(20 * c + i, 320, 240).save(root / concept / f"{i}.jpg", quality=95)
            (root / concept / f"{i}.txt").write_text(f"a scene, number {i}", encoding="utf-8")
    (root / "red" / "0.txt").write_text('ein "Bild" \\ mit 雪 <script>\nand a second line', encoding="utf-8")
    shutil.copy(root / "red" / "1.jpg", root / "red" / "copy.jpg")
    (root / "red" / "broken.jpg").write_bytes((root / "red" / "2.jpg").read_bytes()[:200])
    scene(99, 320, 240).save(root / "blue" / "3.png")  # shares its stem with 3.jpg
    return audit(root, root.parent / "report")


def left_out(result):
    return {c.row["path"]: c.reason for c in result.choices if c.part == "left out"}


def test_by_itself_it_leaves_out_copies_and_what_cannot_be_used(audited, tmp_path):
    result = curate(audited, tmp_path / "out", audit_result=False)
    reasons = left_out(result)
    assert set(reasons) == {"red/copy.jpg", "red/broken.jpg"} or set(reasons) == {"red/1.jpg", "red/broken.jpg"}
    assert any("copy" in reason for reason in reasons.values())
    table = pq.read_table(tmp_path / "out" / "curation.parquet")
    assert table.num_rows == 19
    assert table["part"].to_pylist().count("left out") == 2


@pytest.mark.parametrize("layout", ["folder", "kohya", "imagefolder", "webdataset"])
def test_every_layout_reads_back_as_the_same_pictures_concepts_and_captions(audited, tmp_path, layout):
    curate(audited, tmp_path / "out", layout_name=layout, audit_result=False)
    concept_by = "folder" if layout == "folder" else "auto"
    records = list(
        open_source(tmp_path / "out" / "img" if layout == "kohya" else tmp_path / "out", concept_by=concept_by).records
    )
    listed = open_source(audited.path.parent / "photos").records
    originals = {r.location.read(): r for r in listed if r.path != "red/copy.jpg"}
    assert len(records) == 17
    for record in records:
        original = originals[record.location.read()]
        assert "\n".join(record.captions).split() == "\n".join(original.captions).split()
        if layout != "webdataset":
            assert record.concept.endswith(original.concept)


def test_pictures_with_one_stem_keep_captions_of_their_own(audited, tmp_path):
    curate(audited, tmp_path / "out", audit_result=False)
    stems = [f.stem for f in (tmp_path / "out" / "blue").glob("3*.*g")]
    assert len(stems) == len(set(stems)) == 2


def test_hugging_face_datasets_loads_the_imagefolder(audited, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    datasets = pytest.importorskip("datasets")
    curate(audited, tmp_path / "out", Wish(validation=0.25), layout_name="imagefolder", audit_result=False)
    loaded = datasets.load_dataset("imagefolder", data_dir=str(tmp_path / "out"), cache_dir=str(tmp_path / "cache"))
    assert set(loaded) == {"train", "validation"}
    assert len(loaded["train"]) + len(loaded["validation"]) == 17
    row = loaded["train"][0]
    assert isinstance(row["image"], Image.Image)
    assert {"image", "text", "concept"} == set(row)
    texts = {*loaded["train"]["text"], *loaded["validation"]["text"]}
    assert 'ein "Bild" \\ mit 雪 <script>\nand a second line' in texts


def test_webdataset_pairs_what_we_wrote(audited, tmp_path):
    import tarfile

    curate(audited, tmp_path / "a", layout_name="webdataset", audit_result=False)
    curate(audited, tmp_path / "b", layout_name="webdataset", audit_result=False)
    shard = tmp_path / "a" / "train-000000.tar"
    assert shard.read_bytes() == (tmp_path / "b" / "train-000000.tar").read_bytes()
    # webdataset's rule, restated: a key ends at the first dot of the name, members of a key stand side by side.
    with tarfile.open(shard) as opened:
        keys = [name.split(".", 1) for name in opened.getnames()]
    groups = [[field for _, field in keys[i : i + 3]] for i in range(0, len(keys), 3)]
    assert all(len({key for key, _ in keys[i : i + 3]}) == 1 for i in range(0, len(keys), 3))
    assert all(fields[1:] == ["txt", "json"] for fields in groups)


def test_kohyas_toml_names_folders_that_are_there(audited, tmp_path):
    import tomllib

    curate(audited, tmp_path / "out", layout_name="kohya", audit_result=False)
    told = tomllib.loads((tmp_path / "out" / "dataset.toml").read_text(encoding="utf-8"))
    subsets = told["datasets"][0]["subsets"]
    assert told["general"]["caption_extension"] == ".txt"
    assert sorted(s["class_tokens"] for s in subsets) == ["blue", "red"]
    for subset in subsets:
        pictures = [f for f in os.listdir(subset["image_dir"]) if not f.endswith(".txt")]
        assert len(pictures) in (8, 9)
        assert all(f.endswith((".jpg", ".png")) for f in pictures)
    # kohya's rule for folders, restated: the part before the first underscore is the number of repeats.
    assert sorted(os.listdir(tmp_path / "out" / "img")) == ["1_blue", "1_red"]


def test_diffusers_folders_hold_pictures_and_nothing_else(audited, tmp_path):
    result = curate(audited, tmp_path / "out", layout_name="diffusers", audit_result=False)
    assert result.notes
    for folder in ("red", "blue"):
        for file in (tmp_path / "out" / "instance" / folder).iterdir():
            Image.open(file).verify()


def test_most_and_balance_bound_each_concept(audited, tmp_path):
    result = curate(audited, tmp_path / "out", Wish(most=4), dry_run=True)
    taken = [c.row["concept"] for c in result.choices if c.part == "train"]
    assert sorted(taken) == ["blue"] * 4 + ["red"] * 4
    assert not (tmp_path / "out").exists()


def test_held_out_pictures_lie_apart(audited, tmp_path):
    result = curate(audited, tmp_path / "out", Wish(validation=0.25), audit_result=False)
    parts = [c.part for c in result.choices]
    assert parts.count("validation") == 4
    assert (
        len(list((tmp_path / "out" / "validation").rglob("*.jpg")))
        + len(list((tmp_path / "out" / "validation").rglob("*.png")))
        == 4
    )


def test_links_share_their_bytes_with_the_originals(audited, tmp_path):
    curate(audited, tmp_path / "out", link=True, audit_result=False)
    written = next((tmp_path / "out" / "red").glob("*.jpg"))
    assert written.stat().st_nlink >= 2


def test_a_second_run_brings_the_folder_up_to_date_and_touches_no_strangers(audited, tmp_path):
    out = tmp_path / "out"
    curate(audited, out, audit_result=False)
    before = {f: f.stat().st_mtime_ns for f in out.rglob("*.jpg")}
    (out / "mine.md").write_text("notes", encoding="utf-8")
    curate(audited, out, Wish(most=4), audit_result=False)
    after = {f: f.stat().st_mtime_ns for f in out.rglob("*.jpg")}
    assert len(list(out.rglob("*.txt"))) == 8
    assert all(before[f] == after[f] for f in after)
    assert (out / "mine.md").read_text(encoding="utf-8") == "notes"


def test_a_folder_that_is_not_ours_is_refused(audited, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "thesis.txt").write_text("all I have", encoding="utf-8")
    with pytest.raises(OutputError, match="did not write"):
        curate(audited, out, audit_result=False)
    assert [f.name for f in out.iterdir()] == ["thesis.txt"]
    with pytest.raises(OutputError, match="in the dataset itself"):
        curate(audited, audited.path.parent / "photos" / "out", audit_result=False)


def test_when_nothing_is_left_it_says_so(audited, tmp_path):
    with pytest.raises(InputError, match="nothing is left"):
        curate(audited, tmp_path / "out", Wish(where=("width > 100000",)))
    assert not (tmp_path / "out").exists()


def test_the_command_tells_what_it_did_and_audits_the_result(audited, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["curate", str(audited.path), "--out", str(out), "-q"]) == 0
    said = capsys.readouterr().out
    assert "17 images to train on, of 19" in said
    assert "cannot be used" in said
    assert "Verdict" in said
    assert main(["curate", str(audited.path), "--out", str(out), "--dry-run", "--format", "json", "-q"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert len(told["images"]) == 19
    assert main(["curate", str(audited.path), "--out", str(out), "--where", "wdith > 1"]) == 2
    assert "did you mean width" in capsys.readouterr().err
