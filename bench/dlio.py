#!/usr/bin/env python3
"""The real DLIO (`dlio_benchmark`, the program behind MLPerf Storage) on a Starlane mount, in memory (tmpfs) and on the local disk:
training like unet3d (large arrays), like resnet50 (small images), and with checkpoints, each scaled to a small machine; first
epochs from cold caches. Prints a table and draws a chart. It is no MLPerf result: data are far below the sizes its rules ask for.

  tools/python_venv --dlio                                     makes .venv-dlio, which has DLIO
  .venv-dlio/bin/python bench/dlio.py --chart dlio.svg         two minutes to five; 3 GiB of memory, 1 GiB of disk
"""

import argparse
import dataclasses
import importlib.util
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import typing

import report
import sites

DATA = {"workflow.checkpoint": False, "train.epochs": 2, "reader.read_threads": 2, "reader.file_shuffle": "seed",
        "dataset.num_samples_per_file": 1, "dataset.record_length_stdev": 0}
KINDS: dict[str, dict[str, object]] = {  # what differs from DLIO's own unet3d_h100
    "unet3d": DATA | {"dataset.num_files_train": 96, "dataset.record_length": 8 << 20, "reader.batch_size": 4,
                      "train.computation_time": 0.05},
    # resnet50's samples as files of their own: DLIO makes TFRecords by a program of NVIDIA's only
    "resnet50": DATA | {"dataset.format": "jpeg", "dataset.num_files_train": 2000, "dataset.record_length": 114_660,
                        "dataset.record_length_resize": 150_528, "reader.batch_size": 50, "train.computation_time": 0.05},
    "checkpoint": DATA | {"dataset.num_files_train": 8, "dataset.record_length": 1 << 20, "reader.batch_size": 4,
                          "train.computation_time": 0.05, "workflow.checkpoint": True, "checkpoint.checkpoint_after_epoch": 1,
                          "checkpoint.epochs_between_checkpoints": 1, "checkpoint.model_size": 256 << 20},
}


@dataclasses.dataclass(frozen=True)
class Figures:
    """By epoch: samples a second, and per cent of the time that the accelerator would have computed (its work is a sleep).
    saved: bytes a second of checkpoints, as torch.save wrote them; 0: there were none."""

    samples: list[float]
    busy: list[float]
    saved: float


def dlio(kind: str, data: pathlib.Path, results: pathlib.Path, *, generate: bool) -> None:
    step = {"workflow.generate_data": generate, "workflow.train": not generate, "dataset.data_folder": data / "data",
            "checkpoint.checkpoint_folder": data / "checkpoints"} | ({"workflow.checkpoint": False} if generate else {})
    words = [f"++workload.{name}={value}" for name, value in (KINDS[kind] | step).items()]
    done = subprocess.run([sys.executable, "-m", "dlio_benchmark.main", "workload=unet3d_h100", f"hydra.run.dir={results}", *words],
                          capture_output=True, text=True, cwd=results.parent, env={**os.environ, "OMP_NUM_THREADS": "1"})
    if done.returncode != 0 or not (generate or (results / "summary.json").exists()):
        sys.exit(f"DLIO failed:\n{done.stdout[-1500:]}{done.stderr[-1500:]}")


def figures(data: pathlib.Path, results: pathlib.Path) -> Figures:
    metric = json.loads((results / "summary.json").read_text())["metric"]
    epochs = json.loads((results / "per_epoch_stats.json").read_text()).values()
    took = sum(float(part["duration"]) for epoch in epochs for name, part in epoch.items() if name.startswith("ckpt"))
    length = sum(path.stat().st_size for path in (data / "checkpoints").glob("*.pt"))
    return Figures(metric["train_throughput_samples_per_second"], metric["train_au_percentage"], length / took if took else 0.0)


def measure(kind: str, places: dict[str, typing.Any], results: pathlib.Path) -> dict[str, Figures]:
    """The same data in each place, one place after the other."""
    dlio(kind, places["memory"].path / kind, results / "made", generate=True)
    found = {}
    for where, place in places.items():
        data = place.path / kind
        if where != "memory":
            shutil.copytree(places["memory"].path / kind, data)
        place.cold()
        dlio(kind, data, results / where, generate=False)
        found[where] = figures(data, results / where)
        if where != "memory":
            shutil.rmtree(data)
    shutil.rmtree(places["memory"].path / kind)
    return found


def row(kind: str, where: str, one: Figures) -> list[str]:
    return [kind, where, *(f"{value:.1f}" for pair in zip(one.samples, one.busy, strict=True) for value in pair),
            f"{one.saved / 1e6:.0f}" if one.saved else ""]


def draw(chart: pathlib.Path, found: dict[str, dict[str, Figures]]) -> None:
    epochs = ("first epoch, cold", "second epoch")
    panels = {f"{kind}: samples a second": {epoch: {where: one.samples[number] for where, one in of.items()}
                                            for number, epoch in enumerate(epochs)}
              for kind, of in found.items() if kind != "checkpoint"}
    busy = {f"{kind}, {epoch}": {where: one.busy[number] for where, one in of.items()}
            for kind, of in found.items() if kind != "checkpoint" for number, epoch in enumerate(epochs)}
    saved = {where: one.saved / 1e6 for where, one in found.get("checkpoint", {}).items()}
    panels |= {"accelerator busy, %": busy} if busy else {}
    panels |= {"checkpoints, MB/s": {"torch.save": saved}} if saved else {}
    report.draw(chart, f"DLIO, scaled to a small machine: {report.machine()}", panels)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=KINDS, nargs="+", default=list(KINDS))
    parser.add_argument("--disk", default=sites.DISK, help="a directory on the local disk")
    parser.add_argument("--chart", type=pathlib.Path, help="a file to draw into, as dlio.svg")
    options = parser.parse_args()
    if not importlib.util.find_spec("dlio_benchmark"):
        sys.exit("this Python has no DLIO; `tools/python_venv --dlio` makes .venv-dlio/bin/python, which has")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    places: dict[str, typing.Any] = {}
    found: dict[str, dict[str, Figures]] = {}
    with tempfile.TemporaryDirectory(prefix="starlane-dlio-") as results:
        try:
            places["memory"], places["disk"] = sites.Local(sites.MEMORY), sites.Local(options.disk)
            places["mount"] = sites.Site()
            about = f"DLIO 2.0.0, {report.machine()}, disk: {sites.kind_of(options.disk)}"
            for kind in options.kind:
                print(kind, file=sys.stderr)
                (pathlib.Path(results) / kind).mkdir()
                found[kind] = measure(kind, places, pathlib.Path(results) / kind)
        finally:
            for place in places.values():
                place.remove()
    print(about + "\n")
    report.show([["WORKLOAD", "WHERE", "SAMPLES/s, COLD", "BUSY %", "SAMPLES/s, WARM", "BUSY %", "SAVES MB/s"],
                 *(row(kind, where, one) for kind, of in found.items() for where, one in of.items())], right=tuple(range(2, 7)))
    if options.chart:
        draw(options.chart, found)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("interrupted; what it made is removed")
