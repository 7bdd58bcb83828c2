// SPDX-License-Identifier: Apache-2.0
//! The referee of the in-process engine: the traced one, which sees every instruction of a recovery, whatever it was built from. It runs
//! some of the images that were run in-process. Where it shows another heap report, or loads that the hooks did not announce, in-process
//! runs of this target are not believed.

use crate::base::error::EngineError;
use crate::recovery::reports::parse;
use crashgen::image::CrashImage;
use crashgen::replay::{Loads, Manner, Probe, ReplayServer, ServerOptions};
use crashgen::trace::UnitKey;
use oracle::Outcome;
use rustc_hash::FxHashSet;
use std::rc::Rc;
use std::time::Instant;

/// A traced server, started when it is first asked.
pub struct Referee {
    options: ServerOptions,
    server: Option<ReplayServer>,
}

impl Referee {
    /// With a server of these options.
    pub fn new(options: ServerOptions) -> Self {
        Self { options, server: None }
    }

    /// Runs the probe on the image. Returns why the in-process run, which had this heap report and these loads of the units that may vary,
    /// is not to be believed. None: it is, or the tracer does not see all of the run either.
    ///
    /// # Errors
    /// When the server does not start, or ended.
    pub fn doubt(
        &mut self,
        image: &CrashImage,
        probe: Probe,
        varying: &Rc<[UnitKey]>,
        (report, loads): (&[u8], &Loads),
    ) -> Result<Option<String>, EngineError> {
        let server = match &mut self.server {
            Some(server) => server,
            none => none.insert(ReplayServer::start(&self.options)?),
        };
        server.follow(image)?;
        server.watch(varying)?;
        let (traced_report, traced) = server.run_recorded(probe, Manner::Afresh)?;
        let is_time_over = self.options.ends.is_some_and(|ends| Instant::now() >= ends);
        if traced.doubt.is_some() || (is_time_over && parse(traced_report)?.outcome == Outcome::Broken) {
            return Ok(None);
        }
        if traced_report != report {
            return Ok(Some("under the tracer recovery has another heap report than in-process".to_owned()));
        }
        let announced: FxHashSet<&UnitKey> = loads.by_target.iter().collect();
        let missed = traced.by_target.iter().find(|unit| !announced.contains(unit));
        Ok(missed.map(|unit| {
            let path = image.files().get(&unit.file).map(|file| file.path.to_string()).unwrap_or_default();
            format!("the tracer sees a load of {path} at {:#x} that no hook announced", unit.number * 8)
        }))
    }
}
