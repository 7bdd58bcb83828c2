# SPDX-License-Identifier: Apache-2.0
"""Runs the cells of a campaign on the workers of a cluster (Dask distributed), one cell a part, one part a worker at a time.

The client alone writes results; it gives each part to one worker by name, and gives it again when that worker is gone. It counts
itself how often a part lost its worker. Dask would count, too (`allowed-failures`), but by what the scheduler was started with, and
it would choose a worker of another version as well as any other."""

from __future__ import annotations

import contextlib
import logging
import queue
import secrets
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from faultline.base.errors import EXIT_UNKNOWN, InfrastructureError, one_line
from faultline.base.text import count
from faultline.campaign.alike import machine_of
from faultline.campaign.campaign import Order
from faultline.campaign.part import Answer, Part, Places, Request, end_part, run_part
from faultline.campaign.results import CellResult
from faultline.campaign.where import Where
from faultline.pipeline.cell import CellSpec
from faultline.pipeline.workshop import Workshop
from faultline.study import kill_rates
from faultline.study.kill_rates import KillRate

MOST_DEATHS = 3
"""So many workers are lost in the middle of a part before it is unknown: one may be an accident, and a part that ends what runs it
must not end the whole cluster."""
CONNECT_S = 10
"""For the scheduler to answer."""
LACK_S = 60
"""So long there may be no worker: one that died is started again, others are still starting."""
ENDING_S = 8
"""After Ctrl-C workers have so long to say what they found: children have STOP_GRACE_S of it."""
LOOK_S = 0.5
"""Between two looks at which workers are there."""
GO_ON = "the same command goes on where it stopped"


@contextlib.contextmanager
def cluster_at(where: Where, places: Places, say: Callable[[str], None]) -> Iterator[Cluster]:
    """places: what the client's options say, for workers on this machine; say: one line for people.

    Raises InfrastructureError where distributed is not installed, or no scheduler answers."""
    dask, distributed = _imported()
    with contextlib.ExitStack() as opened:
        try:
            address: Any = where.address
            if not where.address:
                dask.config.set({"distributed.worker.preload": ["faultline.campaign.part"]})
                address = opened.enter_context(
                    distributed.LocalCluster(
                        n_workers=where.workers,
                        threads_per_worker=1,
                        processes=True,
                        host="127.0.0.1",
                        scheduler_port=0,
                        dashboard_address=None,
                        scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},  # else it answers on 8787 all the same
                        memory_limit=0,
                        silence_logs=logging.CRITICAL,
                    )
                )
            client = distributed.Client(address, timeout=CONNECT_S, set_as_default=False)
        except (OSError, RuntimeError, ValueError) as error:
            raise InfrastructureError(
                f"{where.name}: no scheduler answers there: {error}",
                "`dask scheduler` starts one; --cluster takes the address that it prints",
            ) from error
        opened.callback(_close, client)
        yield Cluster(where, places if not where.address else Places(), client, say)


def _close(client: Any) -> None:
    """A scheduler that is gone needs no good-bye."""
    with contextlib.suppress(OSError, RuntimeError):
        client.close(timeout=2)


def _imported() -> tuple[Any, Any]:
    """dask and distributed, which say nothing themselves: what matters is said by us."""
    try:
        import dask

        dask.config.set({"logging": {"distributed": "critical", "distributed.client": "critical"}})
        import distributed
    except ImportError as error:
        raise InfrastructureError(
            f"--cluster needs Dask distributed, which is not installed: {error}",
            "pip install 'faultline[cluster]', or pip install distributed in this environment",
        ) from error
    warnings.filterwarnings("ignore", module="distributed")
    return dask, distributed


@dataclass
class Cluster:
    """A crew (campaign.Crew)."""

    where: Where
    places: Places
    client: Any
    say: Callable[[str], None]

    def fact(self) -> str:
        return f"{self.where.name}, {count(len(self.workers()), 'worker')}"

    def run(self, order: Order) -> list[CellResult]:
        """Raises InfrastructureError when no worker is left that can run parts, or the scheduler is gone."""
        turns = _Turns(self, order)
        self.end(order.key)  # what a client of this campaign left running that was killed
        try:
            while turns.is_open:
                turns.next()
        except KeyboardInterrupt:
            turns.end()
            raise
        return [turns.results[position] for position in range(len(order.specs))]

    def workers(self) -> set[str]:
        """The addresses of those that are there."""
        try:
            return set(self.client.nthreads())
        except (OSError, RuntimeError, ValueError, TypeError) as error:
            raise InfrastructureError(f"{self.where.name}: the scheduler is lost: {error}", GO_ON) from error

    def end(self, campaign: str, workers: list[str] | None = None) -> None:
        """The parts of this campaign; nobody waits for it."""
        with contextlib.suppress(OSError, RuntimeError, ValueError):
            self.client.run(end_part, campaign, workers=workers, wait=False, on_error="ignore")

    def give(self, name: str, request: bytes, worker: str) -> Any:
        """A future of the answer."""
        return self.client.submit(run_part, request, key=name, workers=[worker], allow_other_workers=False, pure=False)


@dataclass(frozen=True)
class _Given:
    position: int
    worker: str
    future: Any


@dataclass
class _Turns:
    """One campaign on a cluster, turn by turn."""

    cluster: Cluster
    order: Order
    results: dict[int, CellResult] = field(default_factory=dict)
    given: dict[str, _Given] = field(default_factory=dict)
    """By worker."""
    lost: dict[int, list[str]] = field(default_factory=dict)
    """By position: the workers that were lost in the middle of it."""
    refused: dict[str, str] = field(default_factory=dict)
    """By worker: why it gets no part."""
    is_any_accepted: bool = False

    def __post_init__(self) -> None:
        self.waiting = deque(range(len(self.order.specs)))
        self._answered: queue.SimpleQueue[_Given] = queue.SimpleQueue()
        self._requests = _Requests(self.cluster.places, self.order)
        self._names = f"faultline-{secrets.token_hex(4)}"
        self._given_ever = 0
        self._lacking_since: float | None = None

    @property
    def is_open(self) -> bool:
        return len(self.results) < len(self.order.specs)

    def next(self) -> None:
        here = self.cluster.workers()
        for given in list(self.given.values()):
            if given.worker not in here and not given.future.done():
                self._is_lost(given)
        free = sorted(here - self.refused.keys() - self.given.keys())
        for worker in free[: len(self.waiting)]:
            self._give(worker)
        self._check_workers(here)
        self._hear(LOOK_S)

    def end(self) -> None:
        """Of what runs."""
        deadline = time.monotonic() + ENDING_S
        self.waiting.clear()
        self.cluster.end(self.order.key, list(self.given))
        while self.given and time.monotonic() < deadline:
            self._hear(deadline - time.monotonic())

    def _give(self, worker: str) -> None:
        position = self.waiting.popleft()
        self._given_ever += 1
        name = f"{self._names}-{position}-{self._given_ever}"
        self.order.begins(position, f"on {worker}")
        given = _Given(position, worker, self.cluster.give(name, self._requests.of(position), worker))
        self.given[worker] = given
        given.future.add_done_callback(lambda _: self._answered.put(given))

    def _hear(self, most_s: float) -> None:
        """Of the next answer, if one comes in time."""
        with contextlib.suppress(queue.Empty):
            given = self._answered.get(timeout=max(most_s, 0))
            if self.given.get(given.worker) is given:  # else it was taken for lost
                self._take(given)

    def _take(self, given: _Given) -> None:
        status = given.future.status
        if status == "error":
            error = given.future.exception()
            if type(error).__name__ == "KilledWorker":
                self._is_lost(given)
            else:
                self._refuse(given, f"it cannot run parts: {type(error).__name__}: {error}")
        elif status == "finished":
            answer = msgspec.json.decode(given.future.result(), type=Answer)
            if answer.result is None:
                self._refuse(given, answer.refused)
            else:
                self.is_any_accepted = True
                self._end(given, answer.result)
        else:  # the scheduler forgot it
            self._again(given)

    def _end(self, given: _Given, result: CellResult) -> None:
        del self.given[given.worker]
        self.results[given.position] = result
        self.order.keep(given.position, result)

    def _again(self, given: _Given) -> None:
        del self.given[given.worker]
        self.waiting.appendleft(given.position)

    def _refuse(self, given: _Given, why: str) -> None:
        self.refused[given.worker] = one_line(why)
        self.cluster.say(f"{given.worker}: refused: {self.refused[given.worker]}")
        self._again(given)

    def _is_lost(self, given: _Given) -> None:
        with contextlib.suppress(OSError, RuntimeError):
            given.future.cancel()
        lost = self.lost.setdefault(given.position, [])
        lost.append(given.worker)
        spec = self.order.specs[given.position]
        if len(lost) < MOST_DEATHS:
            self.cluster.say(f"{given.worker}: lost in the middle of {spec.name}, which is given again")
            self._again(given)
            return
        reason = f"{MOST_DEATHS} workers were lost in the middle of it: {', '.join(lost)}"
        hint = f"see what ends it: {spec.command_line()}"
        self._end(given, CellResult(spec, error=reason, hint=hint, error_code=EXIT_UNKNOWN))

    def _check_workers(self, here: set[str]) -> None:
        """Raises InfrastructureError when nobody runs anything, and nobody will."""
        if self.given or not self.is_open:
            self._lacking_since = None
            return
        now = time.monotonic()
        self._lacking_since = self._lacking_since or now
        refused = sorted(here & self.refused.keys())
        waits_s = 0 if refused and not self.is_any_accepted else LACK_S
        if here - self.refused.keys() or now - self._lacking_since < waits_s:
            return
        if refused:
            raise InfrastructureError(
                f"{self.cluster.where.name}: no worker can run parts: {refused[0]}: {self.refused[refused[0]]}",
                f"start workers with this faultline in the same state of the repository; {GO_ON}",
            )
        raise InfrastructureError(
            f"{self.cluster.where.name}: no worker for {LACK_S} s",
            f"`dask worker ADDRESS --nworkers 1 --nthreads 1` starts one; {GO_ON}",
        )


class _Requests:
    """What workers are sent."""

    def __init__(self, places: Places, order: Order) -> None:
        self._places = places
        self._order = order
        self._rates = _rates(order.workshop)
        self._machines = {
            name: machine_of(order.workshop, order.workshop.allocator(name))
            for name in sorted({spec.allocator for spec in order.specs})
        }

    def of(self, position: int) -> bytes:
        order, spec = self._order, self._order.specs[position]
        part = Part(
            order.key,
            spec,
            order.known,
            _text_of_workload(order.workshop, spec),
            order.earlier(position),
            [result for result in order.before.values() if _unlimited(result.spec) == _unlimited(spec)],
            {} if spec.mutant else self._rates,
        )
        request = Request(
            self._machines[spec.allocator],
            spec.allocator,
            order.workshop.tracer.name,
            self._places,
            msgspec.Raw(msgspec.json.encode(part)),
        )
        return msgspec.json.encode(request)


def _unlimited(spec: CellSpec) -> CellSpec:
    """What the key of a cell has of it."""
    return msgspec.structs.replace(spec, time_limit_s=None, recovery_limit=None, allow_incomplete=False)


def _text_of_workload(workshop: Workshop, spec: CellSpec) -> str | None:
    """Of one that a user has written: its copy in our cache."""
    kind, _, key = spec.workload.partition(":")
    return (workshop.cache.folder / "workloads" / key).read_text("utf-8") if kind == "file" else None


def _rates(workshop: Workshop) -> dict[str, KillRate]:
    """Those that were measured here, by build."""
    builds = (path.stem for path in sorted((workshop.cache.folder / kill_rates.FOLDER).glob("*.json")))
    found = {build: kill_rates.find(workshop.cache, build) for build in builds}
    return {build: rate for build, rate in found.items() if rate is not None}
