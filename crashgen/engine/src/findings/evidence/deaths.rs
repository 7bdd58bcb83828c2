// SPDX-License-Identifier: Apache-2.0
//! Where a signal ended a recovery, and where one hung.

use crate::base::config::Config;
use crate::base::error::EngineError;
use crate::heap::case::HeapCase;
use crate::recovery::recoverer::Recoverer;
use crashgen::image::CrashImage;
use crashgen::model::{Choice, View};
use crashgen::replay::{Death, Hung, Probe, Touched};
use crashgen::symbols::Symbol;
use serde::Serialize;

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

/// Where recovery, or the probe after it, dies or hangs on this state. None: it ends, or where is not known: in the probe itself, or after
/// the stack was overwritten.
pub fn place(config: &Config, case: &mut HeapCase, view: &View, state: &[Choice]) -> Option<Died> {
    let death = death_of(config, case.crash(view, state).image).unwrap_or_default();
    death.map(|death| in_words(config, &death))
}

fn death_of(config: &Config, image: &mut CrashImage) -> Result<Option<Death>, EngineError> {
    let mut recoverer = Recoverer::start(&config.server("deaths")?, config.is_full())?;
    recoverer.death(image, if config.is_full() { Probe::Full } else { Probe::First })
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
