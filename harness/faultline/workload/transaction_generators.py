# SPDX-License-Identifier: Apache-2.0
"""Generators of transactions."""

from __future__ import annotations

import random

from faultline.workload.generators import below, churn_size
from faultline.workload.operations import WORD_BYTES, Operation, Workload

TX_SLOTS = 32
TX_FEW = 4
"""Operations of a transaction, at most, where the name does not say how many."""
TX_ABORTED_SHARE = 0.25
TX_OUTSIDE_SHARE = 0.25
"""Of the transactions: those that an operation alone stands before."""
TX_ALLOCATE_SHARE = 0.4
TX_FREE_SHARE = 0.2
TX_WRITE_SHARE = 0.25
"""Of the operations; the rest reallocates."""


class _Objects:
    """The live objects, by slot, with their sizes."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.live: dict[int, int] = {}

    def operation(self) -> Operation:
        """The next operation, which has happened."""
        choice = self.chance.random()
        if not self.live or (choice < TX_ALLOCATE_SHARE and len(self.live) < TX_SLOTS):
            empty = [slot for slot in range(TX_SLOTS) if slot not in self.live]
            return self._sized("allocate", empty[below(self.chance, len(empty))])
        slot = sorted(self.live)[below(self.chance, len(self.live))]
        if choice < TX_ALLOCATE_SHARE + TX_FREE_SHARE:
            del self.live[slot]
            return Operation("free", slot)
        if choice < TX_ALLOCATE_SHARE + TX_FREE_SHARE + TX_WRITE_SHARE and self.live[slot] >= WORD_BYTES:
            words = self.live[slot] // WORD_BYTES
            first = below(self.chance, words)
            count = 1 + below(self.chance, min(words - first, 16))
            return Operation("write", slot, count * WORD_BYTES, start=first * WORD_BYTES)
        return self._sized("reallocate", slot)

    def _sized(self, kind: str, slot: int) -> Operation:
        self.live[slot] = churn_size(self.chance)
        return Operation(kind, slot, self.live[slot])


def tx(count: int, per: int | None, seed: int) -> Workload:
    """So many transactions, seeded, of `per` operations each, or of one to TX_FEW: allocations, frees, reallocations and writes
    over churn's sizes. Some transactions are aborted, and before some an operation stands alone."""
    chance = random.Random(seed)
    objects = _Objects(chance)
    operations = [Operation("case")]
    for _ in range(count):
        if chance.random() < TX_OUTSIDE_SHARE:
            operations.append(objects.operation())
        at_begin = dict(objects.live)
        inside = [objects.operation() for _ in range(per or 1 + below(chance, TX_FEW))]
        is_aborted = chance.random() < TX_ABORTED_SHARE
        if is_aborted:
            objects.live = at_begin
        operations += [Operation("begin"), *inside, Operation("abort" if is_aborted else "commit")]
    name = f"tx:{count}" + (f":{per}" if per else "")
    return Workload(name, TX_SLOTS, tuple(operations), seed=seed)
