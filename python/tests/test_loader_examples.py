"""examples/dcp and examples/webdataset, run as their READMEs say; examples/vllm is in test_vllm.py."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest
from conftest import ROOT, wait_until

EXAMPLES = ROOT / "examples"


def torchrun(env, *arguments):
    """Two ranks in a process group of their own, so that all of it can be killed at once."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
                            env={**env, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "PYTHONWARNINGS": "ignore"})


def finished(process) -> list[str]:
    said, complaints = process.communicate(timeout=900)
    assert process.returncode == 0, complaints[-3000:]
    return said.splitlines()


@pytest.mark.slow
def test_dcp_goes_on_after_a_kill_as_if_nothing_had_been(work, python_env):
    pytest.importorskip("torch.distributed.fsdp", reason="needs torch 2.6")
    train = EXAMPLES / "dcp/train.py"
    (work / "killed").mkdir()
    killed = torchrun(python_env, train, work / "killed", "--steps", "100000", "--every", "5")
    wait_until((work / "killed/latest/.metadata").exists, seconds=600)
    time.sleep(1)  # into the saves that follow
    os.killpg(killed.pid, signal.SIGKILL)
    subprocess.run(["pkill", "-KILL", "-f", f"{train} {work}/killed"])  # its ranks have sessions of their own
    killed.communicate()
    probe = torchrun(python_env, train, work / "killed", "--steps", "1")  # only says where it would go on
    at = int(re.search(r"going on after step (\d+)", finished(probe)[0])[1])
    assert at >= 5 and at % 5 == 0
    (work / "whole").mkdir()
    end = ["--steps", at + 7]
    resumed, whole = (finished(torchrun(python_env, train, work / name, *end)) for name in ("killed", "whole"))
    assert resumed[0] == f"going on after step {at}" and len(resumed) == 8
    assert resumed[1:] == whole[-7:]


@pytest.mark.slow
def test_webdataset_reads_and_resumes(site, python_env, tmp_path):
    pytest.importorskip("webdataset")
    script = EXAMPLES / "webdataset/shards.py"

    def run(*arguments):
        done = subprocess.run([sys.executable, script, *map(str, arguments)], capture_output=True, text=True, env=python_env,
                              timeout=600)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout.splitlines()

    run("make", tmp_path / "bars")
    site.run("dataset", "publish", str(tmp_path / "bars"), "bars", "2024-06")
    version = site.mount / "public/bars/2024-06"
    wait_until(version.is_dir)
    state = ["--stop-after", "80", "--state", tmp_path / "where"]
    first, second = (json.loads(run("read", version, *state)[-1]) for _ in range(2))
    whole = json.loads(run("read", version)[-1])
    assert (len(first), sorted(whole)) == (80, [f"{number:05}" for number in range(240)])
    assert first + second == whole[:160]
