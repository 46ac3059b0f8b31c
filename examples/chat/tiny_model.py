"""tiny_model.py TEXT MODEL: stands in for the article's download of a pretrained model. Learns a tokenizer from the
files under TEXT, and saves it with a small untrained language model as a directory that `from_pretrained` reads."""

import pathlib
import sys

import torch
from tokenizers import ByteLevelBPETokenizer, Regex, normalizers
from tokenizers.processors import TemplateProcessing
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

END = "<|endoftext|>"


def tokenizer_for(files: list[str]) -> PreTrainedTokenizerFast:
    """Byte-level BPE. train.py gets pairs (path, line) from DataPipes: of the path nothing is kept, so that the model learns
    lines only, and the line ends with END. A prompt alone has no end, so that the model goes on where it stops."""
    learned = ByteLevelBPETokenizer()
    learned.train(files, vocab_size=1500, min_frequency=2, special_tokens=[END])
    end = learned.token_to_id(END)
    learned._tokenizer.normalizer = normalizers.Replace(Regex(r"^/.*\.txt$"), "")
    learned._tokenizer.post_processor = TemplateProcessing(single="$A", pair=f"$A $B {END}", special_tokens=[(END, end)])
    return PreTrainedTokenizerFast(tokenizer_object=learned._tokenizer, bos_token=END, eos_token=END, pad_token=END)


def main() -> None:
    text, model = map(pathlib.Path, sys.argv[1:])
    tokenizer = tokenizer_for(sorted(str(file) for file in text.glob("*.txt")))
    tokenizer.save_pretrained(model)
    torch.manual_seed(0)
    shape = LlamaConfig(vocab_size=len(tokenizer), hidden_size=128, intermediate_size=384, num_hidden_layers=2,
                        num_attention_heads=4, max_position_embeddings=512, tie_word_embeddings=True,
                        bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id)
    LlamaForCausalLM(shape).save_pretrained(model)


if __name__ == "__main__":
    main()
