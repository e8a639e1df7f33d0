"""Makes pieces.bin; see README.md beside this file.

    python make.py MODEL SENTENCES pieces.bin

MODEL is the folder of all-MiniLM-L6-v2 (config.json, model.safetensors, tokenizer.json), SENTENCES a text file with one
sentence a line. Needs torch, transformers, tokenizers and numpy; about half an hour on two cores for 190 000 sentences.
"""

import sys

import numpy as np
import torch
from tokenizers import Tokenizer
from transformers import AutoModel

DIMS, PASSES, BATCH, TOKENS_MAX = 128, 8, 1024, 64
UNKNOWN = 100


def encode(model, rows):
    """Unit vectors of token rows, like sentences in batches of like lengths."""
    out = np.zeros((len(rows), 384), np.float32)
    order = sorted(range(len(rows)), key=lambda at: len(rows[at]))
    with torch.inference_mode():
        for begin in range(0, len(order), 128):
            part = order[begin : begin + 128]
            width = max(len(rows[at]) for at in part)
            ids = torch.tensor([rows[at] + [0] * (width - len(rows[at])) for at in part])
            mask = torch.tensor([[1] * len(rows[at]) + [0] * (width - len(rows[at])) for at in part])
            hidden = model(input_ids=ids, attention_mask=mask).last_hidden_state
            mean = (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
            out[part] = torch.nn.functional.normalize(mean).numpy()
    return out


def fit(sentences, vectors, first):
    """A row per token whose sums point where the vectors do."""
    middle = vectors.mean(0)
    axes = np.linalg.svd((vectors - middle)[:30000], full_matrices=False)[2][:DIMS].T
    goal = torch.nn.functional.normalize(torch.tensor((vectors - middle) @ axes))
    start = first / np.linalg.norm(first, axis=1, keepdims=True)
    # the vocabulary is sorted by frequency: rare words say more
    start = (start - start.mean(0)) @ axes * np.log1p(np.arange(len(first)))[:, None] / 8
    table = torch.nn.Parameter(torch.tensor(start, dtype=torch.float32))
    steps = PASSES * (len(sentences) // BATCH + 1)
    adam = torch.optim.Adam([table], lr=0.01)
    rate = torch.optim.lr_scheduler.LinearLR(adam, 1, 0.05, total_iters=steps)
    for turn in range(PASSES):
        mixed = np.random.RandomState(turn).permutation(len(sentences))
        for begin in range(0, len(mixed), BATCH):
            part = mixed[begin : begin + BATCH]
            flat = torch.tensor([token for at in part for token in sentences[at]])
            starts = torch.tensor(np.cumsum([0] + [len(sentences[at]) for at in part[:-1]]))
            sums = torch.nn.functional.embedding_bag(flat, table, starts, mode="sum")
            sums, wanted = torch.nn.functional.normalize(sums), goal[part]
            few, wanted_few = sums[:256], wanted[:256]
            apart = ((few @ few.T - wanted_few @ wanted_few.T) ** 2).mean()
            loss = (1 - (sums * wanted).sum(1)).mean() + 5 * apart
            adam.zero_grad()
            loss.backward()
            adam.step()
            rate.step()
    return table.detach().numpy()


def write(path, table, vocabulary):
    """The format that ../words.rs reads."""
    is_word = lambda piece: piece.isascii() and piece.isalnum()
    heads = sorted((piece.encode(), at) for piece, at in vocabulary if is_word(piece))
    tails = sorted((p[2:].encode(), at) for p, at in vocabulary if p.startswith("##") and is_word(p[2:]))
    step = np.quantile(np.abs(table), 0.9998) / 127
    rounded = np.clip(np.round(table / step), -127, 127).astype(np.int8)
    with open(path, "wb") as file:
        file.write(np.array([len(heads), len(tails), DIMS], "<u4").tobytes())
        file.writelines(bytes([len(piece)]) + piece for piece, _ in heads + tails)
        file.writelines(rounded[at].tobytes() for _, at in heads + tails)


def main(folder, corpus, path):
    torch.manual_seed(1)
    tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")
    tokenizer.no_padding()
    tokenizer.enable_truncation(TOKENS_MAX)
    model = AutoModel.from_pretrained(folder).eval()
    with open(corpus, encoding="utf-8") as file:
        rows = [found.ids for found in tokenizer.encode_batch(file.read().splitlines())]
    first = encode(model, [[101, token, 102] for token in range(tokenizer.get_vocab_size())])
    table = fit([row[1:-1] or [UNKNOWN] for row in rows], encode(model, rows), first)
    write(path, table, tokenizer.get_vocab().items())


if __name__ == "__main__":
    main(*sys.argv[1:])
