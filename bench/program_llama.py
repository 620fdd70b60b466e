"""A whole program: transformers' Llama of six layers, bf16, trained for some steps.

    program_llama.py [--compile] [--steps 120]

Started by `bench/programs.py`; it writes the seconds of its steps into the file that the variable
PROGRAM_TIMES names, as its last act. It needs a GPU, torch and transformers.
"""

from __future__ import annotations

import argparse
import time

import torch
from program_times import write_times
from transformers import LlamaConfig, LlamaForCausalLM


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--steps", type=int, default=120)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=8192,
        hidden_size=512,
        intermediate_size=1376,
        num_hidden_layers=6,
        num_attention_heads=8,
        num_key_value_heads=4,
        max_position_embeddings=1024,
    )
    model = LlamaForCausalLM(config).cuda().to(torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    ids = torch.randint(0, config.vocab_size, (8, 512), device="cuda")
    forward = torch.compile(model) if arguments.compile else model
    steps = []
    for _ in range(arguments.steps):
        torch.cuda.synchronize()
        start = time.perf_counter()
        loss = forward(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.synchronize()
        steps.append(time.perf_counter() - start)
    print(f"loss {loss.item():.4f} after {len(steps)} steps")
    write_times(steps)


if __name__ == "__main__":
    main()
