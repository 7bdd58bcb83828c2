# SPDX-License-Identifier: Apache-2.0
"""What a campaign leaves behind for people and machines: report.html, results.json, junit.xml, results.sarif."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jinja2
import msgspec

from faultline import __version__, junit, sarif
from faultline.errors import InfrastructureError
from faultline.results import CellResult, summarise

RESULTS_VERSION = 1
FILES = ("report.html", "junit.xml", "results.sarif", "results.json")


def write_all(folder: Path, results: list[CellResult], state: str) -> None:
    """Writes every file of FILES; each appears whole."""
    texts = (html(results, state), junit.render(results), sarif.render(results), results_json(results, state))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in zip(FILES, texts, strict=True):
            temporary = folder / f".{name}.tmp"
            temporary.write_text(text, encoding="utf-8")
            temporary.replace(folder / name)
    except OSError as error:
        raise InfrastructureError(
            f"{folder}: the report cannot be written: {error.strerror}", "choose another folder with --out DIR"
        ) from error


def results_json(results: list[CellResult], state: str) -> str:
    document = {
        "version": RESULTS_VERSION,
        "state": state,
        "summary": msgspec.to_builtins(summarise(results)),
        "cells": [_cell(result) for result in results],
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


def _cell(result: CellResult) -> dict[str, Any]:
    cell: dict[str, Any] = msgspec.to_builtins(result)
    cell["name"] = result.spec.name
    if result.spec.mutant is not None:
        cell["is_killed"] = result.is_killed
    return cell


def html(results: list[CellResult], state: str) -> str:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("faultline"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["outcome"] = outcome
    environment.filters["mark"] = mark
    environment.filters["scientific"] = scientific
    template = environment.get_template("report.html.j2")
    clean = [result for result in results if result.spec.mutant is None]
    mutants = [result for result in results if result.spec.mutant is not None]
    return template.render(
        version=__version__, state=state, summary=summarise(results), results=results, clean=clean, mutants=mutants
    )


def outcome(result: CellResult) -> str:
    """The one word (or two) that says how a cell ended."""
    if result.state == "stopped":
        return "stopped"
    if result.spec.mutant is not None:
        if result.is_killed:
            return "killed"
        return "unknown" if result.verdict == "unknown" else "survived"
    return result.verdict


def mark(result: CellResult) -> str:
    """Class of the outcome: good, bad or open."""
    word = outcome(result)
    return "good" if word in ("pass", "killed") else "open" if word in ("unknown", "stopped") else "bad"


def scientific(states: str) -> str:
    """1.2e+09 as 1.2 × 10⁹."""
    mantissa, letter, exponent = states.partition("e")
    if not letter:
        return states
    superscript = str(int(exponent)).translate(str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻"))
    return f"{mantissa} × 10{superscript}"
