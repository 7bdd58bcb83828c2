// SPDX-License-Identifier: Apache-2.0
//! What one crash breaks already is no matter of a second one, and is not told again as FL014.
//!
//! Most of it is left out before: a recovery that is broken, or objects that are not what they should be, begin no later generation
//! ([`crate::generations`]). But what only the later stages of the probe show of a crash (FL012, FL013), no told run shows. So before
//! something is a finding of a later crash, the state that the crash before it left is judged by itself, with as much of the probe as
//! the first generation was.

use crate::config::Config;
use crate::error::EngineError;
use crate::explore::judge_image;
use crate::generations::{Before, Later};
use crate::probes::Probes;
use crashgen::image::{CrashImage, ImageHash};
use crashgen::replay::Probe;
use rustc_hash::FxHashMap;

/// The states that were judged.
#[derive(Default)]
pub struct FirstCrashes {
    /// The server that people's adapter runs in; started when something is asked for the first time.
    probes: Option<Probes>,
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
        before: &Before,
        later: &Later,
        (prefix, probe): (&str, Probe),
    ) -> Result<bool, EngineError> {
        let mut image = CrashImage::of(prefix, before.model, before.view, &before.chosen(later));
        let key = (image.hash(), before.history.state_id());
        if let Some(known) = self.broken.get(&key) {
            return Ok(*known);
        }
        let probes = match &mut self.probes {
            Some(probes) => probes,
            none => none.insert(Probes::start(&config.server("plain")?, probe == Probe::Full)?),
        };
        probes.start_case()?; // each image is made anew, and the server goes from one to the next by what changes
        let judgement = judge_image(config, before.twins, (probes, probe), (&mut image, before.history))?;
        let is_broken = !judgement.violations.is_empty();
        self.broken.insert(key, is_broken);
        Ok(is_broken)
    }
}
