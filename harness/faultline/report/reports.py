# SPDX-License-Identifier: Apache-2.0
"""What a campaign leaves behind for people and machines: report.html, results.json, junit.xml, results.sarif."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import jinja2
import msgspec

from faultline import __version__
from faultline.base.errors import BadInputError, InfrastructureError
from faultline.base.text import count
from faultline.campaign.results import CellResult
from faultline.pipeline.environment import Environment
from faultline.report import junit, results_document, sarif
from faultline.report.outcomes import mark, outcome, scientific
from faultline.report.page import GLYPHS, OPEN_FINDINGS, covered_share, page, rules_not_judged, setting_of
from faultline.report.timeline import LEGEND
from faultline.wear.figures import Counts, Wear, write_csv
from faultline.wear.page import FILE as WEAR_FILE
from faultline.wear.page import HEADS, WearPage, page_of, read_page, short_place

FILES = ("report.html", "junit.xml", "results.sarif", "results.json")


def write_all(folder: Path, results: list[CellResult], state: str, environment: Environment | None = None) -> None:
    """Writes every file of FILES; each appears whole."""
    try:
        wear, problem = read_page(folder), None
    except BadInputError as error:  # the reports of a campaign are not lost to a file beside them
        wear, problem = None, error.message
    texts = (
        html(results, state, environment, wear, problem),
        junit.render(results, environment),
        sarif.render(results, state, environment),
        results_document.render(results, state, environment),
    )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in zip(FILES, texts, strict=True):
            _write_whole(folder / name, text)
    except OSError as error:
        raise InfrastructureError(
            f"{folder}: the report cannot be written: {error.strerror}", "choose another folder with --out DIR"
        ) from error


def _write_whole(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


def write_wear(folder: Path, wear: Wear, counted: Sequence[tuple[str, Counts]], formats: Sequence[str]) -> None:
    """wear.json, wear.csv and pictures."""
    from faultline.wear import pictures

    with _writing_wear(folder):
        folder.mkdir(parents=True, exist_ok=True)
        _write_whole(folder / WEAR_FILE, msgspec.json.format(msgspec.json.encode(wear), indent=2).decode() + "\n")
        write_csv(folder / "wear.csv", counted)
        pictures.write(wear, folder, formats)


def write_wear_page(folder: Path, wear: Wear) -> None:
    """report.html with the wear page alone: where there is no campaign whose page it could be a part of."""
    template = templates().get_template("wear.html.j2")
    with _writing_wear(folder):
        _write_whole(folder / "report.html", template.render(version=__version__, wear=page_of(wear), wear_heads=HEADS))


@contextlib.contextmanager
def _writing_wear(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InfrastructureError(
            f"{folder}: wear cannot be written: {error.strerror}", "choose another folder with --out DIR"
        ) from error


def templates() -> jinja2.Environment:
    found = jinja2.Environment(
        loader=jinja2.PackageLoader("faultline.report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    found.filters["short_place"] = short_place
    found.filters["text_of"] = lambda one: one.text()
    return found


def html(
    results: list[CellResult],
    state: str,
    environment: Environment | None = None,
    wear: WearPage | None = None,
    wear_problem: str | None = None,
) -> str:
    """One file that asks for nothing else: readable offline, without JavaScript, on paper. wear_problem: why there is no wear page,
    where one was to be expected."""
    made = templates()
    filters = (outcome, mark, scientific, count, covered_share, rules_not_judged, setting_of)
    made.filters.update({function.__name__: function for function in filters})
    template = made.get_template("report.html.j2")
    return template.render(
        version=__version__,
        page=page(results, state, environment or Environment()),
        glyphs=GLYPHS,
        open_findings=OPEN_FINDINGS,
        legend=LEGEND,
        wear=wear,
        wear_problem=wear_problem,
        wear_heads=HEADS,
    )
