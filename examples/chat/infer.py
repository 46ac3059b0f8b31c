"""Step 4 of the article: loads the checkpoint by torch.load(mmap=True) and answers POST /chat on port 8000.

The article's script, but for what README.md names."""

import os
import time

import torch
from flask import Flask, jsonify, request
from transformers import AutoModelForCausalLM, AutoTokenizer

model_name = os.environ.get("CHAT_MODEL", "microsoft/DialoGPT-medium")
checkpoint = os.environ.get("CHAT_CHECKPOINT", "/workspace/chat-ckpt.pt")
device = "cuda" if torch.cuda.is_available() else "cpu"

tokenizer = AutoTokenizer.from_pretrained(model_name)
model = AutoModelForCausalLM.from_pretrained(model_name).to(device)
started = time.perf_counter()
model.load_state_dict(torch.load(checkpoint, mmap=True))
print(f"{checkpoint}: {os.path.getsize(checkpoint) / 1e6:.0f} MB in {time.perf_counter() - started:.2f} s", flush=True)
model.eval()

app = Flask(__name__)

@app.route("/chat", methods=["POST"])
def chat():
    text = request.json["text"]
    ids = tokenizer.encode(text, return_tensors='pt').to(device)
    reply = model.generate(ids, max_length=60, pad_token_id=tokenizer.eos_token_id)
    return jsonify({"reply": tokenizer.decode(reply[0], skip_special_tokens=True)})

app.run(host="0.0.0.0", port=int(os.environ.get("CHAT_PORT", "8000")))
