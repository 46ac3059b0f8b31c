"""The quickstart's tour: Starlane does its main job on real input, and each step is timed beside the same step on the
local disk."""

import argparse
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import corpus

HERE = pathlib.Path(__file__).resolve().parent
PROMPT = "The scheduler "
BOLD, DIM, GREEN, CYAN, END = ("\033[1m", "\033[2m", "\033[32m", "\033[36m", "\033[0m") if sys.stdout.isatty() else ("",) * 5


def say(text: str) -> None:
    print(f"{GREEN}●{END} {text}", flush=True)


def detail(text: str) -> None:
    print(f"  {DIM}{text}{END}", flush=True)


def size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:.0f} {unit}" if count >= 10 or unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return ""


def timed(call, *arguments) -> float:
    started = time.perf_counter()
    call(*arguments)
    return time.perf_counter() - started


def memory_available() -> int:
    for line in pathlib.Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable"):
            return int(line.split()[1]) * 1024
    return 4 << 30


class Starlane:
    """`starlane up`, and the commands on its site."""

    def __init__(self, binary: pathlib.Path, base: pathlib.Path):
        self.binary, self.dir, self.mount = binary, base / "site", base / "mnt"
        self.log = base / "up.log"
        self.process = None
        self.mount.mkdir(parents=True, exist_ok=True)

    def up(self) -> float:
        started = time.perf_counter()
        with open(self.log, "a") as log:
            self.process = subprocess.Popen([self.binary, "up", "--dir", self.dir, "--mount", self.mount],
                                            stdout=subprocess.PIPE, stderr=log, text=True)
        for line in self.process.stdout:
            if line.startswith("ready"):
                return time.perf_counter() - started
        sys.exit(f"starlane did not start:\n{self.log.read_text()[-2000:]}")

    def down(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait()
            self.process = None

    def run(self, *arguments, show: bool = False) -> str:
        done = subprocess.run([self.binary, "--dir", self.dir, *arguments], stdout=subprocess.PIPE,
                              stderr=None if show else subprocess.PIPE, text=True)
        if done.returncode != 0:
            sys.exit(f"starlane {' '.join(map(str, arguments))}: {done.stderr or ''}")
        return done.stdout


def forget_caches() -> bool:
    """What the kernel has cached of any file is dropped, where we may."""
    os.sync()
    try:
        pathlib.Path("/proc/sys/vm/drop_caches").write_text("3\n")
        return True
    except OSError:
        return False


def copy_tree(source: pathlib.Path, target: pathlib.Path) -> None:
    subprocess.run(["cp", "-r", source, target], check=True)


def read_tree(root: pathlib.Path) -> int:
    total = 0
    for directory, _, files in os.walk(root):
        for name in files:
            path = os.path.join(directory, name)
            if os.path.isfile(path) and not os.path.islink(path):
                with open(path, "rb") as file:
                    total += len(file.read())
    return total


def python(script: str, *arguments) -> dict:
    done = subprocess.run([sys.executable, HERE / script, *arguments], stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{script} failed")
    return json.loads(done.stdout.splitlines()[-1])


def tour(starlane: Starlane, base: pathlib.Path, seconds: float, checkpoint_bytes: int) -> list:
    rows = []
    say("Bringing real text: the Linux kernel's documentation")
    text = corpus.fetch(base / "download")
    files = sum(len(names) for _, _, names in os.walk(text))
    total = read_tree(text)
    detail(f"{files:,} files, {size(total)}")

    say("Starting Starlane: metadata, block store, keeper and mount in one process")
    detail(f"ready in {starlane.up():.2f} s, mounted at {starlane.mount}")
    starlane.run("volume", "create", "work")
    volume = starlane.mount / "volumes" / "work"
    while not volume.is_dir():
        time.sleep(0.02)
    local = base / "local"
    local.mkdir(exist_ok=True)

    name, version = text.parent.name, text.name
    say(f"Publishing it as public/{name}/{version}: written, read back, compared, frozen")
    ours = timed(lambda: starlane.run("dataset", "publish", text, name, version, show=True))
    rows.append(("publish the data set (local: cp -r)", ours, timed(copy_tree, text, local / "public")))
    published = starlane.mount / "public" / name / version
    while not published.is_dir():
        time.sleep(0.02)

    say("Copying it into the volume with cp -r: blocks are shared, no bytes move")
    rows.append(("cp -r into the volume", timed(copy_tree, published, volume / "data"),
                 timed(copy_tree, local / "public", local / "data")))

    say("Reading every file of the copy")
    starlane.down()
    cold = forget_caches()
    starlane.up()
    rows.append((f"read {files:,} files, {'cold' if cold else 'warm'}", timed(read_tree, volume / "data"),
                 timed(read_tree, local / "data")))

    say(f"Training a small language model on it for {seconds:.0f} s, saving with torch.save")
    trained = python("train.py", volume / "data", volume / "chat.pt", local / "chat.pt", "--seconds", str(seconds),
                     "--checkpoint-bytes", str(checkpoint_bytes))
    detail(f"{trained['parameters'] / 1e6:.0f} M parameters, {trained['steps']} steps, "
           f"loss {trained['first_loss']:.2f} -> {trained['last_loss']:.2f}")
    rows.append((f"torch.save of {size(trained['checkpoint_bytes'])} and fsync", *trained["save_seconds"]))

    say("Loading the checkpoint in new processes with torch.load(path, mmap=True), and asking it something")
    starlane.down()
    cold = forget_caches()
    starlane.up()
    loads = [python("infer.py", volume / "chat.pt", PROMPT) for _ in range(2)]
    forget_caches()
    local_loads = [python("infer.py", local / "chat.pt", PROMPT) for _ in range(2)]
    rows.append((f"torch.load(mmap=True), {'cold' if cold else 'first'}", loads[0]["load_seconds"], local_loads[0]["load_seconds"]))
    rows.append(("torch.load(mmap=True), second process", loads[1]["load_seconds"], local_loads[1]["load_seconds"]))
    if loads[0]["answer"] != local_loads[0]["answer"]:
        sys.exit("the two copies of the checkpoint answer differently: this must not happen")
    print(f"\n  {CYAN}{' '.join(loads[0]['answer'].split())}{END}\n")
    return rows


def print_table(rows: list, starlane: Starlane) -> None:
    width = max(len(row[0]) for row in rows)
    print(f"{BOLD}{'step'.ljust(width)}   Starlane   local disk{END}")
    for name, ours, local in rows:
        print(f"{name.ljust(width)}  {ours:7.2f} s    {local:7.2f} s")
    status = json.loads(starlane.run("--json", "status"))
    volumes = json.loads(starlane.run("--json", "volume", "list"))
    live = sum(volume["live_bytes"] for volume in volumes)
    print(f"\nThe volume shows {size(live)}; with the data set, {size(status['stored_bytes'])} are stored.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", type=pathlib.Path, required=True)
    parser.add_argument("--base", type=pathlib.Path, required=True, help="a directory for everything this makes")
    parser.add_argument("--seconds", type=float, default=45, help="how long to train")
    parser.add_argument("--keep", action="store_true", help="leave Starlane running at the end")
    arguments = parser.parse_args()
    shutil.rmtree(arguments.base / "local", ignore_errors=True)
    shutil.rmtree(arguments.base / "site", ignore_errors=True)
    starlane = Starlane(arguments.binary, arguments.base)
    checkpoint_bytes = 1 << 30 if memory_available() > 8 << 30 else 256 << 20
    try:
        rows = tour(starlane, arguments.base, arguments.seconds, checkpoint_bytes)
        print_table(rows, starlane)
    finally:
        if not arguments.keep:
            starlane.down()
        shutil.rmtree(arguments.base / "local", ignore_errors=True)
    binary = os.path.relpath(arguments.binary)
    print(f"""
{BOLD}What to try next{END}
  {binary} up --dir {os.path.relpath(starlane.dir)} --mount {os.path.relpath(starlane.mount)}
  {binary} --dir {os.path.relpath(starlane.dir)} status
  {binary} --dir {os.path.relpath(starlane.dir)} dataset publish ./my-data my-data v1
  {binary} bench                     figures of this machine beside its own ceilings""")


if __name__ == "__main__":
    main()
