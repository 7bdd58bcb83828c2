# SPDX-License-Identifier: Apache-2.0
"""A small GitHub Actions: jobs in the order of the file, each in a clone of its own, with the expressions and actions that the
template uses. Artifacts and the cache of results are folders. The cache of builds is not kept: jobs share those of the clone of
faultline."""

from __future__ import annotations

import itertools
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from workflows.job_shell import Place


class Nothing(str):
    """A context that is not there: empty, whatever is asked of it."""

    def __getattr__(self, name: str) -> Nothing:
        return self


class Context(dict[str, Any]):
    """of.this.form; a - in a name is a _ here."""

    def __getattr__(self, name: str) -> Any:
        found = self.get(name, self.get(name.replace("_", "-"), Nothing()))
        return Context(found) if isinstance(found, dict) else found


@dataclass
class Job:
    """folder: its clone; of one that was skipped there is none."""

    result: str
    folder: Path = Path("nowhere")
    outputs: dict[str, str] = field(default_factory=dict)


def load(text: str) -> dict[str, Any]:
    """YAML 1.2, in which `on` is a word."""
    return dict(YAML(typ="safe").load(text))


def evaluated(expression: str, names: Mapping[str, Any]) -> Any:
    """Of GitHub's language that of the template."""
    pieces = re.split(r"('[^']*')", expression.strip().removeprefix("${{").removesuffix("}}"))
    pieces[::2] = [
        re.sub(r"!(?!=)", " not ", re.sub(r"(?<=\w)-(?=\w)", "_", piece)).replace("&&", " and ").replace("||", " or ")
        for piece in pieces[::2]
    ]
    return eval("".join(pieces).strip(), {"__builtins__": {}}, dict(names))


def filled(value: Any, names: Mapping[str, Any]) -> str:
    return re.sub(r"\$\{\{(.*?)\}\}", lambda found: str(evaluated(found[1], names)), str(value))


class GitHub:
    """place: artifacts of a run go to runs/NUMBER, results of branches to its cache."""

    def __init__(self, place: Place, variables: Mapping[str, str]) -> None:
        self.place, self.variables = place, dict(variables)
        self.cache = place.folder / "cache"
        self.cache.mkdir()
        self.uploaded: list[Path] = []
        self.number = 0
        self.environment: dict[str, str] = {}

    def run(self, repository: Path, text: str, event: Mapping[str, Any]) -> dict[str, Job]:
        """Of the workflow with this text. event: the context `github`, besides what every run has."""
        self.number += 1
        self.artifacts = self.place.folder / "runs" / str(self.number)
        self.artifacts.mkdir(parents=True)
        own = {"run_id": self.number, "run_attempt": 1, "repository": "a/pegs", "token": "secret"}
        names = {"github": Context({**own, **event}), "vars": Context(self.variables)}
        workflow = load(text)
        self.environment = {key: filled(value, names) for key, value in workflow["env"].items()}
        jobs: dict[str, Job] = {}
        for name, job in workflow["jobs"].items():
            needed = [job["needs"]] if isinstance(job.get("needs"), str) else job.get("needs", [])
            needs = {one: Context(result=jobs[one].result, outputs=jobs[one].outputs) for one in needed}
            is_good = all(jobs[one].result == "success" for one in needed)
            if not _is_wanted(job.get("if"), {**names, "needs": Context(needs)}, is_good):
                jobs[name] = Job("skipped")
                continue
            ended = [self._job(repository, name, job, matrix, names, needs) for matrix in _matrix(job)]
            bad = [one for one in ended if one.result != "success"]
            jobs[name] = (bad or ended)[0]
        return jobs

    def _job(
        self,
        repository: Path,
        name: str,
        job: Mapping[str, Any],
        matrix: tuple[Context, int],
        names: Mapping[str, Any],
        needs: Mapping[str, Any],
    ) -> Job:
        values, count = matrix
        folder = f"{self.number}-{'-'.join([name, *map(str, values.values())])}"
        work = self.place.clone(repository, folder)
        (work / ".git" / "summary").touch()
        steps: dict[str, Any] = {}
        own = {
            **names,
            "needs": Context(needs),
            "matrix": values,
            "strategy": Context({"job-total": count}),
            "steps": Context(steps),
            "hashFiles": lambda pattern: "sum" if any(work.glob(pattern)) else "",
        }
        ended = Job("success", work)
        for step in job["steps"]:
            if not _is_wanted(step.get("if"), own, ended.result == "success"):
                continue
            is_good, outputs = self._step(step, work, own)
            if "id" in step:
                steps[step["id"]] = {"outputs": outputs}
            own["steps"] = Context(steps)
            ended.result = ended.result if is_good else "failure"
        ended.outputs = {key: filled(value, own) for key, value in job.get("outputs", {}).items()}
        return ended

    def _step(self, step: Mapping[str, Any], work: Path, names: Mapping[str, Any]) -> tuple[bool, dict[str, str]]:
        if "run" in step:
            own = {key: filled(value, names) for key, value in step.get("env", {}).items()}
            environment = {**self.environment, **own}
            environment["GITHUB_STEP_SUMMARY"] = str(work / ".git" / "summary")
            return self.place.run(filled(step["run"], names), work, environment).code == 0, {}
        action = ACTIONS[step["uses"].partition("@")[0]]
        return action(self, {key: filled(value, names) for key, value in step.get("with", {}).items()}, work)

    def _upload(self, words: Mapping[str, str], work: Path) -> tuple[bool, dict[str, str]]:
        source, target = work / words["path"], self.artifacts / words["name"]
        if not source.exists():
            return words.get("if-no-files-found") != "error", {}
        if source.is_dir():
            shutil.copytree(source, target)
        else:
            target.mkdir()
            shutil.copy(source, target)
        return True, {"artifact-id": words["name"]}

    def _download(self, words: Mapping[str, str], work: Path) -> tuple[bool, dict[str, str]]:
        """One by its name goes to the path itself, those of a pattern to folders of their names unless they are merged."""
        found = sorted(self.artifacts.glob(words.get("name") or words["pattern"]))
        is_plain = "name" in words or words.get("merge-multiple") == "True"
        for one in found:
            shutil.copytree(one, work / words["path"] / ("" if is_plain else one.name), dirs_exist_ok=True)
        return bool(found) or "name" not in words, {}

    def _restore(self, words: Mapping[str, str], work: Path) -> tuple[bool, dict[str, str]]:
        """The newest whose key begins so."""
        kept = [one for one in self.cache.iterdir() if one.name.startswith(words["restore-keys"].strip())]
        for one in sorted(kept, key=lambda one: one.stat().st_mtime_ns)[-1:]:
            (work / words["path"]).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(one, work / words["path"])
        return True, {}

    def _save(self, words: Mapping[str, str], work: Path) -> tuple[bool, dict[str, str]]:
        assert "," not in words["key"]
        shutil.copy(work / words["path"], self.cache / words["key"])
        return True, {}

    def _scan(self, words: Mapping[str, str], work: Path) -> tuple[bool, dict[str, str]]:
        self.uploaded.append(work / words["sarif_file"])
        return self.uploaded[-1].is_file(), {}


def _nothing(_service: GitHub, _words: Mapping[str, str], _work: Path) -> tuple[bool, dict[str, str]]:
    return True, {}


ACTIONS: dict[str, Callable[[GitHub, Mapping[str, str], Path], tuple[bool, dict[str, str]]]] = {
    "actions/checkout": _nothing,
    "actions/cache": _nothing,
    "actions/cache/restore": GitHub._restore,
    "actions/cache/save": GitHub._save,
    "actions/upload-artifact": GitHub._upload,
    "actions/download-artifact": GitHub._download,
    "github/codeql-action/upload-sarif": GitHub._scan,
}


def _is_wanted(condition: str | None, names: Mapping[str, Any], is_good: bool) -> bool:
    """One that asks for no state of the job wants it to be good."""
    if not is_good and "cancelled()" not in (condition or ""):
        return False
    return condition is None or bool(evaluated(condition, {**names, "cancelled": lambda: False}))


def _matrix(job: Mapping[str, Any]) -> Iterator[tuple[Context, int]]:
    lists = job.get("strategy", {}).get("matrix", {})
    combined = list(itertools.product(*lists.values()))
    for values in combined:
        yield Context(zip(lists, values, strict=True)), len(combined)
