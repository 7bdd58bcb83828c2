// SPDX-License-Identifier: Apache-2.0
//! How a server is started.

use rustix::time::{ClockId, clock_gettime};
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

/// Of what the target printed, the end: as much as the front keeps of a rehearsal.
const PRINTED_CHARACTERS: usize = 300;
/// How the runner's own lines begin.
const OF_THE_RUNNER: &str = "runner: error: ";

/// How to start a server.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct ServerOptions {
    pub runner: PathBuf,
    /// What the runner is started under, with its arguments: a tracer that sees all accesses. Empty: nothing.
    pub tracer: Vec<String>,
    pub adapter: PathBuf,
    /// Folder for the base image, on a memory file system if there is one.
    pub scratch: PathBuf,
    pub heap_bytes: u64,
    pub limit_bytes: u64,
    pub slots: u32,
    /// Word for the layout of those slots (`runner --slot-layout`).
    pub slot_layout: String,
    /// Heaps are opened lazily.
    pub is_lazy: bool,
    pub address_hint: u64,
    pub cpu_limit_ms: u64,
    pub wall_limit_ms: u64,
    /// When the time that was asked for is over: a run that goes on for long after it is cut, and says nothing. None: never.
    pub ends: Option<Instant>,
    /// The adapter has hooks: runs need no process of their own.
    pub is_in_process: bool,
    /// The adapter has no hooks, and first parts of the probe need no process of their own all the same.
    pub is_batched: bool,
    /// The probe leaves out the stage `check`.
    pub is_unchecked: bool,
    /// Each life maps the heap at another address than the one before it, at a multiple of so many bytes away; none: at `address_hint`.
    pub relocated_by: Option<u64>,
    /// The adapter is loaded where the tracer had it; else elsewhere. Only of use under the tracer.
    pub is_code_in_place: bool,
    /// The target ends the process when memory is out.
    pub ends_when_full: bool,
    /// Keeps what the target prints. Of a run that says where it dies, only what its last life printed.
    pub printed: Option<PathBuf>,
    /// Chooses the in-process runs that are compared with isolated ones.
    pub seed: u64,
}

impl ServerOptions {
    /// `runner COMMAND` with these options.
    pub fn command(&self, command: &str) -> Command {
        let mut process = match self.tracer.split_first() {
            Some((program, arguments)) => {
                let mut process = Command::new(program);
                process.args(arguments).arg(&self.runner);
                process
            }
            None => Command::new(&self.runner),
        };
        process.arg(command).arg("--adapter").arg(&self.adapter).arg("--folder").arg(&self.scratch);
        process.arg("--slot-layout").arg(&self.slot_layout);
        process.args(self.is_lazy.then_some("--lazy"));
        for (name, value) in [
            ("--heap-bytes", self.heap_bytes),
            ("--limit-bytes", self.limit_bytes),
            ("--slots", u64::from(self.slots)),
            ("--address-hint", self.address_hint),
        ] {
            process.arg(name).arg(value.to_string());
        }
        if self.ends_when_full {
            process.arg("--ends-when-full");
        }
        process
    }

    /// The end on the clock that the runner looks at.
    pub fn ends_at_ms(&self) -> Option<u128> {
        let now = clock_gettime(ClockId::Monotonic);
        let now_ms = now.tv_sec as u128 * 1000 + now.tv_nsec as u128 / 1_000_000;
        self.ends.map(|ends| now_ms + ends.saturating_duration_since(Instant::now()).as_millis())
    }

    /// Where the command's standard error goes: with what the target prints, if that is kept.
    ///
    /// # Errors
    /// When the file cannot be made.
    pub fn errors(&self, command: &mut Command) -> io::Result<Stdio> {
        let Some(path) = &self.printed else { return Ok(Stdio::piped()) };
        command.arg("--verbose");
        Ok(File::create(path)?.into())
    }

    /// What the target printed, on one line, its end; empty: nothing, or it is not kept.
    pub fn what_was_printed(&self) -> String {
        let bytes = self.printed.as_ref().and_then(|path| std::fs::read(path).ok()).unwrap_or_default();
        on_one_line(&String::from_utf8_lossy(&bytes))
    }
}

fn on_one_line(text: &str) -> String {
    let words = |line: &str| {
        let words = line.split(|letter: char| letter.is_whitespace() || letter.is_control());
        words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
    };
    let lines = text.lines().filter(|line| !line.starts_with(OF_THE_RUNNER)).map(words);
    let text = lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" / ");
    match text.char_indices().rev().nth(PRINTED_CHARACTERS - 1) {
        Some((start, _)) if start > 0 => format!("... {}", &text[start..]),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_printed_is_its_end_on_one_line() {
        assert_eq!(on_one_line(""), "");
        assert_eq!(on_one_line("about\tto \n\n\u{1b}fail\n"), "about to / fail");
        assert_eq!(
            on_one_line("one\nrunner: error: ours\nrunner: adapter.c:9: theirs"),
            "one / runner: adapter.c:9: theirs"
        );
        let long = "x".repeat(PRINTED_CHARACTERS);
        assert_eq!(on_one_line(&long), long);
        assert_eq!(on_one_line(&format!("cut{long}")), format!("... {long}"));
    }
}
