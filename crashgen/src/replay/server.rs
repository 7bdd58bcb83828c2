// SPDX-License-Identifier: Apache-2.0
//! The runner's server, and the version of which [`CrashImage`] it has.

use super::counts::{Engines, parse_counts};
use super::death::{self, Death};
use super::error::ReplayError;
use super::loads::{self, Loads};
use super::options::ServerOptions;
use super::protocol::{self, Arguments};
use super::recovery_trace::{self, RecoveryTrace};
use super::{Manner, Probe};
use crate::cpu_affinity;
use crate::image::{CrashImage, ImageFile, ImageVersion, Trouble, TroubleKind};
use crate::model::LineContent;
use crate::trace::{FileId, LINE_BYTES, LineKey, OS_PAGE_BYTES, UnitKey};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::rc::Rc;
use std::sync::Arc;

/// Largest report the server may send, bytes: its arena's size with room.
const REPORT_LIMIT_BYTES: u32 = 256 << 20;
/// Sets of varying units whose numbers are remembered: few searches take turns.
const MOST_WATCHES: usize = 8;

/// How the reports of recorded runs come.
enum Reports {
    /// In a file of the server's: read from there, a report is copied once and fills no pipe.
    Apart { file: File, path: String, last: Vec<u8> },
    /// With the other answers.
    Sent(Vec<u8>),
}

/// A running fork server and what was sent to it so far.
pub struct ReplayServer {
    process: Child,
    input: Option<BufWriter<ChildStdin>>,
    output: BufReader<ChildStdout>,
    /// What its base image is; none: it is empty.
    version: Option<ImageVersion>,
    files: BTreeMap<FileId, ImageFile>,
    folders: BTreeSet<Arc<str>>,
    trouble: Option<Trouble>,
    numbers: BTreeMap<FileId, u32>,
    by_number: FxHashMap<u32, FileId>,
    free_numbers: Vec<u32>,
    /// Where reports of recorded runs lie; none: nobody asked yet.
    reports: Option<Reports>,
    /// The sets of varying units that were sent last for the files it has, each with its number. The last one is in force.
    watches: Vec<(Rc<[UnitKey]>, u64)>,
    /// Numbers that were given to sets.
    watch_count: u64,
    is_in_process: bool,
    is_batched: bool,
    is_traced: bool,
    seed: u32,
    /// Paths of the modules that sites name; the adapter's is the first.
    modules: Vec<Arc<Path>>,
    /// Number of the processors that it was last sent ([`cpu_affinity::changed_since`]).
    affinity: u64,
}

/// The command that says it, how many bytes it is of, and its payload. Without bytes and payload there is none any more.
fn told(kind: &TroubleKind) -> (u32, u64, &[u8]) {
    match kind {
        TroubleKind::Poison => (protocol::COMMAND_POISON, OS_PAGE_BYTES, &[]),
        TroubleKind::StrayStore(bytes) => (protocol::COMMAND_STRAY, 0, bytes),
    }
}

impl ReplayServer {
    /// Starts it with an empty image.
    ///
    /// # Errors
    /// When the runner cannot be started.
    pub fn start(options: &ServerOptions) -> Result<Self, ReplayError> {
        let mut command = options.command("serve");
        command.arg("--cpu-limit-ms").arg(options.cpu_limit_ms.to_string());
        command.arg("--wall-limit-ms").arg(options.wall_limit_ms.to_string());
        if let Some(ends) = options.ends_at_ms() {
            command.arg("--ends-at-ms").arg(ends.to_string());
        }
        command.args(options.is_unchecked.then_some("--no-check"));
        command.args(options.relocated_by.map(|multiple| format!("--relocate={multiple}")));
        command.args(options.is_code_in_place.then_some("--code-in-place"));
        let failed = |source| ReplayError::Start { runner: options.runner.clone(), source };
        let errors = options.errors(&mut command).map_err(failed)?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors);
        let mut process = command.spawn().map_err(failed)?;
        let input = BufWriter::with_capacity(1 << 16, process.stdin.take().expect("piped"));
        let output = BufReader::with_capacity(1 << 16, process.stdout.take().expect("piped"));
        Ok(Self {
            process,
            input: Some(input),
            output,
            version: None,
            files: BTreeMap::new(),
            folders: BTreeSet::new(),
            trouble: None,
            numbers: BTreeMap::new(),
            by_number: FxHashMap::default(),
            free_numbers: Vec::new(),
            reports: None,
            watches: Vec::new(),
            watch_count: 0,
            is_in_process: options.is_in_process,
            is_batched: options.is_batched,
            is_traced: !options.tracer.is_empty(),
            modules: vec![options.adapter.as_path().into()],
            seed: options.seed as u32,
            affinity: 0,
        })
    }

    /// Makes the server's image that of `image`, whichever image it had before.
    ///
    /// # Errors
    /// When the server ended.
    pub fn follow(&mut self, image: &CrashImage) -> Result<(), ReplayError> {
        if !self.version.is_some_and(|version| image.has(version)) {
            self.follow_files(&CrashImage::new(""))?;
        }
        let new_files = match self.files == *image.files() && self.folders == *image.folders() {
            true => BTreeSet::new(),
            false => self.follow_files(image)?,
        };
        let version = image.version();
        let known = self.version.filter(|known| image.has(*known)).unwrap_or(version);
        let dirty = image.changed_since(known, &new_files);
        self.version = Some(version);
        let mut rest = dirty.as_slice();
        while let Some((first, _)) = rest.first() {
            let adjacent = |at: usize| rest[at].0 == LineKey { file: first.file, number: first.number + at as u64 };
            let count = (1..rest.len()).find(|at| !adjacent(*at)).unwrap_or(rest.len());
            self.write_lines(&rest[..count])?;
            rest = &rest[count..];
        }
        self.follow_trouble(image.trouble())
    }

    /// A file that is not there has none.
    fn follow_trouble(&mut self, trouble: Option<Trouble>) -> Result<(), ReplayError> {
        if let Some(before) = self.trouble.take() {
            let (command, ..) = told(&before.kind);
            self.change(command, 0, 0, 0, &[])?;
        }
        let there = trouble.and_then(|trouble| Some((*self.numbers.get(&trouble.file)?, trouble)));
        if let Some((number, trouble)) = there {
            let (command, bytes, payload) = told(&trouble.kind);
            self.change(command, number, trouble.offset, bytes, payload)?;
            self.trouble = Some(trouble);
        }
        Ok(())
    }

    /// Returns the files that the server did not have before.
    fn follow_files(&mut self, image: &CrashImage) -> Result<BTreeSet<FileId>, ReplayError> {
        let mut new_files = BTreeSet::new();
        self.watches.clear(); // they named files by the server's numbers
        for folder in image.folders().difference(&self.folders.clone()) {
            self.send(protocol::COMMAND_MKDIR, Arguments::None, folder.as_bytes())?;
        }
        for (file, known) in std::mem::take(&mut self.files) {
            if !image.files().contains_key(&file) {
                let number = self.numbers.remove(&file).expect("known to the server");
                self.change(protocol::COMMAND_REMOVE, number, 0, 0, &[])?;
                self.free_numbers.push(number);
            } else if image.files()[&file].path != known.path {
                // Names may move in a circle: all that change are out of the way before one gets its new name.
                let number = self.numbers[&file];
                self.change(protocol::COMMAND_RENAME, number, 0, 0, format!(".moving-{number}").as_bytes())?;
            }
        }
        for (file, state) in image.files() {
            match self.numbers.get(file).copied() {
                Some(number) => {
                    self.change(protocol::COMMAND_RENAME, number, 0, 0, state.path.as_bytes())?;
                    self.change(protocol::COMMAND_RESIZE, number, 0, state.bytes, &[])?;
                }
                None => {
                    let number = self.free_numbers.pop().unwrap_or(self.numbers.len() as u32);
                    self.numbers.insert(*file, number);
                    new_files.insert(*file);
                    self.change(protocol::COMMAND_CREATE, number, 0, state.bytes, state.path.as_bytes())?;
                }
            }
        }
        for folder in self.folders.clone().iter().rev().filter(|folder| !image.folders().contains(*folder)) {
            self.send(protocol::COMMAND_RMDIR, Arguments::None, folder.as_bytes())?;
        }
        self.files = image.files().clone();
        self.folders = image.folders().clone();
        self.by_number = self.numbers.iter().map(|(file, number)| (*number, *file)).collect();
        Ok(new_files)
    }

    fn write_lines(&mut self, lines: &[(LineKey, LineContent)]) -> Result<(), ReplayError> {
        let first = lines[0].0;
        let (Some(file), Some(number)) = (self.files.get(&first.file), self.numbers.get(&first.file).copied()) else {
            return Ok(()); // unlinked: no crash can show it
        };
        let offset = first.number * LINE_BYTES;
        let inside = file.bytes.saturating_sub(offset).min(lines.len() as u64 * LINE_BYTES);
        if inside == 0 {
            return Ok(());
        }
        let bytes: Vec<u8> = lines.iter().flat_map(|(_, content)| *content).take(inside as usize).collect();
        self.change(protocol::COMMAND_WRITE, number, offset, inside, &bytes)
    }

    /// Runs the probe on the image as it is, in processes of its own, and returns the heap report's bytes.
    ///
    /// # Errors
    /// When the server ended or answers nonsense.
    pub fn run(&mut self, probe: Probe) -> Result<Vec<u8>, ReplayError> {
        self.send_run(probe as u32, 0, self.seed, 0)?;
        self.answer()
    }

    /// The same; returns where it dies of a signal. None: it does not, or the place is not known.
    ///
    /// # Errors
    /// When the server ended or answers nonsense.
    pub fn run_to_death(&mut self, probe: Probe) -> Result<Option<Death>, ReplayError> {
        self.send_run(probe as u32, protocol::RUN_DEATH, self.seed, 0)?;
        self.answer()?;
        let answer = self.answer()?;
        let name = |number: u32| Some(self.files[self.by_number.get(&number)?].path.to_string());
        death::parse(&answer, name).ok_or(ReplayError::Death)
    }

    /// Whether first parts of the probe may be run in one process with others.
    pub fn is_batched(&self) -> bool {
        self.is_batched
    }

    /// As [`Self::run`], perhaps in one process for many runs.
    ///
    /// # Errors
    /// When the server ended or answers nonsense.
    pub fn run_in_batch(&mut self, probe: Probe) -> Result<Vec<u8>, ReplayError> {
        if !self.is_batched || probe != Probe::First {
            return self.run(probe);
        }
        self.send_run(probe as u32, protocol::RUN_IN_PROCESS, self.seed, 0)?;
        self.answer()
    }

    fn send_run(&mut self, probe: u32, flags: u32, seed: u32, generation: u32) -> Result<(), ReplayError> {
        if let Some((number, processors)) = cpu_affinity::changed_since(self.affinity) {
            self.send(protocol::COMMAND_AFFINITY, Arguments::None, &processors)?;
            self.affinity = number;
        }
        self.send(protocol::COMMAND_RUN, Arguments::Run { probe, flags, seed, generation }, &[])
    }

    /// From now on recorded runs list which of these units they load; until the next call, or until files come, go or change their size.
    /// The units are in order. Units of files that the server does not have are left out. Passing the same `Rc` again costs nothing; while
    /// one is in use, its images must agree in all other units.
    ///
    /// # Errors
    /// When the server ended.
    pub fn watch(&mut self, varying: &Rc<[UnitKey]>) -> Result<(), ReplayError> {
        let is_it = |(known, _): &(Rc<[UnitKey]>, u64)| Rc::ptr_eq(known, varying);
        if self.watches.last().is_some_and(is_it) {
            return Ok(());
        }
        let mut payload = Vec::new();
        let is_next = |one: &UnitKey, next: &UnitKey| one.file == next.file && one.number + 1 == next.number;
        for range in varying.chunk_by(is_next) {
            let Some(number) = self.numbers.get(&range[0].file) else { continue };
            payload.extend(u64::from(*number).to_le_bytes());
            payload.extend(range[0].number.to_le_bytes());
            payload.extend((range.len() as u64).to_le_bytes());
        }
        let watch = match self.watches.iter().position(is_it) {
            Some(known) => self.watches.remove(known),
            None => {
                self.watch_count += 1;
                (varying.clone(), self.watch_count)
            }
        };
        self.send(protocol::COMMAND_WATCH, Arguments::Watch(watch.1), &payload)?;
        if self.watches.len() == MOST_WATCHES {
            self.watches.remove(0);
        }
        self.watches.push(watch);
        Ok(())
    }

    /// As [`Self::run`], with what the run loaded of the varying units.
    ///
    /// # Errors
    /// When the server ended or answers nonsense.
    pub fn run_recorded(&mut self, probe: Probe, manner: Manner) -> Result<(&[u8], Loads), ReplayError> {
        let more = match (manner, self.is_in_process) {
            (Manner::Afresh, true) => protocol::RUN_IN_PROCESS | protocol::RUN_AFRESH,
            (Manner::Compared, true) => protocol::RUN_IN_PROCESS | protocol::RUN_AFRESH | protocol::RUN_COMPARED,
            (Manner::Fast, true) => protocol::RUN_IN_PROCESS,
            (_, false) => 0,
        };
        let mut reports = self.reports.take().map_or_else(|| self.find_reports(), Ok)?;
        let apart = if matches!(reports, Reports::Apart { .. }) { protocol::RUN_REPORT_APART } else { 0 };
        self.send_run(probe as u32, protocol::RUN_LOADS | more | apart, self.seed, 0)?;
        match &mut reports {
            Reports::Sent(last) => *last = self.answer()?,
            Reports::Apart { file, path, last } => {
                last.resize(self.answer_bytes()?, 0);
                let read = file.read_exact_at(last, 0);
                read.map_err(|source| ReplayError::ReportFile { path: path.clone(), source })?;
            }
        }
        let answer = self.answer()?;
        let loads = loads::parse(&answer, &self.by_number, self.is_traced).ok_or(ReplayError::Loads)?;
        let (Reports::Apart { last, .. } | Reports::Sent(last)) = self.reports.insert(reports);
        Ok((last, loads))
    }

    fn find_reports(&mut self) -> Result<Reports, ReplayError> {
        self.send(protocol::COMMAND_REPORT, Arguments::None, &[])?;
        let path = String::from_utf8_lossy(&self.answer()?).into_owned();
        if path.is_empty() {
            return Ok(Reports::Sent(Vec::new()));
        }
        // A system that hides processes from each other hides the file: reports are sent then.
        let apart = |file| Reports::Apart { file, path: path.clone(), last: Vec::new() };
        Ok(File::open(&path).map_or_else(|_| Reports::Sent(Vec::new()), apart))
    }

    /// Path of a module that a site names.
    ///
    /// # Errors
    /// When the server ended, or does not know it.
    pub fn module(&mut self, number: u32) -> Result<Arc<Path>, ReplayError> {
        if number as usize >= self.modules.len() {
            self.send(protocol::COMMAND_MODULES, Arguments::None, &[])?;
            let answer = self.answer()?;
            let paths = answer.split(|byte| *byte == 0).skip(1).map(|path| Path::new(OsStr::from_bytes(path)).into());
            self.modules.truncate(1);
            self.modules.extend(paths);
        }
        self.modules.get(number as usize).cloned().ok_or(ReplayError::Modules(number))
    }

    /// Whether recorded runs may be done in-process.
    pub fn is_in_process(&self) -> bool {
        self.is_in_process
    }

    /// Runs recovery of generation `generation` (from 1), and its follow-up if that is wanted: the heap report, what was loaded, and the
    /// events as [`Self::parse_recovery_trace`] takes them.
    ///
    /// # Errors
    /// When the server ended or answers nonsense.
    pub fn run_traced(
        &mut self,
        generation: u32,
        has_follow_up: bool,
    ) -> Result<(Vec<u8>, Loads, Vec<u8>), ReplayError> {
        let probe = if has_follow_up { protocol::PROBE_GENERATION } else { protocol::PROBE_RECOVERY };
        self.send_run(probe, protocol::RUN_LOADS, self.seed, generation)?;
        let report = self.answer()?;
        let answer = self.answer()?;
        let loads = loads::parse(&answer, &self.by_number, self.is_traced).ok_or(ReplayError::Loads)?;
        Ok((report, loads, self.answer()?))
    }

    /// The events of a traced run; the server's files must still be those of that run. `first_new`: identity of the first file that the run
    /// makes; `prefix`: of the case's folder.
    ///
    /// # Errors
    /// When they are of another version.
    pub fn parse_recovery_trace(
        &mut self,
        answer: &[u8],
        first_new: u32,
        prefix: &str,
    ) -> Result<RecoveryTrace, ReplayError> {
        let by_number = self.by_number.clone();
        let by_path = self.files.iter().map(|(file, state)| (state.path.clone(), *file)).collect();
        let mut files = recovery_trace::Files { by_number, by_path, next: first_new, prefix: prefix.to_owned() };
        let mut trace = recovery_trace::parse(answer, &mut files).ok_or(ReplayError::RecoveryTrace)?;
        let last = trace.sites.iter().flatten().map(|site| site.module).max().unwrap_or(0);
        trace.modules = (0..=last).map(|module| self.module(module)).collect::<Result<_, _>>()?;
        Ok(trace)
    }

    /// How often recovery entered each of its named stages (`stage.h`) so far, in order of names. Empty: it names none.
    ///
    /// # Errors
    /// When the server ended or answers nonsense.
    pub fn stages(&mut self) -> Result<BTreeMap<String, u64>, ReplayError> {
        self.send(protocol::COMMAND_STAGES, Arguments::None, &[])?;
        let answer = self.answer()?;
        parse_counts(&answer).ok_or(ReplayError::Stages)
    }

    /// Which engine did the runs that were meant for the in-process engine.
    ///
    /// # Errors
    /// When the server ended or answers nonsense.
    pub fn engines(&mut self) -> Result<Engines, ReplayError> {
        if !self.is_in_process && !self.is_batched {
            return Ok(Engines::default());
        }
        self.send(protocol::COMMAND_ENGINES, Arguments::None, &[])?;
        let answer = self.answer()?;
        Engines::parse(&answer).ok_or(ReplayError::Engines)
    }

    fn answer(&mut self) -> Result<Vec<u8>, ReplayError> {
        let mut answer = vec![0; self.answer_bytes()?];
        self.output.read_exact(&mut answer).map_err(|_| self.ended())?;
        Ok(answer)
    }

    fn answer_bytes(&mut self) -> Result<usize, ReplayError> {
        let flushed = self.input.as_mut().expect("open until drop").flush();
        flushed.map_err(|_| self.ended())?;
        let mut length = [0; 4];
        self.output.read_exact(&mut length).map_err(|_| self.ended())?;
        let length = u32::from_le_bytes(length);
        if length > REPORT_LIMIT_BYTES {
            return Err(ReplayError::Report(length));
        }
        Ok(length as usize)
    }

    fn change(&mut self, kind: u32, file: u32, offset: u64, size: u64, payload: &[u8]) -> Result<(), ReplayError> {
        self.send(kind, Arguments::Change { file, offset, size }, payload)
    }

    fn send(&mut self, kind: u32, arguments: Arguments, payload: &[u8]) -> Result<(), ReplayError> {
        let command = protocol::command(kind, arguments, payload.len());
        let input = self.input.as_mut().expect("open until drop");
        let sent = input.write_all(&command).and_then(|()| input.write_all(payload));
        sent.map_err(|_| self.ended())
    }

    /// The error with the server's last words.
    fn ended(&mut self) -> ReplayError {
        self.input = None;
        let mut said = String::new();
        if let Some(mut errors) = self.process.stderr.take() {
            let _ = errors.read_to_string(&mut said);
        }
        let ended = self.process.wait();
        let is_distrusted = ended.as_ref().is_ok_and(|status| status.code() == Some(protocol::EXIT_DISTRUST as i32));
        let status = ended.map_or_else(|error| error.to_string(), |status| status.to_string());
        let message = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or(&status).trim().to_owned();
        match message.strip_prefix("runner: error: ") {
            Some(why) if is_distrusted => ReplayError::Distrust { message: why.to_owned() },
            _ if is_distrusted => ReplayError::Distrust { message },
            _ => ReplayError::Ended { message },
        }
    }
}

impl Drop for ReplayServer {
    /// Closing its input ends the server, which removes its folder.
    fn drop(&mut self) {
        self.input = None;
        let _ = self.process.wait();
    }
}
