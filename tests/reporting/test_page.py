"""The page of a report: complete, escaped, and at home on the disk."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlparse

import pytest
from PIL import Image
from skimage import data

from datasieve.cli import main
from datasieve.config import Settings
from datasieve.pipeline.run import audit
from datasieve.policy import all_rules
from datasieve.reporting.page import DATA, PAGE, THUMBNAILS, write_page
from datasieve.sources import open_source

NASTY = '"><img onerror=alert(1) src=x>'


class Links(HTMLParser):
    """Collects every address, and every tag with its attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.addresses += [v for k, v in attrs if k in ("src", "href") and v]


def page_of(folder: Path, **settings: object) -> tuple[Path, Links, str]:
    chosen = Settings(**settings)  # type: ignore[arg-type]
    report = audit(folder, settings=chosen)
    final = write_page(report, open_source(folder).records, all_rules(), chosen.max_pixels)
    text = final.read_text(encoding="utf-8")
    links = Links()
    links.feed(text)
    return final, links, text


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Cats and cups under one name, one of them saved twice, one cut off."""
    folder = tmp_path / "set" / "thing"
    folder.mkdir(parents=True)
    for i in range(5):
        Image.fromarray(data.chelsea()[:, i * 25 : i * 25 + 320]).save(folder / f"cat {i} #%?'.jpg", quality=92)
        Image.fromarray(data.coffee()[:, i * 30 : i * 30 + 420]).save(folder / f"cup{i} 🐈.jpg", quality=92)
    (folder / "again.jpg").write_bytes((folder / "cup0 🐈.jpg").read_bytes())
    (folder / "cut.jpg").write_bytes((folder / "cup1 🐈.jpg").read_bytes()[:4000])
    return folder.parent


def test_it_tells_the_verdict_every_rule_and_the_groups(photos: Path) -> None:
    final, links, text = page_of(photos)
    assert final.name == PAGE
    assert "Fix first" in text
    report = audit(photos)
    for rule in set(report.findings()["rule"].to_pylist()):
        assert f"<code>{rule}</code>" in text
    assert "thing, group 1" in text
    assert "Group 2" in text
    pictures = [a for tag, a in links.tags if tag == "img"]
    assert pictures
    assert all(a.get("alt") for a in pictures if a.get("src"))


def test_every_address_is_on_the_disk_and_there(photos: Path) -> None:
    final, links, _ = page_of(photos)
    assert links.addresses
    for address in links.addresses:
        parts = urlparse(address)
        assert parts.scheme in ("", "file", "data")
        if address == "data:,":
            continue
        if address.startswith("#"):
            assert any(a.get("id") == address[1:] for _, a in links.tags)
        else:
            file = Path(unquote(parts.path)) if parts.scheme else final.parent / unquote(parts.path)
            assert file.is_file(), address


def test_what_comes_from_outside_is_text(tmp_path: Path) -> None:
    folder = tmp_path / "set" / "<script>alert(1)<"
    folder.mkdir(parents=True)
    Image.fromarray(data.chelsea()).save(folder / 'a"><img onerror=x>.jpg')
    (folder / 'a"><img onerror=x>.txt').write_text(NASTY + "<script>alert(2)</script>")
    (folder / "broken<b>.jpg").write_bytes(b"<html><script>alert(3)</script></html>")
    _, links, text = page_of(tmp_path / "set")
    assert len([tag for tag, _ in links.tags if tag == "script"]) == 1
    assert not [a for _, a in links.tags if any(name.startswith("on") for name in a)]
    assert "&lt;script&gt;" in text


def test_only_its_own_script_and_style_may_run_and_nothing_comes_from_the_network(photos: Path) -> None:
    _, links, text = page_of(photos)
    (policy,) = [a["content"] or "" for tag, a in links.tags if tag == "meta" and a.get("http-equiv")]
    for tag in ("style", "script"):
        (inside,) = re.findall(rf"<{tag}>(.*?)</{tag}>", text, flags=re.S)
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'")
    assert "http" not in policy
    assert not any("style" in a for _, a in links.tags)
    assert not [address for address in links.addresses if "//" in address and not address.startswith("file:")]


def test_long_lists_are_capped_and_their_data_lie_beside_the_page(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    for i in range(130):
        Image.new("RGB", (64, 64), (i, 2 * i % 255, 0)).save(folder / f"<b> {i}.png")
    final, _, text = page_of(folder, select=("files.small",), embedder="none")
    (file,) = list((final.parent / DATA).glob("rule-files-small-*.js"))
    call = re.fullmatch(r'datasieveList\("([a-z0-9-]+)", (\[.*\])\);\n', file.read_text(encoding="utf-8"))
    assert call
    assert call[1] == file.stem
    items = json.loads(call[2])
    assert len(items) == 120
    assert all((final.parent / item["thumb"]).is_file() for item in items)
    assert items[0].keys() == {"name", "link", "thumb", "value"}
    assert text.count('<li class="tile"') == 12 + 1  # the first page, and the shape of an item
    assert "130 in all" in text


def test_a_page_written_anew_makes_no_thumbnail_twice_and_leaves_none_over(photos: Path) -> None:
    final, _, _ = page_of(photos)
    times = {file.name: file.stat().st_mtime_ns for file in (final.parent / THUMBNAILS).iterdir()}
    (final.parent / THUMBNAILS / f"{'0' * 24}-256.jpg").write_bytes(b"of a picture that is gone")
    page_of(photos)
    assert {file.name: file.stat().st_mtime_ns for file in (final.parent / THUMBNAILS).iterdir()} == times


def test_it_begins_with_three_things_to_do_and_their_commands(photos: Path) -> None:
    _, _, text = page_of(photos)
    (first,) = re.findall(r'<ol class="first">(.*?)</ol>', text, flags=re.S)
    titles = re.findall(r'<h3><a href="#[^"]+">([^<]+)</a></h3>', first)
    assert titles[0] == "Cut file"
    assert len(titles) == 3
    commands = re.findall(r"<code[^>]*>([^<]+)</code>", first)
    assert len(commands) == 3
    assert all(line.startswith("datasieve ") for line in commands)
    assert f"datasieve fix {photos}" in text


def test_after_a_fix_the_page_shows_before_and_after_and_why(photos: Path) -> None:
    turned = Image.fromarray(data.rocket())
    exif = turned.getexif()
    exif[274] = 6
    turned.save(photos / "thing" / "turned.jpg", exif=exif)
    assert main(["fix", str(photos), "-q"]) == 0
    report = photos.parent / "set-clean-report"
    text = (report / PAGE).read_text(encoding="utf-8")
    (change,) = re.findall(r'<li class="change">.*?</li>', text.partition("<template")[0], flags=re.S)
    before, after = re.findall(r'src="(thumbnails/[^"]+)"', change)
    with Image.open(report / before) as one, Image.open(report / after) as other:
        # The page shows both as they are meant to be seen, so turning the pixels changes nothing to the eye.
        assert one.size == other.size
    assert "upright (files.rotated)" in change
    assert "files.orientation: 6 → 1" in change
    assert "1</b> set aside as unreadable" in text


def test_a_set_without_findings_says_so(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    for i, pixels in enumerate((data.astronaut(), data.coffee(), data.chelsea(), data.rocket())):
        Image.fromarray(pixels).save(folder / f"{i}.jpg", quality=92)
    _, _, text = page_of(folder, select=("files.truncated",))
    assert "No rule found anything" in text
    assert ">Ready<" in text


def test_pictures_that_are_gone_are_named(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    final, _, _ = page_of(photos)
    (photos / "thing" / "again.jpg").unlink()
    assert main(["page", str(final.parent)]) == 0
    assert capsys.readouterr().out.strip() == str(final)
    assert "not found any more" in final.read_text(encoding="utf-8")


def test_the_command_line_writes_it_unless_told_not_to(photos: Path) -> None:
    assert main(["audit", str(photos), "--quiet", "--no-page"]) == 0
    assert not (photos.parent / "set-report" / PAGE).exists()
    assert main(["audit", str(photos), "--quiet"]) == 0
    assert (photos.parent / "set-report" / PAGE).exists()
