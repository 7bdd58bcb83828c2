# SPDX-License-Identifier: Apache-2.0
"""A small GitLab: jobs in the order of the file, each in a clone of its own with the artifacts of those that it needs. Caches are
not kept: jobs share the builds of the clone of faultline."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workflows.github_actions import load
from workflows.job_shell import Place

NO_JOBS = {"variables", "include", "stages", "default", "workflow"}


@dataclass
class Job:
    """folder: its clone; of one that was skipped there is none."""

    result: str
    folder: Path = Path("nowhere")


def jobs_of(text: str) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """With what each extends, and the variables of all."""
    said = load(text)
    jobs = {}
    for name, job in said.items():
        if name not in NO_JOBS and not name.startswith("."):
            jobs[name] = {**said.get(job.get("extends", ""), {}), **job}
    return jobs, {key: str(value) for key, value in said.get("variables", {}).items()}


class GitLab:
    """variables: those of the project, which come before those of the file."""

    def __init__(self, place: Place, variables: Mapping[str, str]) -> None:
        self.place, self.variables = place, dict(variables)
        self.number = 0

    def run(self, repository: Path, text: str, event: Mapping[str, str]) -> dict[str, Job]:
        """event: the variables of this pipeline."""
        self.number += 1
        jobs, given = jobs_of(text)
        own = {"CI_API_V4_URL": "https://gitlab.example/api/v4", "CI_PROJECT_ID": "7", "CI_JOB_TOKEN": "of-job"}
        variables = {**given, **own, "CI_DEFAULT_BRANCH": "main", **self.variables, **event}
        ended: dict[str, Job] = {}
        for name, job in jobs.items():
            rule = next((rule for rule in job["rules"] if _holds(rule["if"], variables)), None)
            if rule is None:
                continue
            needs = job.get("needs", [])
            is_good = all(ended[one].result in {"success", "warning"} for one in needs)
            if not is_good and rule.get("when") != "always":
                ended[name] = Job("skipped")
                continue
            count = job.get("parallel", 1)
            shards = [self._job(repository, name, job, index, variables) for index in range(1, count + 1)]
            ended[name] = min(shards, key=lambda one: ["failed", "warning", "success"].index(one.result))
        return ended

    def _job(self, repository: Path, name: str, job: Mapping[str, Any], index: int, all_: Mapping[str, str]) -> Job:
        work = self.place.clone(repository, f"{self.number}-{name}-{index}")
        for needed in job.get("needs", []):
            for kept in self._artifacts(needed).glob("*"):
                shutil.copytree(kept, work, dirs_exist_ok=True)
        variables = {**all_, "CI_JOB_URL": f"https://gitlab.example/jobs/{name}"}
        if "parallel" in job:
            variables |= {"CI_NODE_INDEX": str(index), "CI_NODE_TOTAL": str(job["parallel"])}
        run = self.place.run("\n".join([*job.get("before_script", []), *job["script"]]), work, variables)
        artifacts = job.get("artifacts", {})
        if run.code == 0 or artifacts.get("when") == "always":
            for path in artifacts.get("paths", []):
                if (work / path).exists():
                    shutil.copytree(work / path, self._artifacts(name) / str(index) / path)
        is_allowed = run.code in job.get("allow_failure", {}).get("exit_codes", [])
        return Job("success" if run.code == 0 else "warning" if is_allowed else "failed", work)

    def _artifacts(self, job: str) -> Path:
        return self.place.folder / "artifacts" / str(self.number) / job


def _holds(condition: str, variables: Mapping[str, str]) -> bool:
    """Of GitLab's language that of the template."""
    words = re.sub(r"\$(\w+)", r'of("\1")', condition).replace("&&", " and ")
    return bool(eval(words, {"__builtins__": {}}, {"of": lambda name: variables.get(name, "")}))
