// SPDX-License-Identifier: Apache-2.0
//! Where a signal ended a recovery, and where one hung; what the target printed before it ended. The same of a twin.

use crate::base::config::Config;
use crate::base::error::EngineError;
use crate::heap::case::HeapCase;
use crate::recovery::recoverer::Recoverer;
use crashgen::image::CrashImage;
use crashgen::model::{Choice, View};
use crashgen::replay::{Death, Hung, ServerOptions, Touched};
use crashgen::symbols::Symbol;
use oracle::history::OperationIndex;
use serde::Serialize;
use std::path::PathBuf;

/// As it is printed.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs)]
pub struct Died {
    pub at: Symbol,
    /// Who called it, and so on, up to the probe.
    pub callers: Vec<Symbol>,
    /// Which address it touched, in words; empty: the signal is not of one.
    pub touched: String,
    /// It hung, for so long, in words; null: it died.
    pub hung: Option<String>,
}

/// How a life ended that did not come to its end.
#[derive(Clone, Debug, Default)]
pub struct End {
    /// None: where is not known: it called exit, it ended in the probe itself, or the stack was overwritten.
    pub died: Option<Died>,
    /// By the target, in that life; empty: nothing.
    pub printed: String,
}

impl End {
    /// The tail of a message.
    pub fn printed_tail(&self) -> String {
        if self.printed.is_empty() { String::new() } else { format!("; it printed: {}", self.printed) }
    }
}

/// How recovery, or the probe after it, ends on this state.
pub fn end(config: &Config, case: &mut HeapCase, view: &View, state: &[Choice]) -> End {
    end_of(config, case.crash(view, state).image).unwrap_or_default()
}

fn end_of(config: &Config, image: &mut CrashImage) -> Result<End, EngineError> {
    let options = keeping_printed(config, "deaths")?;
    let mut recoverer = Recoverer::start(&options, config.probe())?;
    let death = recoverer.death(image, config.probe())?;
    Ok(End { died: death.map(|death| in_words(config, &death)), printed: options.what_was_printed() })
}

/// How the twin after that operation ends.
pub fn end_of_twin(config: &Config, operation: OperationIndex, is_hung: bool) -> End {
    twin_end(config, operation, is_hung).unwrap_or_default()
}

fn twin_end(config: &Config, operation: OperationIndex, is_hung: bool) -> Result<End, EngineError> {
    let options = keeping_printed(config, "twin-deaths")?;
    let mut command = config.twins_command(&options);
    command.arg("--death-of").arg(operation.to_string());
    let errors = options.errors(&mut command);
    let output = errors.and_then(|errors| command.stderr(errors).output());
    let output = output.map_err(|error| EngineError::Infrastructure(format!("the twin's end: {error}")))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let calls: Vec<(PathBuf, u64)> = text.lines().filter_map(call_of).collect();
    let died = (!calls.is_empty()).then(|| {
        let (at, callers) = config.symbols().of_calls(&calls);
        let hung = is_hung.then(|| "no return within its limit".to_owned());
        Died { at, callers, touched: String::new(), hung }
    });
    Ok(End { died, printed: options.what_was_printed() })
}

/// `call OFFSET MODULE`
fn call_of(line: &str) -> Option<(PathBuf, u64)> {
    let (offset, module) = line.strip_prefix("call ")?.split_once(' ')?;
    Some((PathBuf::from(module), offset.parse().ok()?))
}

fn keeping_printed(config: &Config, purpose: &str) -> Result<ServerOptions, EngineError> {
    let options = config.server(purpose)?;
    Ok(ServerOptions { printed: Some(options.scratch.with_extension("printed")), ..options })
}

fn in_words(config: &Config, death: &Death) -> Died {
    let (mut at, callers) = config.symbols().of_calls(&death.calls);
    if death.hung == Some(Hung::Busy) {
        at.line = 0; // it is somewhere in the function
    }
    let hung = death.hung.map(|hung| match hung {
        Hung::Busy => format!("{} of processor time", seconds(config.limits.cpu_limit_ms)),
        Hung::Asleep => format!("{} asleep", seconds(config.limits.wall_limit_ms.div_ceil(2))),
    });
    Died { at, callers, touched: touched_text(&death.touched), hung }
}

fn seconds(ms: u64) -> String {
    format!("{} s", ms as f64 / 1000.0)
}

fn touched_text(touched: &Touched) -> String {
    let name = |file: &Option<String>| file.clone().unwrap_or_else(|| "a file that recovery made".to_owned());
    let bytes = |count: u64| if count == 1 { "1 byte".to_owned() } else { format!("{count} bytes") };
    match touched {
        Touched::Nothing => String::new(),
        Touched::File(file, offset) => format!("{} + 0x{offset:x}", name(file)),
        Touched::Behind(file, 0) => format!("what lies behind the mapping of {}", name(file)),
        Touched::Behind(file, count) => {
            format!("{} further than the end of the mapping of {}", bytes(*count), name(file))
        }
        Touched::Before(file, count) => format!("{} before the mapping of {}", bytes(*count), name(file)),
        Touched::NearNull(address) => format!("address 0x{address:x}"),
        Touched::Unmapped => "an address where nothing is mapped".to_owned(),
        Touched::NotCanonical => "an address that is none (not canonical)".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_of_a_twin_is_an_offset_in_a_module() {
        assert_eq!(call_of("call 64 /built/a b.so"), Some((PathBuf::from("/built/a b.so"), 64)));
        for line in ["", "call 64", "call x /built/a.so", "64 /built/a.so"] {
            assert_eq!(call_of(line), None, "{line}");
        }
    }

    #[test]
    fn what_was_printed_ends_a_message() {
        let end = |printed: &str| End { died: None, printed: printed.to_owned() };
        assert_eq!((end("").printed_tail(), end("no").printed_tail()), (String::new(), "; it printed: no".to_owned()));
    }

    #[test]
    fn what_was_touched_is_told_in_words() {
        let heap = || Some("heap".to_owned());
        for (touched, text) in [
            (Touched::Nothing, ""),
            (Touched::File(heap(), 0x1040), "heap + 0x1040"),
            (Touched::File(None, 8), "a file that recovery made + 0x8"),
            (Touched::Behind(heap(), 0), "what lies behind the mapping of heap"),
            (Touched::Behind(heap(), 8), "8 bytes further than the end of the mapping of heap"),
            (Touched::Before(heap(), 1), "1 byte before the mapping of heap"),
            (Touched::NearNull(0x18), "address 0x18"),
            (Touched::Unmapped, "an address where nothing is mapped"),
            (Touched::NotCanonical, "an address that is none (not canonical)"),
        ] {
            assert_eq!(touched_text(&touched), text);
        }
    }
}
