# SPDX-License-Identifier: Apache-2.0
"""What an exploration says."""

from __future__ import annotations

from dataclasses import dataclass, field

from faultline.pipeline.events import Certificate, Event, Finding, TraceRules, Verdict


@dataclass
class Answer:
    certificate: Certificate = field(default_factory=lambda: Certificate(complete=False))
    rules: set[str] = field(default_factory=set)
    findings: list[Finding] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)
    warnings: set[tuple[str, str]] = field(default_factory=set)
    """Trace rule and function."""
    hung: set[str] = field(default_factory=set)
    """Function and how long, of recoveries that hang."""
    is_torn: bool = False
    """A finding names a torn store."""
    verdict: Verdict = "unknown"

    def hear(self, event: Event) -> None:
        if isinstance(event, Finding):
            self.rules.add(event.rule)
            self.findings.append(event)
            self.messages.append(event.message)
            self.is_torn |= event.lost is not None and event.lost.is_torn
            if event.died is not None and event.died.hung is not None:
                self.hung.add(f"{event.died.at.function}: {event.died.hung}")
        elif isinstance(event, TraceRules):
            self.warnings.update((warning.rule, warning.site.function) for warning in event.warnings)
        elif isinstance(event, Certificate):
            self.certificate = event
