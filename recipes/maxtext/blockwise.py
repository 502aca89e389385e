"""Exact causal attention in blocks of queries, for a rehearsal where cuDNN's is not: no score is kept either."""

from __future__ import annotations

from typing import Any

import jax
from jax.ad_checkpoint import checkpoint_name
from maxtext.layers.attention_op import AttentionOp

BLOCK = 256  # queries


def attention(query: Any, key: Any, value: Any) -> Any:
    """Causal attention of (batch, sequence, heads, head dimension); `key` and `value` may have fewer heads."""
    batch, length, heads, size = query.shape
    block = min(BLOCK, length)
    starts = jax.numpy.arange(0, length, block)
    blocks = query.reshape(batch, length // block, block, heads, size).swapaxes(0, 1)

    def one(start_and_queries: Any) -> Any:
        start, queries = start_and_queries
        seen = (start + jax.numpy.arange(block))[:, None] >= jax.numpy.arange(length)[None, :]
        return jax.nn.dot_product_attention(queries, key, value, mask=seen[None, None], scale=1.0)

    return jax.lax.map(jax.checkpoint(one), (starts, blocks)).swapaxes(0, 1).reshape(query.shape)


def replace_cudnn() -> None:
    """Put it in the place of both doors to cuDNN's attention that MaxText has. Segments are not looked at."""

    def through_jax(_op: Any, query: Any, key: Any, value: Any, *_rest: Any, **_named: Any) -> Any:
        return checkpoint_name(attention(query, key, value), "context"), None

    def through_transformer_engine(_op: Any, query: Any, key: Any, value: Any, *_rest: Any, **_named: Any) -> Any:
        return checkpoint_name(attention(query, key, value), "context")

    AttentionOp.cudnn_jax_flash_attention = through_jax
    AttentionOp.cudnn_flash_attention = through_transformer_engine
