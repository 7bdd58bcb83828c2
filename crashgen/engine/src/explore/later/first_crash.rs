// SPDX-License-Identifier: Apache-2.0
//! What one crash breaks already is no matter of a second one, and is not told again as FL014.
//!
//! Most of it is left out before: a recovery that is broken, or objects that are not what they should be, begin no later generation
//! ([`crate::explore::later`]). But what only the later stages of the probe show of a crash (FL012, FL013), no told run shows. So before
//! something is a finding of a later crash, the state that the crash before it left is judged by itself, with as much of the probe as
//! the first generation was.

use crate::base::config::Config;
use crate::base::error::EngineError;
use crate::heap::case::CrashedHeap;
use crate::heap::crashes::{CrashBefore, LaterState};
use crate::recovery::judging::Judge;
use crate::recovery::recoverer::Recoverer;
use crashgen::image::{CrashImage, ImageHash};
use crashgen::replay::Probe;
use rustc_hash::FxHashMap;

/// The states that were judged.
#[derive(Default)]
pub struct FirstCrashes {
    /// The server that people's adapter runs in; started when something is asked for the first time.
    recoverer: Option<Recoverer>,
    /// By image and what was expected of the heap.
    broken: FxHashMap<(ImageHash, u64), bool>,
}

impl FirstCrashes {
    /// Whether the crash before a later generation breaks a rule by itself, where that state of the generation came of it. `prefix`: of
    /// the case's folder.
    ///
    /// # Errors
    /// When the replay server does not start, or ends.
    pub fn is_broken(
        &mut self,
        config: &Config,
        before: &CrashBefore,
        later: &LaterState,
        (prefix, probe): (&str, Probe),
    ) -> Result<bool, EngineError> {
        let chosen = before.left_by(later);
        if let Some(known) = before.broken.borrow().get(&chosen) {
            return Ok(*known);
        }
        let mut image = CrashImage::of(prefix, &before.case.model, before.view, &chosen);
        let key = (image.hash(), before.case.history.state_id());
        let is_broken = match self.broken.get(&key) {
            Some(known) => *known,
            None => {
                let is_broken = self.judge(config, before, &mut image, probe)?;
                self.broken.insert(key, is_broken);
                is_broken
            }
        };
        before.broken.borrow_mut().insert(chosen, is_broken);
        Ok(is_broken)
    }

    fn judge(
        &mut self,
        config: &Config,
        before: &CrashBefore,
        image: &mut CrashImage,
        probe: Probe,
    ) -> Result<bool, EngineError> {
        let recoverer = match &mut self.recoverer {
            Some(recoverer) => recoverer,
            none => none.insert(Recoverer::start(&config.server("plain")?, probe == Probe::Full)?),
        };
        let heap = CrashedHeap { image, history: &before.case.history };
        let judgement = Judge { config, twins: before.twins }.judge(recoverer, probe, heap)?;
        Ok(!judgement.violations.is_empty())
    }
}
