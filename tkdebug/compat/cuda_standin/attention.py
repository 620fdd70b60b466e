# ruff: noqa: SLF001 (torch has no other name for what keeps function modes out)
"""A GPU's fused attention: operators of `aten` that the CPU has no kernel for.

Scores are in fp32 and results rounded once, as in the kernels of a GPU. Sequences of several
lengths in one tensor, and dropout, are refused by name.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tkdebug.compat.cuda_standin.tensors import host, place

# The log-sum-exps of memory-efficient attention are padded to a multiple of these.
_LANES = 32
_UNKNOWN = (None, None)


@dataclass(frozen=True, slots=True)
class _Attention:
    """Attention over tensors of the host in fp32, of shape (batch, heads, tokens, size).

    Attributes:
        query, key, value: the operands, with as many heads each.
        bias: the addend of the scores.
        diagonal: the diagonal where causal masks begin; None without a mask.
        scale: the scores' factor.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    bias: Tensor | None
    diagonal: int | None
    scale: float

    def scores(self) -> Tensor:
        """Return the scores, masked."""
        scores = self.query @ self.key.transpose(-1, -2) * self.scale
        if self.bias is not None:
            scores = scores + self.bias
        if self.diagonal is None:
            return scores
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool, device="cpu").tril(self.diagonal)
        return scores.masked_fill(~seen, -math.inf)

    def forward(self) -> tuple[Tensor, Tensor]:
        """Return the result and the scores' log-sum-exps."""
        scores = self.scores()
        weights = torch.softmax(scores, -1).nan_to_num(0.0)
        return weights @ self.value, scores.logsumexp(-1)

    def backward(self, grad: Tensor, out: Tensor, sums: Tensor) -> tuple[Tensor, ...]:
        """Return the gradients of query, key, value and scores."""
        weights = (self.scores() - sums.unsqueeze(-1)).exp().nan_to_num(0.0)
        of_weights = grad @ self.value.transpose(-1, -2)
        of_scores = weights * (of_weights - (grad * out).sum(-1, keepdim=True))
        return (
            of_scores @ self.key * self.scale,
            of_scores.transpose(-1, -2) @ self.query * self.scale,
            weights.transpose(-1, -2) @ grad,
            of_scores,
        )


def _attention(
    tensors: tuple[Tensor, Tensor, Tensor],
    bias: Tensor | None,
    dropout_p: float,
    causal: str,
    scale: float | None,
) -> _Attention:
    """Return attention over CUDA tensors; `causal` says which corner a mask begins in, if any."""
    if dropout_p:
        raise NotImplementedError(
            "fused attention with dropout takes a GPU; here, 'cuda' runs on the CPU"
        )
    query, key, value = (host(each).float() for each in tensors)
    groups = query.shape[1] // key.shape[1]
    key, value = (each.repeat_interleave(groups, 1) for each in (key, value))
    ends = {"": None, "first": 0, "last": key.shape[2] - query.shape[2]}
    wide = None if bias is None else host(bias).float()
    chosen = query.shape[-1] ** -0.5 if scale is None else scale
    return _Attention(query, key, value, wide, ends[causal], chosen)


def _result(out: Tensor, like: Tensor) -> Tensor:
    """Return a result on the device, in memory as a GPU has it: heads of a token side by side."""
    rounded = out.to(like.dtype).transpose(1, 2).contiguous()
    return place(rounded).transpose(1, 2)


def _made_up_state(kind: torch.dtype = torch.int64, count: int | None = None) -> Tensor:
    """Return zeros in the place of a generator's state, as no number was drawn."""
    return place(torch.zeros(() if count is None else count, dtype=kind, device="cpu"))


def _flash(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Any, ...]:
    causal = "last" if is_causal else ""
    out, sums = _attention((query, key, value), None, dropout_p, causal, scale).forward()
    state, unused = _made_up_state(torch.uint64, 2), _made_up_state(torch.uint64)
    lengths = query.shape[2], key.shape[2]
    mask = place(torch.empty(0, dtype=query.dtype, device="cpu"))
    return _result(out, query), place(sums), *_UNKNOWN, *lengths, state, unused, mask


def _flash_of_tokens(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cum_seq_q: Tensor | None,
    cum_seq_k: Tensor | None,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    return_debug_mask: bool,
    *,
    scale: float | None = None,
    **others: Any,
) -> tuple[Any, ...]:
    """Run flash attention of tensors of shape (batch, tokens, heads, size)."""
    given = [name for name, each in others.items() if each is not None]
    if cum_seq_q is not None or given:
        raise NotImplementedError(
            f"aten::_flash_attention_forward with {given[0] if given else 'cum_seq_q'} takes a "
            "GPU; here, 'cuda' runs on the CPU"
        )
    q, k, v = (each.transpose(1, 2) for each in (query, key, value))
    out, sums, *_, state, unused, mask = _flash(q, k, v, dropout_p, is_causal, scale=scale)
    return out.transpose(1, 2), sums, state, unused, mask


def _efficient(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None,
    compute_log_sumexp: bool,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Tensor, ...]:
    causal = "first" if is_causal else ""
    out, sums = _attention((query, key, value), attn_bias, dropout_p, causal, scale).forward()
    length = sums.shape[-1]
    padding = -length % _LANES if compute_log_sumexp else -length
    padded = torch.nn.functional.pad(sums, (0, padding), value=math.inf)
    return _result(out, query), place(padded), _made_up_state(), _made_up_state()


def _cudnn(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None,
    compute_log_sumexp: bool,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Any, ...]:
    causal = "first" if is_causal else ""
    out, sums = _attention((query, key, value), attn_bias, dropout_p, causal, scale).forward()
    lengths = query.shape[2], key.shape[2]
    states = _made_up_state(), _made_up_state()
    return _result(out, query), place(sums.unsqueeze(-1)), *_UNKNOWN, *lengths, *states, None


def _gradients(
    tensors: tuple[Tensor, Tensor, Tensor],
    bias: Tensor | None,
    grad: Tensor,
    out: Tensor,
    sums: Tensor,
    options: tuple[float, str, float | None],
) -> tuple[Tensor | None, ...]:
    """Return the gradients of query, key, value, and of a bias or None."""
    attention = _attention(tensors, bias, *options)
    of_sums = host(sums)[..., : attention.query.shape[2]]
    *found, of_scores = attention.backward(host(grad).float(), host(out).float(), of_sums)
    of_bias = None if bias is None else place(of_scores.sum_to_size(bias.shape).to(bias.dtype))
    made = []
    for each, like in zip(found, tensors, strict=True):
        batch, heads, tokens, size = like.shape
        grouped = each.view(batch, heads, -1, tokens, size).sum(2)
        made.append(_result(grouped, like))
    return (*made, of_bias)


def _flash_backward(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    cum_seq_q: Any,
    cum_seq_k: Any,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    *states: Any,
    scale: float | None = None,
    **others: Any,
) -> tuple[Tensor | None, ...]:
    options = dropout_p, "last" if is_causal else "", scale
    return _gradients((query, key, value), None, grad_out, out, logsumexp, options)[:3]


def _flash_of_tokens_backward(*operands: Any, **options: Any) -> tuple[Tensor, ...]:
    """Run the backward pass; the first five operands have shape (batch, tokens, heads, size)."""
    by_head = (each.transpose(1, 2) for each in operands[:5])
    found = _flash_backward(*by_head, *operands[5:], **options)
    return tuple(each.transpose(1, 2) for each in found if each is not None)


def _efficient_backward(
    grad_out_: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None,
    out: Tensor,
    logsumexp: Tensor,
    philox_seed: Tensor,
    philox_offset: Tensor,
    dropout_p: float,
    grad_input_mask: Any,
    is_causal: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Tensor | None, ...]:
    options = dropout_p, "first" if is_causal else "", scale
    return _gradients((query, key, value), attn_bias, grad_out_, out, logsumexp, options)


def _cudnn_backward(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    philox_seed: Any,
    philox_offset: Any,
    attn_bias: Tensor | None,
    cum_seq_q: Any,
    cum_seq_k: Any,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    *,
    scale: float | None = None,
) -> tuple[Tensor | None, ...]:
    options = dropout_p, "first" if is_causal else "", scale
    sums = logsumexp.squeeze(-1)
    return _gradients((query, key, value), attn_bias, grad_out, out, sums, options)[:3]


def _below_modes(kernel: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(kernel)
    def run(*args: Any, **kwargs: Any) -> Any:
        with torch._C.DisableTorchFunction():
            return kernel(*args, **kwargs)

    return run


_KERNELS: Mapping[str, Callable[..., Any]] = {
    "_scaled_dot_product_flash_attention": _flash,
    "_scaled_dot_product_flash_attention_backward": _flash_backward,
    "_scaled_dot_product_efficient_attention": _efficient,
    "_scaled_dot_product_efficient_attention_backward": _efficient_backward,
    "_scaled_dot_product_cudnn_attention": _cudnn,
    "_scaled_dot_product_cudnn_attention_backward": _cudnn_backward,
    "_flash_attention_forward": _flash_of_tokens,
    "_flash_attention_backward": _flash_of_tokens_backward,
}
# By the operators' names in `aten`.
ATTENTION = {name: _below_modes(kernel) for name, kernel in _KERNELS.items()}
