# SPDX-License-Identifier: Apache-2.0
"""What the engine says of an exploration: its events, and what they are made of."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from faultline.base.text import count
from faultline.workload.operations import GRAPH_OPERATIONS, SLOT_OPERATIONS

ORDINALS = ("", "first", "second", "third")
"""Of generations: after so many crashes."""

SHOWN_RUNS = 3
"""Of a torn store, in words."""

Verdict = Literal["pass", "fail", "unknown", "incomplete"]
"""incomplete: no finding and nothing unknown, but a limit ended the exploration, or left states out."""


class Progress(msgspec.Struct, tag_field="event", tag="progress"):
    position: int
    positions: int
    recoveries: int = 0
    findings: int = 0


UNKNOWN_PLACE = "an unknown place"
"""Of which neither function nor file is known."""


class Site(msgspec.Struct):
    function: str
    file: str | None = None
    line: int | None = None
    is_adapter: bool = False
    helper: str = ""
    """The allocator's helper that it called there, in words; empty if it is the place itself."""

    def text(self) -> str:
        where = self.place_text()
        place = f"{self.function} ({where})" if self.function and where else self.function or where
        return f"{self.helper} called by {place}" if self.helper else place

    def short_text(self) -> str:
        """Without the file's folders."""
        return f"{self.function} {self.place_text().rpartition('/')[2]}".strip()

    def place_text(self) -> str:
        """file:line, as far as they are known."""
        return f"{self.file}:{self.line}" if self.file and self.line else self.file or ""


class EventOperation(msgspec.Struct):
    """index: in the workload, or in what follows the recovery of that generation, where 0 is the recovery."""

    index: int
    name: str
    generation: int = 0


class TraceEvent(msgspec.Struct):
    """One event near a finding's crash position. position: the crash position after it, so that events up to the finding's own
    position came before the crash. is_persisted: of stores before it, whether the crash state holds all of their units, none or
    some; held: of torn ones, its runs of bytes that the state holds; is_guaranteed: of persisted ones, whether every crash state
    there does."""

    position: int
    kind: str
    process: int = 1
    thread: int = 1
    file: str | None = None
    offset: int | None = None
    size: int | None = None
    value: str | None = None
    site: Site | None = None
    operation: EventOperation | None = None
    is_persisted: Literal["yes", "no", "torn"] | None = None
    held: list[tuple[int, int]] = []
    is_guaranteed: bool | None = None

    def place_text(self) -> str:
        """heap + 0x1080, 8 bytes."""
        words = self.file or ""
        if self.offset is not None:
            words += f" + {self.offset:#x}"
        return words + (f", {self.size} bytes" if self.size is not None else "")

    def operation_text(self) -> str:
        if not self.operation:
            return ""
        after = f"{ORDINALS[self.operation.generation]} recovery, " if self.operation.generation else ""
        return f"{after}{self.operation.index} {self.operation.name}"

    def state_text(self) -> str:
        """What became of a store in the crash state."""
        if self.is_persisted == "yes":
            return "persisted" if self.is_guaranteed else "persisted, not guaranteed"
        return {"no": "lost", "torn": f"torn: {held_text(self.held)} persisted", None: ""}[self.is_persisted]

    def thread_text(self) -> str:
        return f"{self.process}.{self.thread}"


class Repair(msgspec.Struct):
    """A flush or fence that may forbid a crash state. edits and later_edits: what the engine explores the trace with, and what
    recoveries do in it."""

    text: str
    edits: list[Any]
    later_edits: list[Any] = []


def held_text(held: Sequence[tuple[int, int]]) -> str:
    """Bytes of a torn store, each run as first and end, counted from its first byte: bytes 0 to 7 and 16 to 23."""
    shown = [f"{first} to {end - 1}" for first, end in held[:SHOWN_RUNS]]
    more = len(held) - len(shown)
    return f"bytes {' and '.join(shown)}" + (f" and {count(more, 'more run')}" if more else "")


PutKind = Literal["store", "write", "file"]
"""By an instruction, by a system call behind a descriptor; or no content: a file operation."""


class Loss(msgspec.Struct):
    """A store or a file operation that a crash state lacks. offset and bytes: of all of a store; held: the runs of its bytes that
    the state holds, each as first and end; operation: of a file operation: what it is."""

    site: Site
    kind: PutKind = "store"
    file: str = ""
    offset: int = 0
    bytes: int = 0
    held: list[tuple[int, int]] = []
    operation: str = ""

    @property
    def is_torn(self) -> bool:
        return bool(self.held)

    def what(self) -> str:
        """the store; the store of 16 bytes, of a torn one; the write of 8 bytes to heap + 0x40; the rename of a to b."""
        if self.kind == "file":
            return self.operation
        if self.kind == "write":
            return f"the write of {self.bytes} bytes to {self.file} + {self.offset:#x}"
        return f"the store of {self.bytes} bytes" if self.is_torn else "the store"

    def how(self) -> str:
        """lost; torn: only bytes 0 to 7 of 16 persisted."""
        return f"torn (only {held_text(self.held)} persisted)" if self.is_torn else "lost"


class EarlierCrash(msgspec.Struct):
    """A crash before the one of a finding, in the workload or in the recovery before."""

    position: int
    operation: dict[str, Any] | None = None
    lost: Loss | None = None
    """The earliest store of its generation that it lost."""

    def text(self) -> str:
        text = f"position {self.position}, {_operation_text(self.operation)}"
        if not self.lost:
            return text
        place = self.lost.site.text() or "an unknown place"
        return f"{text}, where {self.lost.what()} at {place} is {self.lost.how()}"


class Died(msgspec.Struct):
    """Where a recovery died that a signal ended, or where it hung. callers: innermost first; touched: which address, in words;
    empty: the signal has none; hung: for how long, in words; None: it died."""

    at: Site
    callers: list[Site] = []
    touched: str = ""
    hung: str | None = None

    @property
    def verb(self) -> str:
        return "died" if self.hung is None else "hung"

    def text(self) -> str:
        """died at PLACE, touching ADDRESS; hung at PLACE, after 1 s of processor time."""
        touched = f", touching {self.touched}" if self.touched else ""
        return f"{self.verb} at {self.at.text()}{touched}" + (f", after {self.hung}" if self.hung else "")


class Finding(msgspec.Struct, tag_field="event", tag="finding"):
    id: str
    rule: str
    title: str
    message: str
    token: str
    """Empty: no power failure is needed, and the cell itself shows it."""
    meaning: str = ""
    """When the rule is broken."""
    fact: str = ""
    """What exactly is broken: with the rule and the place it makes the id. The message does not."""
    position: int = 0
    operation: dict[str, Any] | None = None
    sites: list[Site] = []
    callers: list[list[Site]] = []
    """Of each of the sites: who called it, innermost first, as far as the trace says."""
    read: Site | None = None
    """Where recovery first reads what the state lacks."""
    died: Died | None = None
    stored: list[Site] | None = None
    """Where the recovery from the last crash stores to PM, in the order in which it comes there; None: the state lacks a store of
    its generation, recovery does not return, or what it does cannot be followed."""
    seen: int = 1
    strategy: str | None = None
    model_note: str | None = None
    lost: Loss | None = None
    """The store of its generation that the state lacks, at the first of the sites; None: it lacks none."""
    there: PutKind | None = None
    """What the last of the sites does, if it is not what is lost."""
    lines: list[dict[str, Any]] = []
    events: list[TraceEvent] = []
    """Around the crash position, in memory order; bounded by the engine."""
    repairs: list[Repair] = []
    """What may forbid the state, in the order in which to try it."""
    is_later: bool = False
    """Power failed more than once."""
    earlier: list[EarlierCrash] = []
    """The crashes before, the first one first, as far as they are known."""
    known: str | None = None
    """Why it does not fail the campaign (campaign/known.py); the engine does not say that."""
    is_suppressed: bool = False
    """Known because a person said so, with a date."""

    @property
    def needs_crash(self) -> bool:
        """Whether power must fail for it to be seen."""
        return bool(self.token)

    @property
    def headline(self) -> str:
        """The title, and whether a torn store made the crash state."""
        return self.title + self.torn_words

    @property
    def torn_words(self) -> str:
        """Behind what else is said of it; empty: no store is torn."""
        return f"; a {self.lost.kind} is torn" if self.lost and self.lost.is_torn else ""

    @property
    def crashes(self) -> int:
        """How often power failed."""
        if not self.needs_crash:
            return 0
        return 1 + max(len(self.earlier), 1) if self.is_later else 1

    def call_paths(self) -> list[tuple[str, str]]:
        """What each site is, and the calls that led there; where recovery read what is lost, stored, and died."""
        roles = [self.lost.how(), "persisted"] if self.lost else [f"last {self.there or 'store'}"]
        callers = self.callers or [[] for _ in self.sites]
        paths = [
            " < ".join(one.text() for one in [site, *above]) for site, above in zip(self.sites, callers, strict=True)
        ]
        shown = list(zip(roles, paths, strict=False)) if self.events else [("site", path) for path in paths]
        if self.read:
            shown.append(("recovery read it at", self.read.text()))
        stores = "the last recovery stores" if self.is_later else "recovery stores"
        if self.stored == []:
            shown.append((stores, "nothing"))
        shown += [(f"{stores} at", place.text() or UNKNOWN_PLACE) for place in self.stored or []]
        if self.died:
            who = "recovery" if self.needs_crash else "it"
            shown.append(
                (f"{who} {self.died.verb} at", " < ".join(one.text() for one in [self.died.at, *self.died.callers]))
            )
        return shown

    def operation_text(self) -> str:
        """The operation at the crash position, in words."""
        return _operation_text(self.operation)

    def where_text(self) -> str:
        """The operation and the places: what is said of a finding that nobody has explained."""
        sites = ", ".join(text for site in self.sites if (text := site.text()))
        return self.operation_text() + (f"; {sites}" if sites else "")


def _name_of(index: int, generation: int) -> str:
    """As the engine's messages have it (later_names.rs)."""
    if not generation:
        return f"operation {index}"
    recovery = f"the {ORDINALS[generation]} recovery"
    return f"operation {index} after {recovery}" if index else recovery


def operation_words(operation: dict[str, Any]) -> str:
    """operation 3 (allocate, slot 1, 64 bytes)"""
    name = _name_of(operation.get("index", 0), operation.get("generation", 0))
    words = [f"{operation.get('kind', 'operation')}"]
    if operation.get("kind") in SLOT_OPERATIONS and operation.get("kind") not in GRAPH_OPERATIONS:
        words.append(f"slot {operation.get('slot')}")
    if operation.get("bytes"):
        words.append(f"{operation['bytes']} bytes")
    return f"{name} ({', '.join(words)})"


def _operation_text(operation: dict[str, Any] | None) -> str:
    if not operation:
        return "outside any operation"
    state = "pending" if operation.get("pending") else "returned"
    return f"{operation_words(operation).replace(' (', ': ', 1).removesuffix(')')} ({state})"


class TraceWarning(msgspec.Struct):
    """A trace rule (FL1xx) at one place in the source. count: of stores (by line), flushes or fences; position, operation: of
    the first. A warning, not a finding: whether recovery needs what is missing only crash states tell."""

    id: str
    rule: str
    title: str
    site: Site
    count: int
    position: int
    concern: Literal["loss", "cost"]
    """Whether a power failure may lose the store, or only time is lost."""
    meaning: str = ""
    operation: EventOperation | None = None


class OperationCost(msgspec.Struct):
    """What the operations of one kind paid together. lines: distinct lines flushed, summed over operations; redundant: flushes and
    fences that did nothing."""

    operation: str
    operations: int
    stores: int
    bytes: int
    flushes: int
    fences: int
    lines: int
    redundant: int


class Rule(msgspec.Struct):
    """A rule as the engine lists it. meaning: of a rule of the heap when it is broken, of a trace rule what it warns of."""

    id: str
    judges: Literal["heap", "trace"]
    title: str
    meaning: str


class TraceRules(msgspec.Struct, tag_field="event", tag="trace_rules"):
    """What the trace rules say of a trace (crashgen/src/trace_rules.rs)."""

    warnings: list[TraceWarning] = []
    costs: list[OperationCost] = []


class Stage(msgspec.Struct):
    """A stage of recovery that the allocator names (include/stage.h)."""

    name: str
    entered: int
    """How often recoveries of crash images came there; equal images are recovered once, or twice where something is confirmed."""


class Engines(msgspec.Struct):
    """Which engine did the recoveries of `complete`, or without hooks the first parts of the probe (the isolated one did the
    others). compared: of those in-process, in both, with equal answers; refereed: of those, in the traced engine, too, with equal
    answers; remembered: of those in-process, whose later stages were those of another one, that had come to the same state;
    isolated: instead, by what the target does that an in-process run cannot take back."""

    in_process: int = 0
    compared: int = 0
    refereed: int = 0
    remembered: int = 0
    isolated: dict[str, int] = {}

    def text(self) -> str:
        """Empty if none was asked to be in-process."""
        if not self.in_process and not self.isolated:
            return ""
        reasons = [f"{count:,} isolated: the target {reason}" for reason, count in self.isolated.items()]
        if not self.in_process:
            return "; ".join(reasons)
        remembered = f", the later stages of {self.remembered:,} known from another" if self.remembered else ""
        refereed = f", {self.refereed:,} in the traced engine too" if self.refereed else ""
        in_process = (
            f"{self.in_process:,} in-process{remembered}, {self.compared:,} of them in the isolated engine too{refereed}, with"
            f" equal answers"
        )
        return "; ".join([in_process, *reasons])


class LeftOperation(msgspec.Struct):
    """How much of an operation was left. operation: its number in the workload, kind: what it does; None: none has begun.
    positions: its crash positions."""

    operation: int | None
    kind: str | None
    positions: int
    left: int


class Stopped(msgspec.Struct):
    """Where an exploration ended before its end. position: the first crash position (events before the crash) that is not
    explored; left: all of them, from the first to the last of each range; operations: those with most of them, of an
    exploration that has ended, and how many more; text: in words."""

    position: int
    why: str
    left: list[tuple[int, int]] = []
    operations: list[LeftOperation] = []
    more_operations: int = 0
    text: str = ""


class Incomplete(msgspec.Struct):
    """Crash positions of which not every state was explored."""

    why: str
    positions: int
    first: int
    last: int


class Behind(msgspec.Struct):
    """A finding that an exploration looked behind. how: as if the repair were made, or without telling states apart that differ in
    what its state lost; position: from this crash position on."""

    finding: str
    how: Literal["repaired", "not-told-apart"]
    repair: str
    position: int

    def text(self) -> str:
        """As the certificate says it."""
        how = self.how.replace("-", " ")
        return f"behind {self.finding}, {how} from crash position {self.position} on: {self.repair}"


class FileLosses(msgspec.Struct):
    """Sets of file operations that a power failure may lose together. explored: to their end; crash_positions: at which one of them
    is lost; why: that is not all."""

    sets: int = 0
    explored: int = 0
    crash_positions: int = 0
    why: str | None = None


class Certificate(msgspec.Struct, tag_field="event", tag="certificate"):
    """Of a whole exploration, or of what is explored so far: of several the last one counts."""

    complete: bool
    why: str = ""
    is_whole_as_repaired: bool = False
    """Complete for the source with the repairs of `behind`, and not for the source as it is."""
    behind: list[Behind] = []
    strategy: str = ""
    """What ran."""
    fallback: str | None = None
    """Why it is not the strategy that was asked for."""
    engine: str = "isolated"
    """What ran recoveries: in-process, traced or isolated."""
    engine_why: str | None = None
    """Why it is not a faster one."""
    gaps: list[str] = []
    """Why what was explored is not complete."""
    stopped: Stopped | None = None
    incomplete: list[Incomplete] = []
    crash_positions: int = 0
    states: str = "0"
    states_log10: float | None = None
    recoveries: int = 0
    memoised: int = 0
    distinct_images: int = 0
    unknowns: int = 0
    unknown_reasons: list[Any] = []
    rules_judged: list[str] = []
    rules_not_judged: list[dict[str, str]] = []
    positions_by_strategy: dict[str, int] = {}
    judgements: int = 0
    later_positions: int = 0
    """Crash positions of later generations: in recoveries and in what follows them."""
    later_judgements: int = 0
    long_lives: int = 0
    """Crash states that were opened many times and used for long."""
    file_losses: FileLosses | None = None
    """What the file system may lose; None: it is said to lose nothing."""
    full_probes: int = 0
    stages: list[Stage] = []
    engines: Engines = msgspec.field(default_factory=Engines)
    time_s: float = 0.0
    covers: str = ""
    bounds_hit: list[str] = []
    peak_memory_bytes: int = 0
    """Of the engine's process."""

    def why_in_words(self) -> str:
        """What keeps it from being complete; of what could not be judged the first reason, too."""
        return ": ".join(filter(None, (self.why, *(str(reason) for reason in self.unknown_reasons[:1]))))

    def stop_bounds(self) -> list[str]:
        """Of its bounds, the one that stopped it."""
        return [bound for bound in self.bounds_hit if self.stopped and bound == self.stopped.text]


class NewOutcome(msgspec.Struct):
    """A crash state of which recovery shows what no recovery showed before, with as few lines lost as possible. sites: as a
    finding's; line_count: lines that are not as everything persisted leaves them; differences: how its heap report is not as that
    of the state of the same crash in which everything persisted, contents apart."""

    position: int
    operation: dict[str, Any] | None = None
    sites: list[Site] = []
    read: Site | None = None
    line_count: int = 0
    is_later: bool = False
    differences: list[str] = []

    def operation_text(self) -> str:
        """The operation at the crash position, in words."""
        return _operation_text(self.operation)


class Place(msgspec.Struct, frozen=True):
    """A line of source that flushes or fences, in a helper's callers each on its own. sites: its instructions, by the trace's
    numbers; count: executions; in_recovery: of them, inside an `open`."""

    kind: Literal["flush", "fence"]
    site: Site
    sites: tuple[int, ...] = ()
    count: int = 0
    in_recovery: int = 0

    @property
    def name(self) -> str:
        """As --only takes it: fence at nvm_ring_end (allocators/nvm_malloc/src/ring.c:56)."""
        return f"{self.kind} at {self.site.text()}"


class Outcomes(msgspec.Struct, tag_field="event", tag="outcomes"):
    """Distinct pairs of expected heap and heap report; new: those that the exploration it is compared with lacks. later_places:
    where recoveries, and what follows them, flush and fence."""

    count: int
    new: int = 0
    first_new: NewOutcome | None = None
    later_places: list[Place] = []


class StateSize(msgspec.Struct):
    """How small a crash state is. lines: that are not as everything persisted leaves them; floor_lines: that are not as what is
    guaranteed leaves them; position: events before the crash."""

    lines: int
    floor_lines: int
    position: int


class ShrunkState(msgspec.Struct, tag_field="event", tag="shrunk"):
    """The smallest crash state of a trace that shows a finding; it comes after the finding as that state shows it. bounds_hit: why
    a smaller one may have been missed."""

    before: StateSize
    after: StateSize
    recoveries: int = 0
    bounds_hit: list[str] = []


DamageOutcome = Literal["harmless", "kept-out", "detected", "given-up", "silent", "dies", "hangs", "unknown"]


class Damage(msgspec.Struct, tag_field="event", tag="damage"):
    """One thing in a heap was damaged (crashgen/engine/src/commands/damage.rs). name: that `faultline damage --only` takes;
    is_isolated: nothing is lost but what is damaged; rule, message: what recovery of the damaged heap breaks first, if anything."""

    kind: str
    name: str
    position: int
    outcome: DamageOutcome
    is_isolated: bool
    rule: str | None = None
    message: str = ""


class Damages(msgspec.Struct, tag_field="event", tag="damages"):
    """kinds: all that there are; possible: how many damages of each, at all crash positions together; skipped: positions whose heap
    is not in order as it is, and why."""

    kinds: list[str] = []
    possible: dict[str, int] = {}
    skipped: list[str] = []


class Broken(msgspec.Struct):
    """What a heap breaks."""

    rule: str
    message: str


class Judged(msgspec.Struct, tag_field="event", tag="judged"):
    """A heap that a machine left when it ended (crashgen/engine/src/commands/judge.rs). operation: that it was at last; is_pending:
    that had not returned."""

    folder: str
    verdict: Verdict
    operation: int | None = None
    is_pending: bool = False
    broken: list[Broken] = []
    unknown: list[str] = []


class Unknown(msgspec.Struct, tag_field="event", tag="unknown"):
    """Why the verdict on a token's crash state may be no other."""

    reasons: list[str]


class Done(msgspec.Struct, tag_field="event", tag="done"):
    verdict: Verdict
    findings: int = 0
    seen: dict[str, int] = {}
    """How often each finding, by its id, was seen in all."""
    trace_hash: str = ""


def sum_log10(logs: list[float]) -> float | None:
    """Counts of states reach 1e249 and more, so they are added as logarithms."""
    if not logs:
        return None
    largest = max(logs)
    return largest + math.log10(sum(10 ** (log - largest) for log in logs))


def states_text(log10: float | None) -> str:
    """1.2e+09, as the engine has it of one cell."""
    if log10 is None:
        return "0"
    exponent = math.floor(log10)
    mantissa = round(10 ** (log10 - exponent), 1)
    if mantissa >= 10:
        mantissa, exponent = 1.0, exponent + 1
    return f"{mantissa:.1f}e+{exponent:02d}"


Event = (
    Progress | TraceRules | Finding | Certificate | Outcomes | ShrunkState | Damage | Damages | Judged | Unknown | Done
)
