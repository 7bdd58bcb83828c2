# SPDX-License-Identifier: Apache-2.0
"""The rehearsal: a workload that failed when it was traced is executed as it is, without a tracer and without a crash. A target
that fails here too is a finding (FL017) which no power failure is needed for; nothing that follows would say more of it."""

from __future__ import annotations

import hashlib
import os
import signal
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from faultline.base.cache import scratch_folder
from faultline.base.config import Allocator
from faultline.base.errors import FaultlineError, InfrastructureError, one_line
from faultline.base.processes import child
from faultline.pipeline.engine import signal_name
from faultline.pipeline.events import Certificate, Died, Finding, Site, operation_words
from faultline.pipeline.target import Target
from faultline.pipeline.workshop import Workshop

RULE = "FL017"
CPU_LIMIT_MS = 5_000
"""Processor time of one operation. Creating a heap of gigabytes takes less."""
WALL_LIMIT_MS = 40_000
"""Of a session. One that sleeps through half of it hangs; of one that works longer nothing is known."""
PRINTED_CHARACTERS = 300
"""Of what the target printed, the end."""
OF_THE_RUNNER = "runner: error: "
"""How its own lines begin. A failed assertion of the target begins with the program's name, too."""
FROM_OUTSIDE = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL)
"""What ends a process because somebody wants that. Of a rehearsal that another signal ends nothing is known."""
NOT_THE_TARGETS = (*FROM_OUTSIDE, signal.SIGXFSZ)
"""Signals that say nothing of the target."""
WITHOUT = "power did not fail"


class FailsWithoutCrashError(FaultlineError):
    """The target fails in an operation of the workload, and power did not fail: a finding of its own."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(f"{finding.message} ({finding.rule})", "`faultline run` reports it as a finding")
        self.finding = finding

    def certificate(self) -> Certificate:
        """Of a cell that ends with this."""
        why = "nothing was explored: the target fails without a power failure"
        return Certificate(complete=False, why=why, rules_judged=[RULE])


class _Calls(msgspec.Struct):
    at: Site
    callers: list[Site] = []


@dataclass
class _Answer:
    """What `runner rehearse` said. pending: operations that had begun and not returned; status: what was answered, in words;
    is_later: it was a piece of what a lazy open left, after that operation."""

    outcome: str
    number: int
    pending: list[dict[str, Any]] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    status: str = ""
    message: str = ""
    is_later: bool = False


def rehearse(workshop: Workshop, target: Target, workload_file: Path, heap_arguments: list[str]) -> bool:
    """Whether all of it ran; false where it could not be followed. Raises FailsWithoutCrashError where the target fails."""
    with scratch_folder(workshop.cache, workshop.heap_folder) as folder, tempfile.TemporaryFile() as printed:
        command = [
            *(str(target.runner.path), "rehearse", "--adapter", str(target.adapter.path)),
            *("--workload", str(workload_file), "--folder", str(folder), *heap_arguments),
            *("--cpu-limit-ms", str(CPU_LIMIT_MS), "--wall-limit-ms", str(WALL_LIMIT_MS)),
        ]
        with (
            tempfile.TemporaryFile() as answers,
            child(command, answers, printed, target_environment(target.allocator)) as process,
        ):
            code = process.wait()
            answers.seek(0)
            text = answers.read().decode(errors="surrogateescape")
        printed.seek(0)
        said = printed.read().decode(errors="replace")
    if -code in FROM_OUTSIDE or "runner: error: interrupted" in said:
        raise InfrastructureError(f"{target.name}: its rehearsal was ended from outside", "run the command again")
    answer = _parse(text) if code == 0 else None
    if answer is not None and answer.outcome not in ("done", "unknown") and not _is_no_fault(answer):
        raise FailsWithoutCrashError(_finding(workshop, target, answer, said))
    return answer is not None and answer.outcome == "done"


def target_environment(allocator: Allocator | None) -> dict[str, str]:
    """Small and fixed, but for what the allocator's [environment] says: a target that looks at its environment must see the same
    each time."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return {**kept, "LC_ALL": "C", **(allocator.variables() if allocator else {})}


def _is_no_fault(answer: _Answer) -> bool:
    """Whether the target may be right all the same: it was ended from outside, or it refused to make a heap of these sizes, in this
    folder."""
    if answer.outcome == "signal":
        return answer.number in NOT_THE_TARGETS
    return answer.outcome not in ("exited", "hung") and answer.pending[0]["kind"] == "create"


def _parse(text: str) -> _Answer | None:
    lines = text.splitlines()
    if not lines:
        return None
    outcome, number = lines[0].split()
    answer = _Answer(outcome, int(number))
    for line in lines[1:]:
        word, _, rest = line.partition(" ")
        if word == "operation":
            index, kind, slot, size, _ = rest.split()
            answer.pending.append(
                {"index": int(index), "kind": kind, "slot": int(slot), "bytes": int(size), "pending": True}
            )
        elif word == "later":
            answer.is_later = True
        elif word == "call":
            offset, _, module = rest.partition(" ")
            answer.calls.append(f"{offset}:{module}")
        elif word == "status":
            answer.status = rest
        elif word == "message":
            answer.message = one_line(rest)
    return answer


def _finding(workshop: Workshop, target: Target, answer: _Answer, said: str) -> Finding:
    if answer.is_later:
        answer.pending = [{**operation, "pending": False} for operation in answer.pending]
    where = " and ".join(operation_words(operation) for operation in answer.pending)
    where = f"what a lazy open left to later, after {where}," if answer.is_later else where
    how, fact = _how(answer)
    died = _place(workshop, target, answer)
    kinds = "step" if answer.is_later else "-".join(operation["kind"] for operation in answer.pending)
    place = died.at.function if died else ""
    printed = printed_by_target(said)
    message = f"{where} {how}, and {WITHOUT}" + (f"; it printed: {printed}" if printed else "")
    rule = next(rule for rule in workshop.engine.rules() if rule.id == RULE)
    fact = f"without-crash {fact} {kinds}"
    digest = hashlib.sha256(f"{RULE} {fact} {place}".encode()).hexdigest()[:8]
    return Finding(
        id=f"{RULE}-{digest}",
        rule=RULE,
        title=rule.title,
        meaning=rule.meaning,
        message=message,
        token="",
        fact=fact,
        operation=answer.pending[0],
        sites=[died.at] if died else [],
        died=died,
    )


def _how(answer: _Answer) -> tuple[str, str]:
    """In words, and as a fact."""
    match answer.outcome:
        case "signal":
            return f"died of {signal_name(answer.number)}", f"died signal-{answer.number}"
        case "exited":
            return "called exit", "exited"
        case "hung":
            return "did not return", "hung"
        case _:
            message = f": {answer.message}" if answer.message else ""
            return f"answered {answer.status}{message}", f"answered {answer.number}"


def _place(workshop: Workshop, target: Target, answer: _Answer) -> Died | None:
    if not answer.calls:
        return None
    helpers = [word for helper in target.allocator.build.helper_names() for word in ("--helper", helper)]
    found = workshop.engine.ask_json(_Calls, "calls", *helpers, *answer.calls)
    hung = "no return from the operation" if answer.outcome == "hung" else None
    return Died(found.at, found.callers, hung=hung)


def printed_by_target(said: str) -> str:
    """The end of what the target printed, on one line."""
    lines = [line.strip() for line in said.splitlines() if not line.startswith(OF_THE_RUNNER)]
    text = " / ".join(one_line(line) for line in lines if line)
    return text if len(text) <= PRINTED_CHARACTERS else f"... {text[-PRINTED_CHARACTERS:]}"
