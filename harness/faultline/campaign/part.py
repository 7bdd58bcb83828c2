# SPDX-License-Identifier: Apache-2.0
"""What a worker of a cluster does: one cell, in the project of the folder that the worker was started in. A request and its answer
are JSON. What the client and the worker must have in common is compared first, before the rest of a request is read.

One part at a time runs in a process, however many threads a worker has: so a part can be ended without ending another client's."""

from __future__ import annotations

import contextlib
import signal
import tempfile
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from faultline.base.cache import Cache, project_root
from faultline.base.errors import FaultlineError
from faultline.base.project import cache_folder, find_project
from faultline.campaign.alike import Machine, machine_of
from faultline.campaign.campaign import EXAMINING_ALL, CellRunner, SilentWatcher
from faultline.campaign.known import KnownFindings
from faultline.campaign.recorded import DATABASE_NAME
from faultline.campaign.results import CellResult, Results
from faultline.pipeline.cell import CellSpec
from faultline.pipeline.engine import Engine
from faultline.pipeline.tracers import find_tracer
from faultline.pipeline.workshop import Workshop
from faultline.study import kill_rates
from faultline.study.kill_rates import KillRate
from faultline.workload import catalogue
from faultline.workload.file_format import parse


class Places(msgspec.Struct, frozen=True):
    """Of a worker on the client's machine, what the client's options say; empty: as the project says."""

    cache: str = ""
    engine: str = ""
    heap_folder: str = ""


class Part(msgspec.Struct):
    """One cell. campaign: whose it is, by its key and database; workload: the text of a file that a user has written; earlier: what
    a stopped campaign found of the cell; before: results that may be taken over; rates: kill rates known here, by build."""

    campaign: str
    spec: CellSpec
    known: KnownFindings
    workload: str | None = None
    earlier: CellResult | None = None
    before: list[CellResult] = []
    rates: dict[str, KillRate] = {}


class Request(msgspec.Struct):
    """machine: the client's, for the part's allocator."""

    machine: Machine
    allocator: str
    tracer: str
    places: Places
    part: msgspec.Raw


class Answer(msgspec.Struct):
    """result: None: the worker refused, and why."""

    result: CellResult | None = None
    refused: str = ""


class _Now:
    """The part that runs in this process, if any."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._running: tuple[str, CellRunner] | None = None

    @contextlib.contextmanager
    def of(self, campaign: str, runner: CellRunner) -> Iterator[None]:
        with self._guard:
            self._running = campaign, runner
        try:
            yield
        finally:
            with self._guard:
                self._running = None

    def end(self, campaign: str) -> None:
        with self._guard:
            if self._running is not None and self._running[0] == campaign:
                self._running[1].stop()


_now = _Now()
_turn = threading.Lock()


async def end_part(campaign: str) -> None:
    """Ends the part of this campaign, as Ctrl-C does; what it found by then is its result."""
    _now.end(campaign)


def dask_setup(_: Any) -> None:
    """Of a worker that the client has started: the terminal's Ctrl-C reaches it, too, and is the client's to handle. No ignored
    signal: engines would ignore theirs."""
    signal.signal(signal.SIGINT, lambda *_: None)


def run_part(request: bytes) -> bytes:
    """What the client has a worker call."""
    try:
        answer = _answer(msgspec.json.decode(request, type=Request))
    except FaultlineError as error:
        answer = Answer(refused=error.message)
    return msgspec.json.encode(answer)


def _answer(request: Request) -> Answer:
    with _turn:
        workshop = _workshop_of(request)
        different = request.machine.difference(machine_of(workshop, workshop.allocator(request.allocator)))
        if different:
            return Answer(refused=different)
        part = msgspec.json.decode(request.part, type=Part)
        try:
            return Answer(_run(workshop, part))
        except Exception as error:  # the worker is as it should be: this is about the cell
            place = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{Path(place.filename).name}:{place.lineno}"
            return Answer(CellResult(part.spec, error=f"internal error: {error!r} ({where})", error_code=3))


def _workshop_of(request: Request) -> Workshop:
    project, places = find_project(Path.cwd(), project_root()), request.places
    return Workshop(
        project.installation,
        Cache(Path(places.cache) if places.cache else cache_folder(project)),
        Engine(Path(places.engine) if places.engine else None),
        Path(places.heap_folder) if places.heap_folder else None,
        tracer=find_tracer(request.tracer),
        given=project,
    )


def _run(workshop: Workshop, part: Part) -> CellResult:
    """As a campaign of this cell alone, that goes on with what an earlier one left."""
    spec = part.spec
    if part.workload is not None:
        catalogue.store(parse(part.workload, spec.workload), workshop.cache)
    for build, rate in part.rates.items():
        kill_rates.keep(workshop.cache, build, rate)
    with tempfile.TemporaryDirectory(prefix="faultline-part-") as folder:
        results = Results(Path(folder) / DATABASE_NAME)
        try:
            unfinished = results.begin("matrix", part.campaign, [spec])
            if part.earlier is not None:
                results.cell(unfinished, 0, part.earlier)
            campaign = results.begin("matrix", part.campaign, [spec])
            before = {result.key: result for result in part.before}
            is_resumed = part.earlier is not None
            runner = CellRunner(
                workshop,
                results,
                campaign,
                unfinished,
                SilentWatcher(),
                is_resumed,
                False,
                "matrix",
                part.known,
                EXAMINING_ALL,
                before,
            )
            with _now.of(part.campaign, runner):
                return runner.run(0, spec)
        finally:
            results.close()
