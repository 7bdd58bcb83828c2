// SPDX-License-Identifier: Apache-2.0
//! The oracle's judgement of one crash image, from the heap report of its recovery and the bytes of the image.

use crate::base::config::Config;
use crate::base::error::EngineError;
use crate::recovery::content::ImageContent;
use crate::recovery::probes::Probes;
use crashgen::image::CrashImage;
use crashgen::replay::Probe;
use oracle::{History, Judgement, RuleId, TwinSet, judge};

/// Of the state that the image shows, recovered by this server. That recovery repaired bad content only the full probe of this very
/// image can say.
pub fn judge_image(
    config: &Config,
    twins: Option<&TwinSet>,
    (probes, probe): (&mut Probes, Probe),
    (image, history): (&mut CrashImage, &History),
) -> Result<Judgement, EngineError> {
    let mut probed = probes.probe(image, probe)?;
    loop {
        let content = ImageContent::new(image);
        let judgement = judge(&config.contract, &config.shape(), history, &probed.report, &content, twins);
        if probed.is_own || !judgement.violations.iter().any(|violation| violation.broken() == RuleId::ContentChanged) {
            return Ok(judgement);
        }
        probed = probes.probe_fully(image)?;
    }
}
