"""The libraries whose tests `run.py` runs: what of them, as which Triton, and what they lack here.

A library's source is given on the command line; nothing of it is copied.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Library:
    """The tests of one library that are run.

    Attributes:
        version: what the figures in docs/libraries.md are of.
        tests: patterns of test files below the library's source.
        import_from: folders below the source that modules are imported from.
        triton: the Triton that the library is written for.
        extensions: its compiled modules, which are not built here: they are empty, and tests
            that call what they register are listed as such.
        platform: a function `module:name` that is called before the tests are imported.
        tests_are_ours: whether the files are beside this one, for sources without tests.
    """

    version: str
    tests: tuple[str, ...]
    import_from: tuple[str, ...] = (".",)
    triton: str = "3.9"
    extensions: tuple[str, ...] = ()
    platform: str = ""
    tests_are_ours: bool = False


_VLLM_TESTS = (
    "tests/kernels/attention/test_triton_*.py",
    "tests/kernels/attention/test_prefix_prefill.py",
    "tests/kernels/attention/test_pack_unpack_triton.py",
    "tests/kernels/attention/test_segmented_attention.py",
    "tests/kernels/attention/test_lightning_attn.py",
    "tests/kernels/attention/test_merge_attn_states.py",
    "tests/kernels/attention/test_mixed_causal_attn.py",
    "tests/kernels/attention/test_minimax_m3.py",
    "tests/kernels/core/test_fused_*.py",
    "tests/kernels/core/test_mrope.py",
    "tests/kernels/core/test_muse_spark_norms.py",
    "tests/kernels/core/test_rotary_embedding.py",
    "tests/kernels/core/test_vit_*.py",
    "tests/kernels/fla/test_*.py",
    "tests/kernels/mamba/test_*.py",
    "tests/kernels/mhc/test_mhc_kernels.py",
    "tests/kernels/moe/test_batched_moe.py",
    "tests/kernels/moe/test_block_*.py",
    "tests/kernels/moe/test_count_expert_num_tokens.py",
    "tests/kernels/moe/test_fused_*.py",
    "tests/kernels/moe/test_gemma4router.py",
    "tests/kernels/moe/test_gpt_oss_triton_kernels.py",
    "tests/kernels/moe/test_moe*.py",
    "tests/kernels/moe/test_muse_spark_moe_finalize.py",
    "tests/kernels/moe/test_silu_mul_*.py",
    "tests/kernels/moe/test_triton_moe_*.py",
    "tests/kernels/quantization/test_awq_triton.py",
    "tests/kernels/quantization/test_block_fp8.py",
    "tests/kernels/quantization/test_int8_kernel.py",
    "tests/kernels/quantization/test_nvfp4_emulation.py",
    "tests/kernels/quantization/test_per_token_group_quant.py",
    "tests/kernels/quantization/test_triton_*.py",
    "tests/kernels/test_compressor_kv_cache.py",
    "tests/kernels/test_fused_*.py",
    "tests/kernels/turboquant/test_*.py",
    "tests/kernels/ultraquant/test_*reference.py",
    "tests/lora/test_punica_ops*.py",
    "tests/lora/test_fused_moe_lora_kernel.py",
    "tests/quantization/test_per_token_kv_cache.py",
    "tests/quantization/test_turboquant.py",
    "tests/v1/attention/test_kpool_tail_slot_mapping.py",
    "tests/v1/determinism/test_*_batch_invariant.py",
    "tests/v1/sample/test_batched_count_greater_than.py",
    "tests/v1/sample/test_rejection_sampler.py",
    "tests/v1/sample/test_topk_topp_sampler.py",
    "tests/v1/spec_decode/test_eagle_step_kernel.py",
    "tests/v1/spec_decode/test_rejection_sampler_utils.py",
    "tests/v1/worker/test_gpu_*.py",
)

LIBRARIES = {
    "attorch": Library(version="67c2772b", tests=("tests/test_*.py",)),
    "conch": Library(version="e2c5ecfe", tests=("tests/*_test.py",)),
    "flag_gems": Library(
        version="3.0, 532ff438", tests=("tests/test_*.py",), import_from=("src", "."), triton="3.6"
    ),
    "flash-linear-attention": Library(
        version="bc3b101d", tests=("tests/ops/test_*.py", "tests/modules/test_*.py"), triton="3.8"
    ),
    "liger": Library(
        version="0.8.2, ead96b61",
        tests=("test/transformers/test_*.py",),
        import_from=("src", "."),
    ),
    "mamba": Library(version="e9594ce1", tests=("tests/ops/triton/test_*.py",)),
    "vllm": Library(
        version="0.33.0",
        tests=_VLLM_TESTS,
        extensions=(
            "vllm._C",
            "vllm._C_stable_libtorch",
            "vllm._moe_C",
            "vllm._moe_C_stable_libtorch",
            "vllm.vllm_flash_attn._vllm_fa2_C",
        ),
        platform="platforms:vllm_on_cuda",
    ),
    "freesolo_chalk": Library(
        version="0.5.7", tests=("test/ops/test_*.py",), import_from=("src", ".")
    ),
    "flash_sinkhorn": Library(
        version="0.4.1",
        tests=("torch-ext/flash_sinkhorn/testing/test_*.py",),
        import_from=("torch-ext",),
    ),
    # Its wheel has kernels and no tests; these are ours.
    "sglang": Library(version="0.5.23", tests=("sglang_kernels.py",), tests_are_ours=True),
}
