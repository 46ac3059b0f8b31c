"""ask.py MODEL QUESTION…: a model on a mount, loaded by vLLM through Starlane and asked.

    python examples/vllm/ask.py /mnt/starlane/public/llama/v3 "What is a file system?" """

import argparse

from vllm import LLM, SamplingParams

if __name__ == "__main__":  # vLLM's processes import this file again
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a directory as from_pretrained takes it")
    parser.add_argument("question", nargs="+")
    parser.add_argument("--length", type=int, default=60, help="of an answer, in tokens")
    parser.add_argument("--context", type=int, default=256, help="tokens that the model keeps in mind")
    options = parser.parse_args()
    engine = LLM(options.model, load_format="starlane", max_model_len=options.context, enforce_eager=True)
    for answer in engine.generate(options.question, SamplingParams(temperature=0, max_tokens=options.length)):
        print(f"{answer.prompt}{answer.outputs[0].text}")
