// SPDX-License-Identifier: Apache-2.0
//! Words for messages. Nothing is told apart by them.

use crate::fact::EXECUTED_STEP;
use crate::report::{EMPTIED, Life, Message, REOPENED, SECOND_RECOVERY, SectionKind, USE, WITHOUT_LOSS};

/// The life's text about this section as the tail of a message, one line.
pub(super) fn message_about(life: &Life, kind: SectionKind) -> String {
    tail(life.messages.iter().rfind(|message| message.about == Some(kind)))
}

pub(super) fn tail(message: Option<&Message>) -> String {
    let text = message.map(|message| message.text.split_whitespace().collect::<Vec<_>>().join(" "));
    text.filter(|text| !text.is_empty()).map(|text| format!(": {text}")).unwrap_or_default()
}

pub(crate) fn recovery_phrase(life: u16) -> &'static str {
    match life {
        0 => "recovery",
        1 => "recovery (life 1)",
        SECOND_RECOVERY => "the second recovery (life 2)",
        USE => "recovery of a fresh copy (life 3)",
        REOPENED => "the open after a clean close (life 4)",
        EMPTIED => "recovery of another fresh copy (life 5)",
        _ => "the open of the emptied heap (life 6)",
    }
}

/// As [`recovery_phrase`], of a twin, from which nothing recovers.
pub(super) fn twin_phrase(life: u16) -> &'static str {
    match life {
        EXECUTED_STEP => "the operation",
        USE => "the open of the closed heap (life 3)",
        REOPENED => "the open after a clean close (life 4)",
        EMPTIED => "the open of another copy (life 5)",
        _ => "the open of the emptied heap (life 6)",
    }
}

pub(super) fn stage_phrase(life: u16, stage: Option<SectionKind>) -> String {
    stage_of(life, recovery_phrase(life), stage)
}

/// As [`stage_phrase`], with these words for the life's recovery.
pub(super) fn stage_of(life: u16, recovery: &str, stage: Option<SectionKind>) -> String {
    let stage = match stage {
        None | Some(SectionKind::Open) => return recovery.to_owned(),
        Some(SectionKind::Recreate) => return "create after a create that power cut short".to_owned(),
        Some(SectionKind::Files | SectionKind::Slots) => "reading the slots",
        Some(SectionKind::Objects) => "reading the fields",
        Some(SectionKind::Walk | SectionKind::Unwalked) => "walk",
        Some(SectionKind::Retained) => "asking what words point to",
        Some(SectionKind::Check) => "check",
        Some(SectionKind::Contents) => "reading the contents",
        Some(SectionKind::Drain) if life == REOPENED => return "the long use (life 4)".to_owned(),
        Some(SectionKind::Drain) if life == WITHOUT_LOSS => "an allocation, before the heap is settled,",
        Some(SectionKind::Drain) => "the drain",
        Some(SectionKind::FreeAll) if life == WITHOUT_LOSS => "a free, before the heap is settled,",
        Some(SectionKind::FreeAll) => "the freeing of all",
        Some(SectionKind::Maximal) => "the maximal allocation",
        Some(SectionKind::Close) => "close",
        Some(SectionKind::Message) => "the probe",
        Some(SectionKind::Settle) => "settling the heap",
    };
    format!("{stage} after {recovery}")
}

/// `1 byte`, `200 bytes`.
pub(super) fn bytes_of(bytes: u64) -> String {
    format!("{bytes} byte{}", if bytes == 1 { "" } else { "s" })
}

pub(super) fn signal_name(signal: u32) -> &'static str {
    match signal {
        4 => " (SIGILL)",
        5 => " (SIGTRAP)",
        6 => " (SIGABRT)",
        7 => " (SIGBUS)",
        8 => " (SIGFPE)",
        9 => " (SIGKILL)",
        11 => " (SIGSEGV)",
        31 => " (SIGSYS)",
        _ => "",
    }
}
