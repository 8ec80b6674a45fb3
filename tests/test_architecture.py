"""The house rules that no reader should have to check by hand."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
HEAVY = ("torch", "pandas", "pyarrow", "numpy", "PIL")


def loaded_after(code: str) -> set[str]:
    """Return which heavy packages a fresh interpreter has loaded after running `code`."""
    probe = f"{code}\nimport sys\nprint(*[m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_dependencies_point_one_way() -> None:
    command = [str(Path(sys.executable).parent / "lint-imports"), "--config", "pyproject.toml", "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_importing_the_package_loads_nothing_heavy() -> None:
    assert loaded_after("import datasieve") == set()


@pytest.mark.parametrize("module", ["errors", "records", "schema", "rules", "config", "progress"])
def test_the_bottom_layers_load_no_torch_pandas_or_pyarrow(module: str) -> None:
    assert not loaded_after(f"import datasieve.{module}") & {"torch", "pandas", "pyarrow"}


def test_rules_can_be_read_without_torch() -> None:
    assert not loaded_after("from datasieve.policy import all_rules; all_rules()") & {"torch", "pandas"}


def test_a_decode_worker_loads_no_torch() -> None:
    code = "import datasieve.pipeline.worker, datasieve.imaging.decode"
    assert not loaded_after(code) & {"torch", "pandas", "pyarrow"}


def test_no_source_file_is_longer_than_400_lines() -> None:
    lengths = {p: len(p.read_text(encoding="utf-8").splitlines()) for p in (ROOT / "datasieve").rglob("*.py")}
    assert {str(p): n for p, n in lengths.items() if n > 400} == {}


def test_the_public_names_are_there() -> None:
    import datasieve

    for name in datasieve.__all__:
        assert getattr(datasieve, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = datasieve.nonsense


def test_the_page_of_every_rule_is_as_its_data_say() -> None:
    from datasieve.reporting.rule_pages import main

    assert main(["--check", str(ROOT / "docs" / "rules")]) == 0, "run `make docs`"
