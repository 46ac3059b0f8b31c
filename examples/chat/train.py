"""Step 3 of the article: fine-tunes a chat model on the published text and saves it into the volume.

The article's script, but for what README.md names. Without settings it takes one step, as the article does."""

import os

import torch
import torchdata
from transformers import AutoModelForCausalLM, AutoTokenizer

model_name = os.environ.get("CHAT_MODEL", "microsoft/DialoGPT-medium")
checkpoint = os.environ.get("CHAT_CHECKPOINT", "/workspace/chat-ckpt.pt")
epochs = int(os.environ.get("CHAT_EPOCHS", "0"))  # 0: one step
device = "cuda" if torch.cuda.is_available() else "cpu"

tokenizer = AutoTokenizer.from_pretrained(model_name)
model = AutoModelForCausalLM.from_pretrained(model_name).to(device)

dp = torchdata.datapipes.iter.FileLister(os.path.expanduser("~/data/refinedweb"))
dp = dp.open_files(mode='rt').readlines().shuffle().batch(16)

opt = torch.optim.AdamW(model.parameters(), float(os.environ.get("CHAT_LEARNING_RATE", "2e-5")))
for epoch in range(max(1, epochs)):
    for batch in dp:
        inputs = tokenizer(batch, return_tensors='pt', truncation=True, padding=True, max_length=512).to(device)
        out = model(**inputs, labels=inputs.input_ids)
        out.loss.backward()
        opt.step(); opt.zero_grad()
        if epochs == 0: break
    print(f"epoch {epoch + 1}: loss {out.loss.item():.3f}", flush=True)

torch.save(model.state_dict(), checkpoint)
