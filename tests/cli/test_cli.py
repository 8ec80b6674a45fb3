"""The command line: what goes where, with which exit code. The audit itself is a stand-in here."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, get_args

import pytest

from datasieve import cli, config
from datasieve.cli import main
from datasieve.errors import InputError
from tests.reporting.stub import RULES, StubReport, finding, image

HEAVY = ("torch", "pandas", "pyarrow", "numpy", "rich", "PIL", "msgspec")


class Calls(list[dict[str, Any]]):
    """The calls of audit; `result` is returned, or raised when it is an exception."""

    result: StubReport | BaseException


@pytest.fixture
def audits(monkeypatch, tmp_path) -> Calls:
    calls = Calls()
    calls.result = StubReport(
        [
            finding("demo.blur", "warning", path="soft.jpg", value=2.0, limit=20.0),
            finding("demo.few", "info", concept="cat"),
        ],
        verdict="ready",
    )

    def audit(path: Path, out: Path | None = None, **options: Any) -> StubReport:
        calls.append({"path": path, "out": out, **options})
        if isinstance(calls.result, BaseException):
            raise calls.result
        options["progress"].stage("Measuring", 2)
        options["progress"].note("a worker was replaced")
        return calls.result

    monkeypatch.setattr("datasieve.pipeline.run.audit", audit)
    monkeypatch.setattr("datasieve.policy.all_rules", lambda: RULES)
    monkeypatch.setattr("datasieve.cli.audit._write_page", lambda *arguments: None)  # a stub has no pictures
    monkeypatch.chdir(tmp_path)
    return calls


def test_help_is_quick_and_loads_nothing_heavy():
    code = (
        "import sys; from datasieve.cli import main\n"
        "for words in (['--help'], ['audit', '--help'], *([name, '-h'] for name in ('captions', 'show', 'explain',"
        " 'doctor'))):\n"
        "    assert main(words) == 0\n"
        f"print(sorted(set({HEAVY!r}) & set(sys.modules)), file=sys.stderr)"
    )
    began = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    taken = time.perf_counter() - began
    assert done.stderr.strip() == "[]"
    for name in cli.COMMANDS:
        assert f"\n  {name} " in done.stdout
    assert taken < 5, "the goal of 0.5 s is for a machine with nothing else to do"


def test_the_version_is_printed(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("datasieve, version ")


def test_every_command_has_a_file_and_every_file_is_a_command():
    files = {p.stem for p in Path(cli.__file__).parent.glob("*.py")} - {"__init__", "__main__", "choices"}
    assert files == set(cli.COMMANDS)


def test_the_choices_are_those_of_the_settings():
    from importlib import import_module

    module = import_module("datasieve.cli.audit")
    shared = import_module("datasieve.cli.choices")
    assert get_args(config.Target) == shared.TARGETS
    assert get_args(config.Base) == shared.BASES
    assert get_args(config.Trainer) == shared.TRAINERS
    assert get_args(config.ConceptBy) == module.CONCEPT_BY
    assert get_args(config.Embedder) == module.EMBEDDERS
    assert get_args(config.FailOn) == module.FAIL_ON


def test_results_go_to_stdout_and_notes_to_stderr(audits, capsys):
    assert main(["audit", "photos"]) == 0
    told = capsys.readouterr()
    assert "Verdict: READY" in told.out
    assert "soft.jpg" in told.out
    assert told.err == "a worker was replaced\n", "no bar in a pipe"
    assert "\x1b" not in told.out


def test_quiet_says_nothing_on_stderr(audits, capsys):
    assert main(["audit", "photos", "--quiet"]) == 0
    told = capsys.readouterr()
    assert told.err == ""
    assert "Verdict" in told.out


def test_options_reach_the_audit(audits):
    words = (
        "audit set --out rep --for lora --base sdxl --trainer kohya --resolution 768 --batch-size 4 --concept-by none"
    )
    words += " --select demo,files.x --select colour --ignore demo.blur --limit demo.blur=3.5 --fail-on error"
    words += " --fresh --workers 2 --device cpu --max-pixels 1000 --baseline b.json"
    main(words.split())
    [call] = audits
    settings = call["settings"]
    assert (call["path"], call["out"], call["fresh"]) == (Path("set"), Path("rep"), True)
    assert (call["workers"], call["device"], call["baseline"]) == (2, "cpu", Path("b.json"))
    assert (settings.target, settings.base, settings.trainer, settings.pixels) == ("lora", "sdxl", "kohya", 768)
    assert (settings.batch_size, settings.concept_by, settings.max_pixels) == (4, "none", 1000)
    assert settings.select == ("demo", "files.x", "colour")
    assert (settings.ignore, settings.limits, settings.fail_on) == (("demo.blur",), {"demo.blur": 3.5}, "error")


def test_the_file_of_settings_is_found_and_options_win(audits, tmp_path):
    (tmp_path / "datasieve.toml").write_text(
        'base = "flux"\nfail-on = "warning"\n[limits]\n"demo.blur" = 9\n"demo.few" = 1\n'
    )
    assert main(["audit", "set", "--limit", "demo.blur=2", "--for", "lora"]) == 1, "fail-on comes from the file"
    settings = audits[0]["settings"]
    assert (settings.base, settings.target) == ("flux", "lora")
    assert settings.limits == {"demo.blur": 2, "demo.few": 1}


@pytest.mark.parametrize(
    ("severity", "verdict", "fail_on", "code"),
    [
        ("warning", "ready", "never", 0),
        ("warning", "ready", "warning", 1),
        ("warning", "ready", "error", 0),
        ("error", "fix first", "error", 1),
        ("error", "fix first", "warning", 1),
        ("info", "ready", "warning", 0),
        ("info", "not trainable", "error", 1),
        ("info", "not trainable", "never", 0),
    ],
)
def test_exit_1_means_findings_at_or_above_fail_on(audits, severity, verdict, fail_on, code):
    audits.result = StubReport([finding("demo.blur", severity, path="a.jpg")], verdict=verdict)
    assert main(["audit", "set", "--fail-on", fail_on]) == code


def test_an_error_that_the_user_can_act_on_is_told_with_its_remedy_and_exit_2(audits, capsys):
    audits.result = InputError("there is no folder a\x1b[31mb", remedy="Name another.")
    assert main(["audit", "a"]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err == "datasieve: there is no folder a\\x1b[31mb\n  Name another.\n"


@pytest.mark.parametrize("words", [["audit"], ["audit", "a", "--base", "sd99"], ["audit", "a", "--limit", "x"], ["no"]])
def test_wrong_usage_is_exit_2(words, audits, capsys):
    assert main(words) == 2
    assert "Usage:" in capsys.readouterr().err
    assert not audits


def test_a_mistyped_command_gets_a_hint(capsys):
    main(["audti"])
    assert "audit" in capsys.readouterr().err


def test_a_fault_of_ours_is_exit_2_and_not_findings(audits, capsys):
    audits.result = RuntimeError("oops")
    assert main(["audit", "a"]) == 2
    assert "fault in datasieve" in capsys.readouterr().err


def test_ctrl_c_is_exit_130_and_says_how_to_go_on(audits, capsys):
    from datasieve.pipeline.run import Interrupted

    audits.result = Interrupted(StubReport(status="interrupted"))  # type: ignore[arg-type]
    assert main(["audit", "a"]) == 130
    err = capsys.readouterr().err
    assert "photos-report" in err
    assert "same command again" in err
    for stop in (Interrupted(None), KeyboardInterrupt()):
        audits.result = stop
        assert main(["audit", "a"]) == 130


@pytest.mark.parametrize("form", ["json", "csv", "sarif", "github"])
def test_machine_formats_are_alone_on_stdout(form, audits, capsysbinary):
    audits.result.findings_[0]["path"] = "köln/👍.jpg"
    assert main(["audit", "photos", "--format", form, "--quiet"]) == 0
    out = capsysbinary.readouterr().out.decode("utf-8")
    if form == "json":
        assert [f["rule"] for f in json.loads(out)["findings"]] == ["demo.blur", "demo.few"]
    elif form == "csv":
        assert [row["path"] for row in csv.DictReader(io.StringIO(out))] == ["köln/👍.jpg", ""]
    elif form == "sarif":
        assert len(json.loads(out)["runs"][0]["results"]) == 2
    else:
        assert [line.split(" ")[0] for line in out.splitlines()] == ["::warning", "::notice"]


def test_a_baseline_is_written_once_and_grows(audits, tmp_path, capsys):
    known = tmp_path / "known.json"
    assert main(["audit", "set", "--write-baseline", str(known), "--fail-on", "warning"]) == 0, "accepted: no failure"
    assert json.loads(known.read_text()) == [
        {"rule": "demo.blur", "path": "soft.jpg"},
        {"rule": "demo.few", "path": "cat"},
    ]
    audits.result = StubReport([finding("demo.cut", "error", path="new.jpg")])
    main(["audit", "set", "--baseline", str(known), "--write-baseline", str(known)])
    assert len(json.loads(known.read_text())) == 3, "what was accepted before stays accepted"
    assert "3 findings" in capsys.readouterr().err


def test_a_baseline_that_cannot_be_written_is_said_before_the_work(audits, tmp_path):
    assert main(["audit", "set", "--write-baseline", str(tmp_path / "no" / "known.json")]) == 2
    assert not audits


def test_a_reader_that_went_away_is_no_error(tmp_path):
    code = "import sys\nfrom datasieve.reporting.text import write_out\nwrite_out('x' * 10_000_000)\nsys.exit(1)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.read(1)
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 1, "its own exit code stands"


def test_a_terminal_that_knows_only_ascii_gets_plain_letters():
    code = "from datasieve.reporting.text import write_out\nwrite_out('✗ köln… →')"
    env = {"PYTHONIOENCODING": "ascii", "PATH": ""}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=env, check=True)
    assert done.stdout == b"x k\\xf6ln... >\n"


@pytest.fixture
def opened(monkeypatch) -> StubReport:
    report = StubReport(
        [finding("demo.blur", "warning", path="cat/1.jpg", value=2.0, limit=20.0)],
        [image("cat/1.jpg", **{"demo.blur": 2.0}), image("cat/2.jpg")],
    )
    monkeypatch.setattr("datasieve.report.open_report", lambda path: report)
    monkeypatch.setattr("datasieve.policy.all_rules", lambda: RULES)
    monkeypatch.setattr("datasieve.cli.audit._write_page", lambda *arguments: None)  # a stub has no pictures
    return report


def test_show_reads_the_summary_a_rule_and_an_image_back(opened, capsys):
    assert main(["show", "r"]) == 0
    assert "Verdict" in capsys.readouterr().out
    assert main(["show", "r", "--rule", "demo.blur"]) == 0
    assert "cat/1.jpg" in capsys.readouterr().out
    assert main(["show", "r", "--image", "1.jpg"]) == 0
    assert "2 px" in capsys.readouterr().out


def test_show_speaks_json_and_csv(opened, capsys):
    main(["show", "r", "--format", "json", "--rule", "demo.blur"])
    assert json.loads(capsys.readouterr().out)["findings"][0]["value"] == 2.0
    main(["show", "r", "--format", "csv", "--image", "cat/1.jpg"])
    rows = {row["column"]: row for row in csv.DictReader(io.StringIO(capsys.readouterr().out))}
    assert (rows["demo.blur"]["value"], rows["demo.blur"]["unit"]) == ("2.0", "px")
    assert rows["demo.share"]["value"] == "", "not measured is empty, never 0"
    main(["show", "r", "--format", "json", "--image", "cat/2.jpg"])
    assert json.loads(capsys.readouterr().out)["findings"] == []


@pytest.mark.parametrize("words", [["--rule", "demo.blurr"], ["--image", "cat/11.jpg"]])
def test_show_suggests_near_names(words, opened, capsys):
    assert main(["show", "r", *words]) == 2
    assert "Did you mean" in capsys.readouterr().err


def test_show_without_a_report_is_exit_2(tmp_path, capsys):
    assert main(["show", str(tmp_path)]) == 2
    assert "is not a report" in capsys.readouterr().err


def test_explain_lists_shows_and_suggests(monkeypatch, capsys):
    monkeypatch.setattr("datasieve.policy.all_rules", lambda: RULES)
    monkeypatch.setattr("datasieve.cli.audit._write_page", lambda *arguments: None)  # a stub has no pictures
    assert main(["explain"]) == 0
    assert "3 rules" in capsys.readouterr().out
    assert main(["explain", "demo.cut"]) == 0
    assert "It will be learned." in capsys.readouterr().out
    assert main(["explain", "demo.cutt"]) == 2
    assert "demo.cut" in capsys.readouterr().err


def test_explain_knows_every_analyzer_column_and_rule(capsys):
    from datasieve.analyzers import load, names

    for name in names():
        analyzer = load(name)
        assert main(["explain", name]) == 0
        assert main(["explain", analyzer.columns[0].name]) == 0
        assert analyzer.columns[0].description[:30] in " ".join(capsys.readouterr().out.split())
