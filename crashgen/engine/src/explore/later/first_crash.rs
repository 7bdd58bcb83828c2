// SPDX-License-Identifier: Apache-2.0
//! What a first crash breaks by itself. That is no finding of a second crash, and is not reported again as FL014.
//!
//! Most of it never gets here: a recovery that is broken, or objects that are not as they should be, begin no later generation
//! ([`crate::explore::later`]). But what only the later stages of the probe show of a crash (FL012, FL013), no recovery trace shows. So before
//! something becomes a finding of a later crash, the state that the crash before it left is judged by itself, with as much of the probe as
//! in the first generation.

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
    /// Has the adapter that people use; started with the first question.
    recoverer: Option<Recoverer>,
    /// By image and by what was expected of the heap: whether it breaks a rule.
    broken: FxHashMap<(ImageHash, u64), bool>,
}

impl FirstCrashes {
    /// Whether the crash before a later generation breaks a rule by itself, with what it left in the runs that lead to that state. `prefix`: of
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
            none => none.insert(Recoverer::start(&config.server("plain")?, probe)?),
        };
        let heap = CrashedHeap { image, history: &before.case.history };
        let judgement = Judge { config, twins: before.twins }.judge(recoverer, probe, heap)?;
        Ok(!judgement.violations.is_empty())
    }
}
