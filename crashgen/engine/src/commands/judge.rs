// SPDX-License-Identifier: Apache-2.0
//! `judge`: heaps that a machine left when it ended, judged as heaps of the trace's workload are that power fails under.
//!
//! A machine without a tracer executed the workload and said by markers how far it was. It ended, was started again, and recovered. Each
//! ending is a folder:
//!
//! ```text
//! markers   what the machine said, one line each: `begin INDEX ...`, `return INDEX STATUS ...`; other lines mean nothing here
//! heap/     the heap's files before recovery, as in the case's folder
//! report    what `runner probe --full` said of them (runner/protocol.h)
//! ```

use crate::base::config::Config;
use crate::base::error::{EngineError, bad_input};
use crate::base::output::{Output, Verdict};
use crate::heap::stepping::go_to;
use crate::recovery::content::HeapContent;
use crate::recovery::judging::doubts;
use crate::recovery::reports::parse;
use crate::recovery::twins;
use crashgen::trace::{EventKind, Trace};
use oracle::{HeapShape, TwinSet, judge};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// What is said of one ending.
#[derive(Serialize)]
struct Judged<'a> {
    folder: &'a Path,
    /// The operation that the machine was at last; none: it had not begun any.
    operation: Option<u32>,
    /// It had begun, and had not returned.
    is_pending: bool,
    verdict: &'static str,
    broken: Vec<Broken>,
    unknown: Vec<String>,
}

#[derive(Serialize)]
struct Broken {
    rule: String,
    message: String,
}

/// Says of each ending what the oracle says (`judged`).
///
/// # Errors
/// When a folder lacks something, the machine says what the trace does not know, or the twins cannot be started.
pub fn judge_endings(
    config: &Config,
    trace: &Trace,
    endings: &[PathBuf],
    output: &mut Output,
) -> Result<Verdict, EngineError> {
    let made = twins::make(config, trace, None)?;
    let unknown = made.doubts();
    let mut verdict = if unknown.is_empty() { Verdict::Pass } else { Verdict::Unknown };
    for folder in endings {
        let judged = judge_one(config, trace, folder, made.twins.as_ref())?;
        verdict = match (judged.verdict, verdict) {
            ("fail", _) | (_, Verdict::Fail) => Verdict::Fail,
            ("pass", verdict) => verdict,
            _ => Verdict::Unknown,
        };
        output.say("judged", &judged);
    }
    output.unknown(&unknown);
    output.done(verdict, &BTreeMap::new(), &trace.hash);
    Ok(verdict)
}

fn judge_one<'a>(
    config: &Config,
    trace: &Trace,
    folder: &'a Path,
    twins: Option<&TwinSet>,
) -> Result<Judged<'a>, EngineError> {
    let path = folder.join("markers");
    let text = fs::read_to_string(&path).map_err(|error| bad_input(format!("{}: {error}", path.display())))?;
    let machine = said(&text, trace).map_err(|what| bad_input(format!("{}: {what}", path.display())))?;
    let Said { position, operation, is_pending, mut unknown } = machine;
    let Some(position) = position else {
        return Ok(Judged { folder, operation, is_pending, verdict: "pass", broken: Vec::new(), unknown });
    };
    let (case, _) = go_to(config, trace, position)?;
    let path = folder.join("report");
    let report = parse(&fs::read(&path).map_err(|error| bad_input(format!("{}: {error}", path.display())))?)?;
    let files = folder.join("heap");
    let content = HeapContent::read_by(|file, offset, into| {
        File::open(files.join(file)).and_then(|file| file.read_exact_at(into, offset)).is_ok()
    });
    let shape = HeapShape { is_relocated: false, ..config.shape() };
    let judgement = judge(&config.contract, &shape, &case.history, &report, &content, twins);
    unknown.extend(doubts(&judgement));
    let broken: Vec<Broken> = judgement
        .violations
        .iter()
        .map(|violation| Broken { rule: violation.rule.to_string(), message: violation.message.clone() })
        .collect();
    let verdict = match (broken.is_empty(), unknown.is_empty()) {
        (false, _) => "fail",
        (true, false) => "unknown",
        (true, true) => "pass",
    };
    Ok(Judged { folder, operation, is_pending, verdict, broken, unknown })
}

/// How far a machine was.
#[derive(Debug, Default, PartialEq, Eq)]
struct Said {
    /// Crash position of the trace behind the last marker; none: there was no marker.
    position: Option<u32>,
    operation: Option<u32>,
    is_pending: bool,
    /// Why its heap may not be judged by this trace.
    unknown: Vec<String>,
}

/// Reads the markers. A line that does not end was cut with the machine, and was not said.
fn said(text: &str, trace: &Trace) -> Result<Said, String> {
    let mut said = Said::default();
    let lines = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
    for line in lines.map(str::trim) {
        let mut words = line.split_whitespace();
        let is_begin = match words.next() {
            Some("begin") => true,
            Some("return") => false,
            _ => continue,
        };
        let mut number = || words.next().and_then(|word| word.parse::<u32>().ok());
        let index = number().ok_or_else(|| format!("{line:?}: expected the index of an operation"))?;
        let status = if is_begin { None } else { number() };
        let Some((at, in_trace)) = marker(trace, index, is_begin) else {
            return Err(format!("{line:?}: the trace has no such operation; it is of another workload"));
        };
        if status != in_trace {
            let text = |status: Option<u32>| status.map_or("nothing".to_owned(), |status| format!("status {status}"));
            let (there, here) = (text(status), text(in_trace));
            said.unknown.push(format!("operation {index} answered {there} in the machine, and {here} in the trace"));
        }
        said = Said { position: Some(at + 1), operation: Some(index), is_pending: is_begin, ..said };
    }
    Ok(said)
}

/// Number of an operation's begin or return in the trace, and the status of a return.
fn marker(trace: &Trace, operation: u32, is_begin: bool) -> Option<(u32, Option<u32>)> {
    let found = |(at, kind): (usize, &EventKind)| match *kind {
        EventKind::OperationBegin { index, .. } if is_begin && index == operation => Some((at as u32, None)),
        EventKind::OperationReturn { index, status, .. } if !is_begin && index == operation => {
            Some((at as u32, Some(status)))
        }
        _ => None,
    };
    trace.events.iter().map(|event| &event.kind).enumerate().find_map(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crashgen::trace::{Event, FenceKind, OperationKind, SiteId, ThreadId};

    fn trace() -> Trace {
        let create =
            |index| EventKind::OperationBegin { kind: OperationKind::Create, index, slot: 0, bytes: 0, object: 0 };
        let kinds = [
            create(3),
            EventKind::Fence { kind: FenceKind::Sfence },
            EventKind::OperationReturn { kind: OperationKind::Create, index: 3, status: 0 },
        ];
        let events = kinds.map(|kind| Event { kind, thread: ThreadId { process: 0, thread: 0 }, site: SiteId(0) });
        Trace { events: events.into(), ..Trace::default() }
    }

    #[test]
    fn the_last_marker_that_was_said_whole_tells_how_far_the_machine_was() {
        let at = |text| said(text, &trace()).map(|said| (said.position, said.operation, said.is_pending));
        assert_eq!(at(""), Ok((None, None, false)));
        assert_eq!(at("mapped 1 0\nbegin 3 create\n"), Ok((Some(1), Some(3), true)));
        assert_eq!(at("begin 3 create\nreturn 3 0"), Ok((Some(1), Some(3), true)));
        assert_eq!(at("begin 3 create\nreturn 3 0\nmap"), Ok((Some(3), Some(3), false)));
    }

    #[test]
    fn what_the_trace_does_not_know_is_refused_and_what_it_saw_otherwise_is_unknown() {
        let refusal = said("begin 4 free\n", &trace()).expect_err("refused");
        assert!(refusal.contains("the trace has no such operation"), "{refusal}");
        assert!(said("begin\n", &trace()).expect_err("refused").contains("expected the index"));
        let other = said("begin 3\nreturn 3 1\n", &trace()).expect("read");
        assert_eq!(other.unknown, ["operation 3 answered status 1 in the machine, and status 0 in the trace"]);
    }
}
