"""examples/chat from end to end, and its answers beside the text that it was trained on."""

import os
import pathlib
import shutil
import socket
import subprocess
import tempfile

import pytest
from conftest import ROOT

QUESTIONS = ("What is the smallest country in the world?", "What is the biggest artery in the human body?",
             "Nepal is located on which continent?", "What is an ice hockey puck made from?", "Who invented scissors?",
             "What is the largest lizard?", "Squab is a name given to the young of which bird?",
             "What is the smallest ocean in the world?")


@pytest.fixture
def base():
    path = pathlib.Path(tempfile.mkdtemp(prefix="starlane-chat-", dir="/dev/shm"))
    yield path
    subprocess.run(["umount", "-l", path / "workspace", path / "site/mnt"], capture_output=True, check=False)
    shutil.rmtree(path, ignore_errors=True)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def answers() -> dict[str, str]:
    """Read from the package's files line by line, not by dialogs.py: question and answer of each conversation of two lines."""
    chatterbot_corpus = pytest.importorskip("chatterbot_corpus")
    found = {}
    for topic in (pathlib.Path(chatterbot_corpus.__file__).parent / "data/english").glob("*.yml"):
        lines = topic.read_text().splitlines()
        for first, second in zip(lines, lines[1:], strict=False):
            if first.startswith("- - ") and second.startswith("  - "):
                found[first[4:].strip("'\"")] = second[4:].strip("'\"")
    return found


@pytest.mark.slow
def test_the_articles_scripts_answer_what_they_were_taught(base):
    known = answers()
    asked = [question for question in QUESTIONS if question in known]
    assert len(asked) >= 6
    command = [ROOT / "examples/chat/run", "--port", str(free_port()), "--workspace", base / "workspace"]
    for question in asked:
        command += ["--ask", question]
    done = subprocess.run(command, env={**os.environ, "CHAT_BASE": str(base / "site")}, capture_output=True, text=True,
                          timeout=3000, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    replies = done.stdout.splitlines()[-len(asked):]
    right = [f"{question} {known[question]}" == reply for question, reply in zip(asked, replies, strict=True)]
    assert sum(right) >= len(asked) - 2, replies
    assert not os.listdir(base / "workspace")  # nothing is left mounted, and the volume lay there only meanwhile
