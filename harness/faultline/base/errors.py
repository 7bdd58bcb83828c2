# SPDX-License-Identifier: Apache-2.0
"""Errors that a person can act on: one line, a hint, an exit code. Anything else that escapes is a bug of this program."""

from __future__ import annotations

EXIT_OK = 0
EXIT_FINDINGS = 1
EXIT_BAD_INPUT = 2
EXIT_UNKNOWN = 3
"""Unknown verdicts and infrastructure that does not work share one code (README.md has the table)."""


class FaultlineError(Exception):
    """message: what is wrong (which file, which value, what was expected); hint: what to do next."""

    exit_code = EXIT_UNKNOWN

    def __init__(self, message: str, hint: str | None = None) -> None:
        message = one_line(message)
        super().__init__(message)
        self.message = message
        self.hint = None if hint is None else one_line(hint.replace("\n", " "))


def one_line(text: str) -> str:
    """What bad input holds is quoted in messages: its line ends and control characters are escaped."""
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)


class BadInputError(FaultlineError):
    """What the user gave cannot be used: exit code 2."""

    exit_code = EXIT_BAD_INPUT


class InfrastructureError(FaultlineError):
    """A tool, target or folder does not work: exit code 3."""


class InterruptedCampaignError(InfrastructureError):
    """Ctrl-C: what was found so far is in the results."""
