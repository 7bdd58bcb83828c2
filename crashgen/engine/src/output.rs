// SPDX-License-Identifier: Apache-2.0
//! What the engine says on stdout: one JSON object a line, the kind under `event`.

use crate::certificate::Certificate;
use crate::finding::Finding;
use crate::outcomes::Settled;
use crate::parts::{Message, Part};
use crate::shrink::Shrunk;
use crate::trace_rules::TraceRules;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Write;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

/// Time between two progress lines.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);

/// The end of an exploration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// No finding, nothing unknown.
    Pass,
    /// At least one finding.
    Fail,
    /// No finding, but not everything is known.
    Unknown,
}

impl Verdict {
    /// 0 pass, 1 finding, 3 unknown: what `faultline` ends with, too.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Pass => 0,
            Self::Fail => 1,
            Self::Unknown => 3,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::Unknown => "unknown",
        }
    }
}

/// Writes events.
pub struct Output {
    last_progress: Option<Instant>,
    /// A worker's, and its part: they go there instead.
    to: Option<(Sender<Message>, usize)>,
    /// That the worker told of: positions and recoveries.
    told: (u32, u64),
}

impl Output {
    /// To stdout.
    pub fn new() -> Self {
        Self { last_progress: None, to: None, told: (0, 0) }
    }

    /// Of a worker that explores a part.
    pub fn of_part(sender: &Sender<Message>, part: &Part) -> Self {
        Self { to: Some((sender.clone(), part.number)), told: (part.first - 1, 0), ..Self::new() }
    }

    /// How far it is; at most five times a second.
    pub fn progress(&mut self, position: u32, positions: usize, recoveries: u64, findings: usize) {
        if self.last_progress.is_some_and(|last| last.elapsed() < PROGRESS_INTERVAL) {
            return;
        }
        self.last_progress = Some(Instant::now());
        if let Some((sender, _)) = &self.to {
            let before = std::mem::replace(&mut self.told, (position, recoveries));
            let _ = sender.send(Message::Progress(position - before.0, recoveries - before.1));
            return;
        }
        print(
            &json!({"event": "progress", "position": position, "positions": positions, "recoveries": recoveries, "findings": findings}),
        );
    }

    /// What the trace rules say.
    pub fn trace_rules(&mut self, found: &TraceRules) {
        print(&event("trace_rules", found));
    }

    /// A new finding.
    pub fn finding(&mut self, finding: &Finding) {
        if let Some((sender, part)) = &self.to {
            let _ = sender.send(Message::Finding(*part, Box::new(finding.clone())));
            return;
        }
        print(&event("finding", finding));
    }

    /// The certificate.
    pub fn certificate(&mut self, certificate: &Certificate) {
        print(&event("certificate", certificate));
    }

    /// How small the crash state is.
    pub fn shrunk(&mut self, shrunk: &Shrunk) {
        print(&event("shrunk", shrunk));
    }

    /// How many outcomes there were, before the last line.
    pub fn outcomes(&mut self, settled: &Settled) {
        print(&event("outcomes", settled));
    }

    /// The last line.
    pub fn done(&mut self, verdict: Verdict, findings: &[Finding], trace_hash: &str) {
        let seen: BTreeMap<&str, u64> = findings.iter().map(|finding| (finding.id.as_str(), finding.seen)).collect();
        print(
            &json!({"event": "done", "verdict": verdict.name(), "findings": findings.len(), "seen": seen, "trace_hash": trace_hash}),
        );
    }
}

fn event(name: &str, body: &impl Serialize) -> Value {
    let mut value = serde_json::to_value(body).expect("plain data");
    value["event"] = Value::from(name);
    value
}

/// One line of JSON. A reader that went away (Ctrl-C of the front) ends the engine quietly.
pub fn print(value: &Value) {
    let mut stdout = std::io::stdout().lock();
    if writeln!(stdout, "{value}").and_then(|()| stdout.flush()).is_err() {
        std::process::exit(3);
    }
}
