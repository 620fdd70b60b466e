"""Models of transformers on the CUDA device that machines without a GPU have, and on the CPU.

    tkdebug run bench/standin_families.py                    # all, eager and compiled
    tkdebug run bench/standin_families.py llama --eager      # some

Each family has one layer and random weights; of the processor time of a compiled one, some 20 s,
nearly all is torch's compiler's. Loss, gradients, an optimiser's step and greedily
generated tokens on `cuda` must be those of the CPU, eager and under `torch.compile`. Needs
`transformers`; nothing is downloaded.
"""

import argparse
import signal
import sys
import time

import torch
import transformers

TOKENS, TOLERANCE = 64, 2e-3
SMALL = {"vocab_size": TOKENS, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4}
GATED = {**SMALL, "intermediate_size": 64, "num_key_value_heads": 2, "max_position_embeddings": 64}
NO_TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": None}
FAMILIES = {
    "llama": ("LlamaForCausalLM", GATED),
    "mistral": ("MistralForCausalLM", {**GATED, "sliding_window": 6}),
    "qwen2": ("Qwen2ForCausalLM", GATED),
    "gemma": ("GemmaForCausalLM", {**GATED, "head_dim": 8}),
    "phi": ("PhiForCausalLM", {**GATED, "num_key_value_heads": 4}),
    "mixtral": ("MixtralForCausalLM", {**GATED, "num_local_experts": 4}),
    "gpt2": ("GPT2LMHeadModel", {"vocab_size": TOKENS, "n_embd": 32, "n_layer": 1, "n_head": 4}),
    "opt": (
        "OPTForCausalLM",
        {**SMALL, "ffn_dim": 64, "word_embed_proj_dim": 32, "max_position_embeddings": 64},
    ),
    "gpt_neox": (
        "GPTNeoXForCausalLM",
        {**SMALL, "intermediate_size": 64, "max_position_embeddings": 64},
    ),
    "bert": (
        "BertForMaskedLM",
        {**SMALL, "intermediate_size": 64, "max_position_embeddings": 64},
    ),
    "t5": (
        "T5ForConditionalGeneration",
        {
            **{"vocab_size": TOKENS, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 1},
            **{"num_heads": 4, "decoder_start_token_id": 0},
        },
    ),
    "vit": (
        "ViTForImageClassification",
        {
            **{"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4},
            **{"intermediate_size": 64, "image_size": 16, "patch_size": 4, "num_labels": 8},
        },
    ),
}
LIMIT_HELP = "stop one after so much processor time (%(default)s s)"
WITHOUT_GENERATION = {"bert", "vit"}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("families", nargs="*", metavar="FAMILY", help=", ".join(FAMILIES))
    parser.add_argument("--eager", action="store_true", help="nothing under torch.compile")
    parser.add_argument("--compiled", action="store_true", help="nothing eager")
    parser.add_argument("--limit", type=float, default=300, metavar="S", help=LIMIT_HELP)
    arguments = parser.parse_args()
    signal.signal(signal.SIGPROF, stop)
    failed = 0
    for name in arguments.families or FAMILIES:
        wanted = outcome(name, "cpu")
        for compiled in (False, True):
            if arguments.eager if compiled else arguments.compiled:
                continue
            started = time.process_time()
            signal.setitimer(signal.ITIMER_PROF, arguments.limit)
            try:
                said = difference(outcome(name, "cuda", compiled), wanted)
            except Exception as error:
                said = f"{type(error).__name__}: {str(error).strip().splitlines()[0][:300]}"
            signal.setitimer(signal.ITIMER_PROF, 0)
            way = "compiled" if compiled else "eager"
            seconds = time.process_time() - started
            print(
                f"{name} {way}: {said or 'equal'} ({seconds:.1f} s of processor time)", flush=True
            )
            failed += bool(said)
    print(f"{failed} failed" if failed else "all equal")
    return min(failed, 1)


def stop(number, frame):
    """Raise: a family takes too long."""
    raise TimeoutError("stopped, as it takes too long")


def outcome(name, device, compiled=False):
    """Return what a family's model computes on a device, by the names of results, on the CPU."""
    torch._dynamo.reset()  # noqa: SLF001 (torch has no other name for it)
    torch.manual_seed(0)
    kind, options = FAMILIES[name]
    architecture = getattr(transformers, kind)
    extra = {} if name in WITHOUT_GENERATION else NO_TOKENS
    config = architecture.config_class(**options, **{**extra, **dropouts(architecture)})
    model = architecture(config).to(device).train()
    inputs = inputs_of(name, device)
    forward = torch.compile(model) if compiled else model
    out = forward(**inputs)
    out.loss.backward()
    results = {"loss": out.loss, "logits": out.logits}
    results |= {f"grad of {n}": p.grad for n, p in model.named_parameters() if p.grad is not None}
    torch.optim.AdamW(model.parameters(), lr=1e-2).step()
    model.eval()
    with torch.no_grad():
        results["logits after a step"] = forward(**inputs).logits
    if name not in WITHOUT_GENERATION:
        if compiled:
            model.forward = torch.compile(model.forward)
        prompt = torch.arange(2, 7, device=device)[None]
        results["tokens"] = model.generate(prompt, max_new_tokens=8, do_sample=False)
    for what, value in results.items():
        if value.device.type != device:
            raise AssertionError(f"{what} is on {value.device}")
    return {what: value.detach().cpu() for what, value in results.items()}


def dropouts(architecture):
    """Return options that switch every kind of dropout off: random numbers differ by device."""
    known = vars(architecture.config_class())
    return {
        key: 0.0
        for key in known
        if key.endswith(("dropout", "pdrop", "dropout_prob", "dropout_rate"))
    }


def inputs_of(name, device):
    """Return the arguments of a training step."""
    if name == "vit":
        pixels = torch.linspace(-1, 1, 2 * 3 * 16 * 16).view(2, 3, 16, 16)
        return {"pixel_values": pixels.to(device), "labels": torch.tensor([1, 3]).to(device)}
    tokens = (torch.arange(24).view(2, 12) * 7 % (TOKENS - 2) + 2).to(device)
    mask = torch.ones_like(tokens)
    mask[1, :3] = 0
    return {"input_ids": tokens, "attention_mask": mask, "labels": tokens}


def difference(got, wanted):
    """Return how results differ, or an empty text."""
    if got.keys() != wanted.keys():
        return f"other results: {sorted(got.keys() ^ wanted.keys())[:3]}"
    for what, value in got.items():
        try:
            torch.testing.assert_close(value, wanted[what], rtol=TOLERANCE, atol=TOLERANCE)
        except AssertionError as error:
            return f"{what}: {' '.join(str(error).split())[:200]}"
    return ""


if __name__ == "__main__":
    sys.exit(main())
