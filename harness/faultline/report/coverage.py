# SPDX-License-Identifier: Apache-2.0
"""Recovery coverage: which stages of an allocator's recovery (include/stage.h) the crash states of a campaign entered. A
stage that none entered is a hole in the workloads: nothing is known of it, however green the matrix is."""

from __future__ import annotations

from collections import Counter

import msgspec

from faultline.campaign.results import CellResult

SHOWN_STAGES = 3
"""That no recovery entered, in one line."""


class RecoveryCoverage(msgspec.Struct):
    allocator: str
    stages: dict[str, int]
    """Recoveries that entered the stage, over all clean cells, by the stage's name, in order of names."""

    @property
    def never(self) -> list[str]:
        return [name for name, entered in self.stages.items() if entered == 0]

    def line(self, is_whole: bool) -> str:
        """is_whole: with all stages that were never entered, else with the first ones."""
        entered = f"recovery stages entered {len(self.stages) - len(self.never)}/{len(self.stages)}"
        if not self.never:
            return entered
        shown = self.never if is_whole else self.never[:SHOWN_STAGES]
        more = len(self.never) - len(shown)
        return f"{entered}, never: {'; '.join(shown)}" + (f"; and {more} more (-v names them)" if more else "")


def recovery_coverage(results: list[CellResult]) -> list[RecoveryCoverage]:
    """Of the allocators that name stages, in order of appearance. Mutants do not count: their states are not the allocator's."""
    stages: dict[str, Counter[str]] = {}
    for result in results:
        if result.spec.mutant is None and result.certificate is not None and result.certificate.stages:
            counts = stages.setdefault(result.spec.allocator, Counter())
            counts.update({stage.name: stage.entered for stage in result.certificate.stages})
    return [RecoveryCoverage(allocator, dict(sorted(counts.items()))) for allocator, counts in stages.items()]
