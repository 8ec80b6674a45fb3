"""Buckets over a set: who shares one, and who cannot fill a batch."""

import pyarrow as pa
import pytest

from datasieve.analyzers.buckets import ANALYZER
from datasieve.config import Settings


def table(
    sizes: list[tuple[int, int]], repeats: list[int] | None = None, concepts: list[str] | None = None
) -> pa.Table:
    count = len(sizes)
    return pa.table(
        {
            "status": ["ok" if w else "unreadable" for w, _ in sizes],
            "width": pa.array([w or None for w, _ in sizes], pa.int32()),
            "height": pa.array([h or None for _, h in sizes], pa.int32()),
            "repeats": repeats or [1] * count,
            "concept": concepts or [""] * count,
        }
    )


def test_images_alone_in_their_shape_lack_company_for_a_batch() -> None:
    sizes = [(512, 512)] * 8 + [(384, 640)] * 3 + [(1200, 240)]
    found = ANALYZER.compare(table(sizes), Settings(batch_size=4))
    assert found.columns["buckets.fill"] == [8] * 8 + [3] * 3 + [1]
    assert found.columns["buckets.shortfall"] == [0] * 8 + [1] * 3 + [3]


def test_repeats_fill_a_bucket() -> None:
    found = ANALYZER.compare(table([(512, 512), (384, 640)], repeats=[1, 4]), Settings(batch_size=4))
    assert found.columns["buckets.shortfall"] == [3, 0]


def test_a_trainer_that_squashes_has_one_bucket_and_distorts() -> None:
    found = ANALYZER.compare(table([(512, 512), (1024, 512)]), Settings(batch_size=2, trainer="a1111"))
    assert found.columns["buckets.shortfall"] == [0, 0]
    assert found.columns["buckets.squash"] == [1.0, 2.0]


def test_the_base_sets_the_resolution() -> None:
    found = ANALYZER.compare(table([(2000, 2000)]), Settings(base="sdxl"))
    assert found.columns["buckets.width"] == [1024]


def test_a_centre_square_keeps_the_short_side() -> None:
    found = ANALYZER.compare(table([(400, 1600)]), Settings())
    assert found.columns["buckets.square-crop-share"] == [pytest.approx(0.75)]


def test_unreadable_images_have_no_bucket() -> None:
    found = ANALYZER.compare(table([(0, 0), (512, 512)]), Settings())
    assert found.columns["buckets.width"] == [None, 512]


def test_unknown_bucket_rules_are_said_to_be_unknown() -> None:
    found = ANALYZER.compare(table([(512, 512)]), Settings(trainer="simpletuner"))
    assert found.columns["buckets.width"] == [None]
    assert "depend on settings" in found.unmeasured["buckets"]


def test_a_concepts_weight_is_its_share_of_an_epoch() -> None:
    sizes = [(512, 512)] * 4
    found = ANALYZER.compare(table(sizes, repeats=[10, 10, 5, 5], concepts=["cat", "cat", "dog", "dog"]), Settings())
    assert found.concepts["buckets.weight"] == {"cat": pytest.approx(2 / 3), "dog": pytest.approx(1 / 3)}
