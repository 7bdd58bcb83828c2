// SPDX-License-Identifier: Apache-2.0
//! What the engine says on stdout: one JSON object a line, the kind under `event`. It knows no event but the two that every command
//! has, `progress` and `done`; whoever has something to say names it and gives its body.

use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Write;
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
    /// No finding and nothing unknown, but a limit ended the exploration, or left states out.
    Incomplete,
}

impl Verdict {
    /// 0 pass, 1 finding, 3 unknown or incomplete: what `faultline` ends with, too.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Pass => 0,
            Self::Fail => 1,
            Self::Unknown | Self::Incomplete => 3,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::Unknown => "unknown",
            Self::Incomplete => "incomplete",
        }
    }
}

/// Lets something through five times a second.
#[derive(Default)]
pub struct Pace {
    last: Option<Instant>,
}

impl Pace {
    /// Whether the last time it said yes is long enough ago.
    pub fn is_due(&mut self) -> bool {
        if self.last.is_some_and(|last| last.elapsed() < PROGRESS_INTERVAL) {
            return false;
        }
        self.last = Some(Instant::now());
        true
    }
}

/// Writes events to stdout.
#[derive(Default)]
pub struct Output {
    pace: Pace,
}

impl Output {
    /// Says something: one line, `body` with the kind under `event`.
    pub fn say(&mut self, event: &str, body: &impl Serialize) {
        let mut value = serde_json::to_value(body).expect("plain data");
        value["event"] = Value::from(event);
        print(&value);
    }

    /// Why the verdict may be none that is sure; nothing where there is no reason.
    pub fn unknown(&mut self, reasons: &[String]) {
        if !reasons.is_empty() {
            self.say("unknown", &json!({ "reasons": reasons }));
        }
    }

    /// How far it is; at most five times a second.
    pub fn progress(&mut self, position: u32, positions: usize, recoveries: u64, findings: usize) {
        if self.pace.is_due() {
            print(
                &json!({"event": "progress", "position": position, "positions": positions, "recoveries": recoveries, "findings": findings}),
            );
        }
    }

    /// The last line. `seen`: how often each finding was seen, by its id.
    pub fn done(&mut self, verdict: Verdict, seen: &BTreeMap<&str, u64>, trace_hash: &str) {
        print(
            &json!({"event": "done", "verdict": verdict.name(), "findings": seen.len(), "seen": seen, "trace_hash": trace_hash}),
        );
    }
}

/// One line of JSON. A reader that went away (Ctrl-C of the front) ends the engine quietly.
pub fn print(value: &Value) {
    let mut stdout = std::io::stdout().lock();
    if writeln!(stdout, "{value}").and_then(|()| stdout.flush()).is_err() {
        std::process::exit(3);
    }
}
