"""Gating of a mixture of experts: for each token the k best of its experts, with softmax weights; a warp for each token.

A score is compared as an integer that has its order, of which a warp finds the greatest in one instruction; of experts with that
score it takes the lowest.

Source: Shazeer et al., Outrageously Large Neural Networks: The Sparsely-Gated Mixture-of-Experts Layer, 2017; the kernel
topkGatingSoftmax of TensorRT-LLM and vLLM.
"""

from __future__ import annotations

import functools

import numpy as np

import stagekit as sk

LANES = 32
ALL = 0xFFFFFFFF  # lanes
TAKEN, NONE = -(2**31), 2**31 - 1  # the number of an expert that has been chosen, and no expert


def ordered(score):
    """An int32 that is the greater the higher the score is. Both zeros are one."""
    bits = (score + sk.float32(0)).view(sk.int32)
    return bits ^ (bits >> 31 & 0x7FFFFFFF)


def score_of(number):
    """The score that has this number."""
    return (number ^ (number >> 31 & 0x7FFFFFFF)).view(sk.float32)


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
            scores = [ordered(logits[token, e]) if e < experts else TAKEN for e in mine]
            sums, total, largest = [], sk.float32(0), None
            for _ in sk.static_range(k):
                best = sk.redux_sync_max(ALL, functools.reduce(sk.maximum, scores))
                first = [sk.where(score == best, e, NONE) for score, e in zip(scores, mine)]
                expert = sk.redux_sync_min(ALL, functools.reduce(sk.minimum, first))
                largest = score_of(best) if largest is None else largest
                sums.append((sk.fast_exp(score_of(best) - largest), expert))
                total += sums[-1][0]
                scores = [sk.where(e == expert, TAKEN, score) for score, e in zip(scores, mine)]
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
