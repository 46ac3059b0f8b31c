"""infer.py CHECKPOINT PROMPT: a new process loads the checkpoint with torch.load(mmap=True), copies every weight into the
model, and answers. Prints one JSON line with the answer and how long each part took."""

import json
import sys
import time

import torch

import model as models


def main() -> None:
    path, prompt = sys.argv[1], sys.argv[2]
    started = time.perf_counter()
    state = torch.load(path, mmap=True, weights_only=True)
    mapped = time.perf_counter() - started
    model = models.NgramLanguageModel(state["tables.1.weight"].shape[0])
    started = time.perf_counter()
    model.load_state_dict(state)
    copied = time.perf_counter() - started
    started = time.perf_counter()
    text = models.answer(model, prompt)
    print(json.dumps({"load_seconds": mapped + copied, "answer_seconds": time.perf_counter() - started, "answer": text}))


if __name__ == "__main__":
    main()
