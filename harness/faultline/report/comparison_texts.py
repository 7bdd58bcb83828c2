# SPDX-License-Identifier: Apache-2.0
"""A comparison as Markdown, for a comment on a pull request, and as a page."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from faultline import __version__
from faultline.base.text import count
from faultline.report.comparison import Comparison, FindingChange
from faultline.report.outcomes import Mark
from faultline.report.page import GLYPHS
from faultline.report.reports import templates

MARKER = "<!-- faultline comparison -->"
"""The first line: CI finds its own comment by it, to replace it."""
SHOWN = 20
"""Of each list in a comment, which may have 65,536 characters at most; the page has all."""
SHOWN_CHARACTERS = 400
"""Of one text in a comment."""
COMMAND_CHARACTERS = 1_000
AGAIN = "again"
"""What is said of the command that replays a finding."""


def mark_of(comparison: Comparison) -> Mark:
    return "bad" if comparison.is_worse else "open" if comparison.is_open else "good"


def word_of(comparison: Comparison) -> str:
    return {"bad": "worse", "open": "unknown", "good": "not worse"}[mark_of(comparison)]


def html(comparison: Comparison) -> str:
    """One file that asks for nothing else, as report.html."""
    return (
        templates()
        .get_template("comparison.html.j2")
        .render(
            version=__version__,
            comparison=comparison,
            word=word_of(comparison),
            mark=mark_of(comparison),
            glyph=GLYPHS[mark_of(comparison)],
        )
    )


def markdown(comparison: Comparison) -> str:
    """What targets say is escaped: it can neither mention anybody nor set a heading."""
    return "\n".join([MARKER, *_lines(comparison)]) + "\n"


def _lines(comparison: Comparison) -> Iterator[str]:
    yield f"### {GLYPHS[mark_of(comparison)]} faultline: {word_of(comparison)}"
    yield ""
    yield f"{_escaped(comparison.headline)}. Compared: {_escaped(comparison.before)} → {_escaped(comparison.after)}."
    for word in ("new", "not seen again", "fixed", "changed"):
        found = comparison.of(word)
        if found:
            yield from _section(f"{count(len(found), 'finding')} {word}", map(_finding, found), is_open=word == "new")
    lists = (
        (f"{count(len(comparison.survivors), 'mutant')} survived", comparison.survivors),
        (f"{count(len(comparison.opened), 'cell')} without a verdict", comparison.opened),
        (f"{count(len(comparison.outcomes), 'cell')} ended otherwise", [one.text() for one in comparison.outcomes]),
        (
            f"{count(len(comparison.certificates), 'certificate')} changed",
            [one.text() for one in comparison.certificates],
        ),
        (f"{count(len(comparison.slower), 'cell')} slower", [one.text() for one in comparison.slower]),
        (f"{count(len(comparison.kill_rates), 'kill rate')} changed", [one.text() for one in comparison.kill_rates]),
        (f"{count(len(comparison.added), 'cell')} added", comparison.added),
        (f"{count(len(comparison.removed), 'cell')} gone", comparison.removed),
    )
    for title, texts in lists:
        if texts:
            yield from _section(title, map(_escaped, texts), is_open=False)


def _section(title: str, items: Iterable[str], is_open: bool) -> Iterator[str]:
    items = list(items)
    yield ""
    yield f"<details{' open' if is_open else ''}><summary>{title}</summary>"
    yield ""
    yield from (f"- {item}" for item in items[:SHOWN])
    if len(items) > SHOWN:
        yield f"- and {len(items) - SHOWN:,} more"
    yield ""
    yield "</details>"


def _finding(finding: FindingChange) -> str:
    name = f"[`{finding.id}`]({finding.link})" if finding.link else f"`{finding.id}`"
    place = f" at {_escaped(finding.place)}" if finding.place else ""
    known = " (known)" if finding.is_known else ""
    first = f"{name} {_escaped(finding.allocator)}: **{_escaped(finding.headline)}**{place}{known}"
    said = (_command(text) if word == AGAIN else _escaped(text) for word, text in details(finding))
    return "<br>".join([first, *(f"{word}: {text}" for (word, _), text in zip(details(finding), said, strict=True))])


def details(finding: FindingChange) -> Sequence[tuple[str, str]]:
    """What there is to say of a change besides its name, each with its word."""
    if finding.word == "changed":
        return [(change.what, f"{change.before} → {change.after}") for change in finding.changes]
    if finding.word != "new":
        return [("why", finding.why)] if finding.why else []
    said = (
        ("what", finding.message),
        ("repair", finding.repair),
        ("cells", ", ".join(finding.cells)),
        (AGAIN, finding.replay),
    )
    return [(word, text) for word, text in said if text]


def _command(text: str) -> str:
    """To be copied: whole, if it is no longer than a comment can take."""
    if len(text) > COMMAND_CHARACTERS:
        return "its token is in the report"
    return f"`{text}`" if re.fullmatch(r"[\w ./:=+,~-]+", text) else _escaped(text)


def _escaped(text: str) -> str:
    text = text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + "…"
    text = "".join(letter if letter.isprintable() else " " for letter in text)
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("@", "@&#8203;")
    return re.sub(r"([\\`*_{}\[\]|#~])", r"\\\1", text)
