# SPDX-License-Identifier: Apache-2.0
"""Results: what a campaign found, in SQLite, written cell by cell and finding by finding so that Ctrl-C or a crash loses nothing.

campaign   one CLI run; key: hash of what was asked for, so that the same matrix, stopped, is found again; environment: JSON
cell       one row a cell; key: hash of everything its result is a function of; result: JSON once it is there
finding    one row a finding of a cell, as it was reported; finding: JSON, with the events around the crash position
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, TypeVar
from urllib.parse import quote

import msgspec

from faultline.base.config import Flush
from faultline.base.errors import BadInputError, InfrastructureError
from faultline.base.input_files import check_regular
from faultline.pipeline.cell import CellSpec
from faultline.pipeline.environment import Environment
from faultline.pipeline.events import Certificate, Finding, TraceRules, Verdict, states_text, sum_log10
from faultline.study.explanation import Explanation
from faultline.study.kill_rates import KillRate, share_text
from faultline.study.witness import Shrunk

SCHEMA_VERSION = 4
"""4: ids of findings are made of facts, not of messages."""
MOVE_AWAY = "move the file away; the next campaign begins a new one"
NAME_ANOTHER = "name what `faultline matrix --out DIR` wrote"
RESULTS_VERSION = 7
"""Of results.json."""
SCHEMA = """
create table if not exists campaign (
    id integer primary key, key text not null, kind text not null, state text not null, started_utc text not null,
    environment text);
create table if not exists cell (
    campaign integer not null references campaign, position integer not null, key text not null, spec text not null,
    state text not null, verdict text, result text, primary key (campaign, position));
create table if not exists finding (
    campaign integer not null, cell integer not null, id text not null, rule text not null, message text not null,
    token text not null, finding text not null, primary key (campaign, cell, id, token));
create index if not exists cell_key on cell (key);
create temp view since_one_ended as
    select cell.*, campaign.key as campaign_key from cell join campaign on campaign.id = cell.campaign
    where campaign.id > (select ifnull(max(ended.id), 0) from campaign ended
                         where ended.key = campaign.key and ended.state = 'done');
"""
"""since_one_ended: cells of the campaigns that were begun since one of the same key came to its end. A key is of one kind."""


T = TypeVar("T")


class CellResult(msgspec.Struct):
    """state: `done`, or `stopped` when Ctrl-C came first. error: why there is no verdict, when an error is the reason."""

    spec: CellSpec
    key: str = ""
    verdict: Verdict = "unknown"
    state: Literal["done", "stopped"] = "done"
    trace_hash: str = ""
    build: str = ""
    recovered_by: str = ""
    """The folder of the other build that recovered the heaps (`upgrade` of allocator.toml); empty: the same build did."""
    findings: list[Finding] = []
    explanations: list[Explanation] = []
    """Of the first findings."""
    shrunk: list[Shrunk] = []
    """Of the same ones, the smallest witnesses."""
    not_shrunk: dict[str, str] = {}
    """By finding: why there is none."""
    certificate: Certificate | None = None
    kill_rate: KillRate | None = None
    """Of a clean cell's allocator, where it was measured of this very build."""
    trace_rules: TraceRules | None = None
    error: str | None = None
    hint: str | None = None
    error_code: int = 0
    build_s: float = 0.0
    trace_s: float = 0.0
    explore_s: float = 0.0
    is_reused: bool = False

    @property
    def is_killed(self) -> bool:
        """A mutant is killed by its expected rule, not by any other."""
        return any(finding.rule == self.spec.expected_rule for finding in self.findings)

    @property
    def new_findings(self) -> list[Finding]:
        """Those that are not known (campaign/known.py)."""
        return [finding for finding in self.findings if finding.known is None]

    @property
    def is_explored(self) -> bool:
        return self.state == "done" and self.error is None and self.certificate is not None

    @property
    def is_unknown(self) -> bool:
        """Whether there is no verdict. Known findings are none: what else was not judged then counts."""
        is_known = bool(self.findings) and not self.new_findings
        if not is_known or self.spec.mutant is not None:
            return self.verdict == "unknown"
        is_all_judged = self.certificate is not None and not self.certificate.unknown_reasons
        return not self.is_explored or not is_all_judged or self._is_stopped_at_finding

    @property
    def is_incomplete(self) -> bool:
        """Whether a limit ended it, or left states out, and nothing else is to be said of it. Known findings are nothing else."""
        if self.is_unknown or self.new_findings or self.is_killed:
            return False
        if not self.findings:
            return self.verdict == "incomplete"
        return self.certificate is not None and bool(self.certificate.stopped or self.certificate.incomplete)

    @property
    def is_open(self) -> bool:
        """Whether it is neither good nor bad, and nobody has said that this is all right."""
        return self.is_unknown or (self.is_incomplete and not self.spec.allow_incomplete)

    @property
    def _is_stopped_at_finding(self) -> bool:
        """By stop_at_rule: nothing is known of what comes after it."""
        stop = self.spec.stop_at_rule
        is_hit = any(stop in ("any", finding.rule, finding.id) for finding in self.findings)
        return is_hit and self.certificate is not None and self.certificate.stopped is not None

    def explanation_of(self, finding: Finding) -> Explanation | None:
        return next((one for one in self.explanations if one.finding == finding.id), None)

    def shrunk_of(self, finding: Finding) -> Shrunk | None:
        return next((one for one in self.shrunk if one.finding == finding.id), None)

    def replay_lines(self, finding: Finding) -> list[str]:
        """How to see the finding again: as it was found, and in its smallest witness, if there is another one."""
        lines = [f"replay: {self.spec.replay_command(finding.token)}"]
        shrunk = self.shrunk_of(finding)
        if shrunk is not None and shrunk.witness.token != finding.token:
            lines.append(f"shrunk: {shrunk.text()}: faultline replay {shrunk.witness.token}")
        return lines

    @property
    def is_complete(self) -> bool:
        return self.certificate is not None and self.certificate.complete


class Summary(msgspec.Struct):
    """The last line of run and matrix. cells, findings, complete: of clean cells; a mutant's findings are expected, and known ones
    do not count. kill_rate: of the builds that have clean cells (kill_rates.share_text); empty: there are none."""

    cells: int
    findings: int
    mutants_killed: int
    mutants_run: int
    states: str
    recoveries: int
    complete: int
    incomplete: int
    unknown: int
    kill_rate: str = ""

    def line(self) -> str:
        return (
            f"summary: cells={self.cells} findings={self.findings} mutants={self.mutants_killed}/{self.mutants_run}"
            f" states={self.states} recoveries={self.recoveries} complete={self.complete}/{self.cells}"
            f" incomplete={self.incomplete} unknown={self.unknown}"
            + (f" kill_rate={self.kill_rate}" if self.kill_rate else "")
        )


def summarise(results: list[CellResult]) -> Summary:
    clean = [result for result in results if result.spec.mutant is None]
    mutants = [result for result in results if result.spec.mutant is not None]
    certificates = [result.certificate for result in results if result.certificate is not None]
    return Summary(
        cells=len(clean),
        findings=sum(len(result.new_findings) for result in clean),
        mutants_killed=sum(result.is_killed for result in mutants),
        mutants_run=len(mutants),
        states=states_text(sum_log10([one.states_log10 for one in certificates if one.states_log10 is not None])),
        recoveries=sum(certificate.recoveries for certificate in certificates),
        complete=sum(result.is_complete for result in clean),
        incomplete=sum(result.is_incomplete for result in results),
        unknown=sum(result.is_unknown for result in results),
        kill_rate=share_text(kill_rates_of(results).values()) if clean else "",
    )


def kill_rates_of(results: list[CellResult]) -> dict[tuple[str, Flush], KillRate | None]:
    """By allocator and flush instruction, of those with clean cells, in order of appearance; None: nobody measured it."""
    rates: dict[tuple[str, Flush], KillRate | None] = {}
    for result in results:
        if result.spec.mutant is None:
            build = result.spec.allocator, result.spec.flush
            rates[build] = rates.get(build) or result.kill_rate
    return rates


class Results:
    """One database. Used from several threads; a lock makes their turns."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._begun: int | None = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
            self._open()
        except OSError as error:
            raise InfrastructureError(f"{path}: the results cannot be written: {error.strerror}") from error
        except sqlite3.DatabaseError as error:
            raise BadInputError(
                f"{path}: is not a results database: {error}", "move it away, or name another --out"
            ) from error

    @classmethod
    def of_before(cls, path: Path) -> Results:
        """A database that is only read, and left as it is, in a folder that may be read-only.

        Raises BadInputError when it is none of this version."""
        check_regular(path)
        results = cls.__new__(cls)
        results.path, results._lock, results._begun = path, threading.Lock(), None
        # One that nobody writes to is whole as it is, and needs no files beside it.
        is_in_use = path.with_name(f"{path.name}-wal").exists()
        uri = f"file:{quote(str(path.absolute()))}?{'mode=ro' if is_in_use else 'immutable=1'}"
        try:
            results._connection = sqlite3.connect(uri, uri=True, check_same_thread=False)
            version = results._connection.execute("pragma user_version").fetchone()[0]
        except sqlite3.DatabaseError as error:
            raise BadInputError(f"{path}: is not a results database: {error}", NAME_ANOTHER) from error
        if version == 0:
            raise BadInputError(f"{path}: is not a results database: nothing of a campaign is in it", NAME_ANOTHER)
        results._check_version(version, SCHEMA_VERSION)
        return results

    def _open(self) -> None:
        version = self._connection.execute("pragma user_version").fetchone()[0]
        self._check_version(version, 0, SCHEMA_VERSION)
        self._connection.execute("pragma journal_mode = wal")
        self._connection.execute("pragma busy_timeout = 10000")
        self._connection.executescript(SCHEMA)
        self._connection.execute(f"pragma user_version = {SCHEMA_VERSION}")

    def _check_version(self, version: int, *expected: int) -> None:
        if version not in expected:
            raise BadInputError(
                f"{self.path}: a results database of version {version}, expected {SCHEMA_VERSION}: its findings have other ids",
                MOVE_AWAY,
            )

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    @contextlib.contextmanager
    def _turn(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            try:
                yield self._connection
            except sqlite3.DatabaseError as error:
                raise InfrastructureError(f"{self.path}: the results cannot be written: {error}") from error

    def _decoded(self, text: str, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(text, type=kind)
        except msgspec.MsgspecError as error:
            raise BadInputError(f"{self.path}: results of another faultline: {error}", MOVE_AWAY) from error

    def begin(self, kind: str, key: str, specs: list[CellSpec], environment: Environment | None = None) -> int:
        """A new campaign, all its cells pending; its number."""
        with self._turn() as connection:
            cursor = connection.execute(
                "insert into campaign (key, kind, state, started_utc, environment)"
                " values (?, ?, 'running', datetime('now'), ?)",
                (key, kind, _json(environment) if environment else None),
            )
            campaign = self._begun = int(cursor.lastrowid or 0)
            connection.executemany(
                "insert into cell (campaign, position, key, spec, state) values (?, ?, '', ?, 'pending')",
                [(campaign, position, _json(spec)) for position, spec in enumerate(specs)],
            )
        return campaign

    def unfinished(self, kind: str, key: str) -> int | None:
        """The last campaign of this key, when it was stopped before its end."""
        with self._turn() as connection:
            row = connection.execute(
                "select id, state from campaign where kind = ? and key = ? order by id desc limit 1", (kind, key)
            ).fetchone()
        return int(row[0]) if row and row[1] != "done" else None

    def finding(self, campaign: int, position: int, finding: Finding) -> None:
        row = (campaign, position, finding.id, finding.rule, finding.message, finding.token, _json(finding))
        with self._turn() as connection:
            connection.execute("insert or replace into finding values (?, ?, ?, ?, ?, ?, ?)", row)

    def cell(self, campaign: int, position: int, result: CellResult) -> None:
        with self._turn() as connection:
            connection.execute(
                "update cell set key = ?, state = ?, verdict = ?, result = ? where campaign = ? and position = ?",
                (result.key, result.state, result.verdict, _json(result), campaign, position),
            )

    def done_cell(self, campaign: int, key: str) -> CellResult | None:
        """The result of the cell with this key, when that campaign finished it, or one of those before it that it went on with, and
        it has a verdict. One that was stopped again before it came to a cell has not lost that."""
        with self._turn() as connection:
            row = connection.execute(
                "select result from since_one_ended where campaign_key = (select key from campaign where id = ?1)"
                " and campaign <= ?1 and key = ?2 and state = 'done' and verdict in ('pass', 'fail')"
                " order by campaign desc limit 1",
                (campaign, key),
            ).fetchone()
        return self._decoded(row[0], CellResult) if row else None

    def stopped_cell(self, key: str) -> CellResult | None:
        """The last result of the cell with this key, when its exploration was stopped and can go on."""
        with self._turn() as connection:
            row = connection.execute(
                "select result from cell where key = ? and result is not null order by campaign desc limit 1", (key,)
            ).fetchone()
        found = self._decoded(row[0], CellResult) if row else None
        return found if found and found.certificate and found.certificate.stopped else None

    def left_of(self, key: str, spec: CellSpec) -> CellResult | None:
        """The last result of the cell in the campaigns of this key since one of them came to its end."""
        with self._turn() as connection:
            row = connection.execute(
                "select result from since_one_ended where campaign_key = ? and spec = ? and result is not null"
                " order by campaign desc limit 1",
                (key, _json(spec)),
            ).fetchone()
        return self._decoded(row[0], CellResult) if row else None

    @property
    def has_begun(self) -> bool:
        """A campaign was begun here."""
        return self._begun is not None

    def end(self, campaign: int, state: Literal["done", "stopped"]) -> None:
        with self._turn() as connection:
            connection.execute("update campaign set state = ? where id = ?", (state, campaign))

    def environment(self) -> Environment:
        """Of the campaign that read() gives; without facts when the campaign did not say."""
        with self._turn() as connection:
            row = connection.execute(
                "select environment, started_utc from campaign where id = ifnull(?, id) order by id desc limit 1",
                (self._begun,),
            ).fetchone()
        if row is None:
            return Environment()
        found = self._decoded(row[0], Environment) if row[0] else Environment()
        return msgspec.structs.replace(found, started_utc=row[1])

    def read(self) -> tuple[str, list[CellResult]]:
        """State and cells of the campaign begun here, else of the last one (other processes may write to the same database);
        cells that have no result are left out."""
        with self._turn() as connection:
            campaign = connection.execute(
                "select id, state from campaign where id = ifnull(?, id) order by id desc limit 1", (self._begun,)
            ).fetchone()
            if campaign is None:
                raise BadInputError(f"{self.path}: holds no campaign", "run `faultline matrix` first")
            rows = connection.execute(
                "select result from cell where campaign = ? and result is not null order by position", (campaign[0],)
            ).fetchall()
        return str(campaign[1]), [self._decoded(row[0], CellResult) for row in rows]


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
