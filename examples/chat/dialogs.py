"""dialogs.py DIRECTORY: the text to publish. English questions with their answers, one pair a line, from the package
chatterbot-corpus (BSD licence), a file a topic."""

import collections
import pathlib
import sys

import chatterbot_corpus
import yaml

LONGEST = 100  # letters of a pair: one long line makes its whole batch as long


def pairs(topic: pathlib.Path) -> dict[str, str]:
    """Question and answer, as they stand in the package, of each conversation whose question has one answer only."""
    answers = collections.defaultdict(set)
    for said in yaml.safe_load(topic.read_text())["conversations"]:
        question, answer = (" ".join(str(line).split()) for line in said[:2])
        answers[question].add(answer)
    one = ((question, only.pop()) for question, only in answers.items() if len(only) == 1)
    return {question: answer for question, answer in one if question and answer and len(question + answer) < LONGEST}


def main() -> None:
    into = pathlib.Path(sys.argv[1])
    into.mkdir(parents=True, exist_ok=True)
    for topic in sorted((pathlib.Path(chatterbot_corpus.__file__).parent / "data/english").glob("*.yml")):
        lines = [f"{question} {answer}\n" for question, answer in pairs(topic).items()]
        (into / f"{topic.stem}.txt").write_text("".join(lines))


if __name__ == "__main__":
    main()
