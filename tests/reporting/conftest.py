"""A report that exists only in memory, shared by the tests of reporting."""

from __future__ import annotations

import pytest

from tests.reporting.stub import StubReport, finding, messy


@pytest.fixture
def report() -> StubReport:
    return StubReport(
        findings=[
            finding("demo.blur", "warning", path="cat/soft.jpg", value=4.0, limit=20.0, message="Blurred: 4."),
            finding("demo.blur", "warning", path="cat/softest.jpg", value=2.0, limit=20.0, message="Blurred: 2."),
            finding(
                "demo.cut", "error", path="dog/half.jpg", value=1.0, limit=1.0, message="Cut off.", remedy="Replace it."
            ),
            finding("demo.few", "info", concept="dog", value=2.0, limit=5.0, remedy="Add more images of dog."),
        ]
    )


@pytest.fixture
def messy_report() -> StubReport:
    return messy()
