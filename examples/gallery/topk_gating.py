"""Gating of a mixture of experts: for each token the k best of its experts, with softmax weights; a warp for each token.

Source: Shazeer et al., Outrageously Large Neural Networks: The Sparsely-Gated Mixture-of-Experts Layer, 2017; the kernel
topkGatingSoftmax of TensorRT-LLM and vLLM.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

import stagekit as sk

LANES = 32


class Candidate(NamedTuple):
    """An expert and its score."""

    score: float
    expert: int


def better(a, b):
    """The higher score; of equal ones the lower expert, which is the left one or has the lower number."""
    is_b = (b.score > a.score) | ((b.score == a.score) & (b.expert < a.expert))
    return Candidate(sk.where(is_b, b.score, a.score), sk.where(is_b, b.expert, a.expert))


def make_topk_gating(experts, k, block=128, *, fastmath=False):
    """A kernel from logits (tokens, experts) to weights and experts (tokens, k). block: a multiple of 32."""
    each = -(-experts // LANES)

    @sk.jit(fastmath=fastmath)
    def gate(
        weights: sk.Tensor((None, k), sk.float32),
        chosen: sk.Tensor((None, k), sk.int32),
        logits: sk.Tensor((None, experts), sk.float32),
    ):
        lane = sk.int32(sk.lane_id())
        token = sk.cuda.block_idx("x") * (block // LANES) + sk.cuda.thread_idx("x") // LANES
        if token < len(logits):
            mine = [lane + LANES * j for j in range(each)]
            scores = [logits[token, e] if e < experts else -sk.float32(float("inf")) for e in mine]
            sums, total, largest = [], sk.float32(0), None
            for _ in sk.static_range(k):
                best = Candidate(scores[0], mine[0])
                for score, expert in zip(scores[1:], mine[1:]):
                    best = better(best, Candidate(score, expert))
                best = sk.warp_reduce(best, better, commutative=True)
                largest = best.score if largest is None else largest
                sums.append((sk.fast_exp(best.score - largest), best.expert))
                total += sums[-1][0]
                scores = [sk.where(e == best.expert, -float("inf"), s) for s, e in zip(scores, mine)]
            for place, (weight, expert) in enumerate(sums):
                if lane == place:
                    weights[token, place], chosen[token, place] = weight / total, expert

    return gate


def example(size, block, place):
    """Random logits of 40 experts, of which each token takes three."""
    block = max(block // LANES, 1) * LANES
    logits = np.random.default_rng(size).normal(size=(max(size // 40, 1), 40)).astype(np.float32)
    weights, chosen = np.zeros((len(logits), 3), np.float32), np.zeros((len(logits), 3), np.int32)
    placed = [place(weights), place(chosen)]
    make_topk_gating(40, 3, block)[-(-len(logits) * LANES // block), block](*placed, place(logits))
    order = np.argsort(-logits, axis=1, kind="stable")[:, :3]
    exponentials = np.exp(np.take_along_axis(logits, order, axis=1).astype(np.float64))
    return placed, [exponentials / exponentials.sum(axis=1, keepdims=True), order], 1e-6
