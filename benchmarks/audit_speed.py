"""How fast is an audit, against peers and against bare decoding, on the same photos and cores, in one run.

    python benchmarks/audit_speed.py PHOTOS [--rounds 3] [--peers cleanvision,fastdup]

Installs the named peers into a throw-away environment of their own, then runs, in turn and `--rounds` times:
datasieve with all analyzers, each peer's default run, and bare decoding to the working resolution with simplejpeg in
one process per core. Prints images per second (medians) and the ratios, as a Markdown table.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

PEERS = {
    "cleanvision": (
        ["cleanvision"],
        "import sys; from cleanvision import Imagelab; lab = Imagelab(data_path=sys.argv[1]); lab.find_issues()",
    ),
    "fastdup": (
        ["fastdup"],
        "import sys; import fastdup; fd = fastdup.create(work_dir=sys.argv[2], input_dir=sys.argv[1]); "
        "fd.run(num_images=0, overwrite=True)",
    ),
}


def decode(path: str) -> int:
    """Decode one JPEG to a short side of at least 512 pixels; return its pixels."""
    import simplejpeg

    data = Path(path).read_bytes()
    return int(simplejpeg.decode_jpeg(data, "RGB", min_height=512, min_width=512).size)


def bare_decoding(photos: list[str], cores: int) -> float:
    """Return seconds for decoding all photos with one process per core."""
    with multiprocessing.Pool(cores) as pool:
        pool.map(decode, photos[:cores])  # the processes are up and warm
        started = time.perf_counter()
        pool.map(decode, photos, chunksize=4)
        return time.perf_counter() - started


def command_seconds(command: list[str], **options: object) -> float:
    """Return the wall seconds of one command. Raises CalledProcessError with its output."""
    started = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, **options)  # type: ignore[call-overload]  # options
    seconds = time.perf_counter() - started
    if done.returncode:
        raise subprocess.CalledProcessError(done.returncode, command, done.stdout, done.stderr)
    return seconds


def install(peer: str, folder: Path) -> Path:
    """Install a peer into a fresh environment; return its Python."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", *PEERS[peer][0]], check=True)
    return python


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peers", default="cleanvision,fastdup")
    arguments = parser.parse_args()
    photos = sorted(str(p) for p in arguments.photos.iterdir() if p.suffix.lower() in (".jpg", ".jpeg"))
    cores = os.cpu_count() or 1
    times: dict[str, list[float]] = {}
    refused: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as scratch:
        work = Path(scratch)
        pythons: dict[str, Path] = {}
        for peer in filter(None, arguments.peers.split(",")):
            try:
                pythons[peer] = install(peer, work / f"venv-{peer}")
            except subprocess.CalledProcessError as error:
                refused[peer] = f"could not be installed ({error})"
        for _ in range(arguments.rounds):
            for name in ("bare decoding", "datasieve", *pythons):
                if name == "bare decoding":
                    seconds = bare_decoding(photos, cores)
                elif name == "datasieve":
                    shutil.rmtree(work / "report", ignore_errors=True)
                    command = [
                        sys.executable,
                        "-m",
                        "datasieve.cli",
                        "audit",
                        str(arguments.photos),
                        "--quiet",
                        "--no-page",
                        "--embedder",
                        "none",
                    ]
                    seconds = command_seconds([*command, "--out", str(work / "report")])
                else:
                    output = work / f"out-{name}"
                    shutil.rmtree(output, ignore_errors=True)
                    command = [str(pythons[name]), "-c", PEERS[name][1], str(arguments.photos), str(output)]
                    try:
                        seconds = command_seconds(command, cwd=work)
                    except subprocess.CalledProcessError as error:
                        refused[name] = f"did not run: {(error.stderr or error.stdout).strip().splitlines()[-1:]}"
                        continue
                times.setdefault(name, []).append(seconds)
    ours = statistics.median(times["datasieve"])
    print(
        f"{len(photos)} photos, {cores} cores, median of {arguments.rounds} rounds; whole commands, start-up included\n"
    )
    print("| | images/s | datasieve is faster by |\n| --- | --- | --- |")
    for name, seconds_list in times.items():
        seconds = statistics.median(seconds_list)
        print(f"| {name} | {len(photos) / seconds:.1f} | {seconds / ours:.2f} x |")
    for name, reason in refused.items():
        print(f"\n{name} {reason}.")


if __name__ == "__main__":
    main()
