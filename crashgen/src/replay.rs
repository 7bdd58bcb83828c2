// SPDX-License-Identifier: Apache-2.0
//! Runs recovery and probe script on crash images in the runner's server (`heap_report.h`): each run in processes of its own, the
//! isolated engine, or in one long-lived process, the in-process engine (`loads.h`): of targets with hooks all of it, of others the
//! first part of the probe.
//!
//! The server keeps one base image. Going from one crash image to the next sends it the lines and files that differ; each
//! probe then runs in children of the server, whose stores never reach the base.

use crate::LINE_BYTES;
use crate::complete::{Doubt, UnitKey};
use crate::image::{CrashImage, ImageFile};
use crate::model::{LineContent, LineKey};
use crate::seat;
use crate::trace::{Event, FileId, SiteId};
use planted::Fault;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::rc::Rc;
use std::sync::Arc;

/// Largest report the server may send, bytes: its arena's size with room.
const REPORT_LIMIT_BYTES: u32 = 256 << 20;
/// Sets of hot units whose numbers are remembered: searches that take turns are few.
const MOST_WATCHES: usize = 8;

mod serve {
    pub const CREATE: u32 = 1;
    pub const RESIZE: u32 = 2;
    pub const REMOVE: u32 = 4;
    pub const RENAME: u32 = 5;
    pub const WRITE: u32 = 6;
    pub const MKDIR: u32 = 7;
    pub const RMDIR: u32 = 8;
    pub const RUN: u32 = 9;
    pub const STAGES: u32 = 10;
    pub const WATCH: u32 = 11;
    pub const ENGINES: u32 = 12;
    pub const REPORT: u32 = 13;
    pub const SEAT: u32 = 14;
}

/// The part of the protocol that `loads.h` adds.
mod loads {
    pub const VERSION: u32 = 9;
    pub const HEADER_BYTES: usize = 32;
    pub const LOAD_BYTES: usize = 24;
    pub const RUN_LOADS: u64 = 1;
    pub const RUN_GUARDED: u64 = 2;
    pub const RUN_IN_PROCESS: u64 = 4;
    pub const RUN_REPORT_APART: u64 = 16;
    pub const RUN_AFRESH: u64 = 32;
    pub const RUN_COMPARED: u64 = 128;
    pub const RUN_TELL_DEATH: u64 = 64;
    pub const ENGINES_BYTES: usize = 32;
    pub const OVERFLOW: u32 = 1;
    pub const NOT_HOOKED: u32 = 2;
    pub const SHARED: u32 = 4;
    pub const UNSEEN: u32 = 8;
    /// Those that say something of the target, whatever the image.
    pub const UNFIT: u32 = NOT_HOOKED | SHARED | UNSEEN;
    pub const DIFFERS: u32 = 16;
    pub const MAPPINGS: u32 = 32;
    pub const DAMAGED: u32 = 64;
    pub const BY_TARGET: u8 = 1;
}

mod death;
mod told;

pub use death::{Death, Touched};

/// How much of the probe script is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// Open, slots, walk, check.
    First = 1,
    /// All lives.
    Full = 2,
}

/// How a recorded run is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// As fast as it can be: in-process if the server may, and what follows the first recovery may be known
    /// from another run, that came to the same state.
    Fast,
    /// All of it is run.
    Afresh,
    /// All of it is run, in the isolated engine too, and what the two say is compared.
    Compared,
    /// Slowly; loads without a hook are found. Of hooks that are called again and again, the seed chooses which calls are looked at.
    Guarded {
        /// Another one looks at others.
        seed: u32,
    },
}

/// What a recorded run read of the crash image (`loads.h`).
#[derive(Clone, Debug, Default)]
pub struct Loads {
    /// Hot units in the order in which the target first depended on what the crash left there.
    pub by_target: Vec<UnitKey>,
    /// Of each of them: where in the adapter's file, 0 where that is not known or the runner loaded it.
    pub sites: Vec<u32>,
    /// Hot units that the runner's scan of contents read and nothing before it.
    pub by_contents: Vec<UnitKey>,
    /// Why the list is not complete, if it is not.
    pub doubt: Option<Doubt>,
    /// The doubt is that the run in the isolated engine says another thing.
    pub is_different: bool,
    /// The doubt is not of this run alone: loads of this target cannot be followed, or it was built without hooks.
    pub is_unfit: bool,
}

/// Which engine did the runs that were to be in-process.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Engines {
    /// Done in-process.
    pub in_process: u64,
    /// Of them: done in the isolated engine too, and the answers compared.
    pub compared: u64,
    /// Of those in-process: the later stages were those of another run, that had come to the same state.
    pub remembered: u64,
    /// Done in the isolated engine instead, by what the target does that an in-process run cannot take back.
    pub isolated: BTreeMap<String, u64>,
}

/// What a recovery and its follow-up did (`generation.h`).
#[derive(Clone, Debug, Default)]
pub struct Told {
    /// In memory order; the sites are those of [`Told::sites`].
    pub events: Vec<Event>,
    /// By [`SiteId`]: offset in the adapter's file; none: unknown, or application content.
    pub sites: Vec<Option<u64>>,
    /// Paths in the trace of the files that it made.
    pub made: Vec<Arc<str>>,
    /// Why the events are not all, if they are not.
    pub gap: Option<&'static str>,
    /// Bytes of the answer up to the end of open's return; 0 if it did not return.
    pub recovery_bytes: usize,
}

/// Of the runner's fill, among [`Told::sites`].
pub const CONTENT_SITE: SiteId = SiteId(1);

/// How to start a server.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct ServerOptions {
    pub runner: PathBuf,
    pub adapter: PathBuf,
    /// Folder for the base image, on a memory file system if there is one.
    pub scratch: PathBuf,
    pub heap_bytes: u64,
    pub limit_bytes: u64,
    pub slots: u32,
    /// Word for the layout of those slots (`runner --slot-layout`).
    pub slot_layout: String,
    pub address_hint: u64,
    pub cpu_limit_ms: u64,
    pub wall_limit_ms: u64,
    /// The adapter has hooks: runs need no process of their own.
    pub is_in_process: bool,
    /// The adapter has none, and first parts of the probe need no process of their own all the same.
    pub is_batched: bool,
    /// The probe leaves out the stage `check`.
    pub is_unchecked: bool,
    /// Chooses the in-process runs that are compared with isolated ones.
    pub seed: u64,
}

impl ServerOptions {
    /// `runner COMMAND` with these options.
    pub fn command(&self, command: &str) -> Command {
        let mut process = Command::new(&self.runner);
        process.arg(command).arg("--adapter").arg(&self.adapter).arg("--folder").arg(&self.scratch);
        process.arg("--slot-layout").arg(&self.slot_layout);
        for (name, value) in [
            ("--heap-bytes", self.heap_bytes),
            ("--limit-bytes", self.limit_bytes),
            ("--slots", u64::from(self.slots)),
            ("--address-hint", self.address_hint),
        ] {
            process.arg(name).arg(value.to_string());
        }
        process
    }
}

/// Why the server cannot go on.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum ReplayError {
    #[error("{runner}: cannot be started: {source}; build it with `faultline build`")]
    Start { runner: PathBuf, source: std::io::Error },
    #[error("the replay server ended: {message}")]
    Ended { message: String },
    #[error("the replay server sent a report of {0} bytes")]
    Report(u32),
    #[error(
        "the replay server's list of loads is not of version {}; engine and runner must be of one version",
        loads::VERSION
    )]
    Loads,
    #[error("{path}: the replay server's heap report cannot be read: {source}")]
    ReportFile { path: String, source: std::io::Error },
    #[error("the replay server's list of engines ends in the middle; engine and runner must be of one version")]
    Engines,
    #[error(
        "the replay server's list of events is not of version {}; engine and runner must be of one version",
        told::VERSION
    )]
    Told,
    #[error(
        "the replay server's answer of where a recovery died is not of version {}; engine and runner must be of one version",
        death::VERSION
    )]
    Death,
    #[error("the replay server's list of recovery stages ends in the middle; engine and runner must be of one version")]
    Stages,
}

/// How the reports of recorded runs come.
enum Reports {
    /// In a file of the server's: read from there, a report is copied once and fills no pipe.
    Apart { file: File, path: String, last: Vec<u8> },
    /// With the other answers.
    Sent(Vec<u8>),
}

/// A running fork server and what it was told so far.
pub struct ReplayServer {
    process: Child,
    input: Option<BufWriter<ChildStdin>>,
    output: BufReader<ChildStdout>,
    files: BTreeMap<FileId, ImageFile>,
    folders: BTreeSet<Arc<str>>,
    numbers: BTreeMap<FileId, u32>,
    by_number: FxHashMap<u32, FileId>,
    free_numbers: Vec<u32>,
    /// Where reports of recorded runs lie; none: nobody asked yet.
    reports: Option<Reports>,
    /// The sets of hot units that it was told of last for the files it has, each with its number; the last one is in force.
    watches: Vec<(Rc<[UnitKey]>, u64)>,
    /// Numbers that were given.
    watch_count: u64,
    is_in_process: bool,
    is_batched: bool,
    seed: u32,
    /// The seat that it was last told of ([`seat::since`]).
    seat: u64,
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
        command.args(options.is_unchecked.then_some("--no-check"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process =
            command.spawn().map_err(|source| ReplayError::Start { runner: options.runner.clone(), source })?;
        let input = BufWriter::with_capacity(1 << 16, process.stdin.take().expect("piped"));
        let output = BufReader::with_capacity(1 << 16, process.stdout.take().expect("piped"));
        Ok(Self {
            process,
            input: Some(input),
            output,
            files: BTreeMap::new(),
            folders: BTreeSet::new(),
            numbers: BTreeMap::new(),
            by_number: FxHashMap::default(),
            free_numbers: Vec::new(),
            reports: None,
            watches: Vec::new(),
            watch_count: 0,
            is_in_process: options.is_in_process,
            is_batched: options.is_batched,
            seed: options.seed as u32,
            seat: 0,
        })
    }

    /// Makes the server's image that of `image`. `image` must be the one of the last call, or a new one after [`Self::clear`].
    ///
    /// # Errors
    /// When the server ended.
    pub fn follow(&mut self, image: &mut CrashImage) -> Result<(), ReplayError> {
        if self.files != *image.files() || self.folders != *image.folders() {
            self.follow_files(image)?;
        }
        let mut dirty = image.take_dirty();
        if planted::is(Fault::StaleLines) {
            dirty.retain(|(_, content)| content.iter().any(|byte| *byte != 0));
        }
        let mut rest = dirty.as_slice();
        while let Some((first, _)) = rest.first() {
            let adjacent = |at: usize| rest[at].0 == LineKey { file: first.file, number: first.number + at as u64 };
            let count = (1..rest.len()).find(|at| !adjacent(*at)).unwrap_or(rest.len());
            self.write_lines(&rest[..count])?;
            rest = &rest[count..];
        }
        Ok(())
    }

    /// Forgets the image: the next one starts without files.
    ///
    /// # Errors
    /// When the server ended.
    pub fn clear(&mut self) -> Result<(), ReplayError> {
        self.follow_files(&CrashImage::new(""))
    }

    fn follow_files(&mut self, image: &CrashImage) -> Result<(), ReplayError> {
        self.watches.clear(); // they named files by the server's numbers
        for folder in image.folders().difference(&self.folders.clone()) {
            self.send(serve::MKDIR, 0, 0, 0, folder.as_bytes())?;
        }
        for (file, known) in std::mem::take(&mut self.files) {
            if !image.files().contains_key(&file) {
                let number = self.numbers.remove(&file).expect("known to the server");
                self.send(serve::REMOVE, number, 0, 0, &[])?;
                self.free_numbers.push(number);
            } else if image.files()[&file].path != known.path {
                // Names may move in a circle: all that change are out of the way before one gets its new name.
                let number = self.numbers[&file];
                self.send(serve::RENAME, number, 0, 0, format!(".moving-{number}").as_bytes())?;
            }
        }
        for (file, state) in image.files() {
            match self.numbers.get(file).copied() {
                Some(number) => {
                    self.send(serve::RENAME, number, 0, 0, state.path.as_bytes())?;
                    if !planted::is(Fault::StaleSizes) {
                        self.send(serve::RESIZE, number, 0, state.bytes, &[])?;
                    }
                }
                None => {
                    let number = self.free_numbers.pop().unwrap_or(self.numbers.len() as u32);
                    self.numbers.insert(*file, number);
                    self.send(serve::CREATE, number, 0, state.bytes, state.path.as_bytes())?;
                }
            }
        }
        for folder in self.folders.clone().iter().rev().filter(|folder| !image.folders().contains(*folder)) {
            self.send(serve::RMDIR, 0, 0, 0, folder.as_bytes())?;
        }
        self.files = image.files().clone();
        self.folders = image.folders().clone();
        self.by_number = self.numbers.iter().map(|(file, number)| (*number, *file)).collect();
        Ok(())
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
        self.send(serve::WRITE, number, offset, inside, &bytes)
    }

    /// Runs the probe on the image as it is, in processes of its own, and returns the heap report's bytes.
    ///
    /// # Errors
    /// When the server ended or answers nonsense.
    pub fn run(&mut self, probe: Probe) -> Result<Vec<u8>, ReplayError> {
        self.send_run(0, 0, probe as u64)?;
        self.answer()
    }

    /// The same, in order to know where it dies of a signal. None: it does not, or where is not known.
    ///
    /// # Errors
    /// When the server ended or answers nonsense.
    pub fn run_to_death(&mut self, probe: Probe) -> Result<Option<Death>, ReplayError> {
        self.send_run(0, loads::RUN_TELL_DEATH, probe as u64)?;
        self.answer()?;
        let answer = self.answer()?;
        let name = |number: u32| Some(self.files[self.by_number.get(&number)?].path.to_string());
        death::parse(&answer, name).ok_or(ReplayError::Death)
    }

    /// Whether first parts of the probe may be run in one process with others.
    pub fn is_batched(&self) -> bool {
        self.is_batched
    }

    /// The same, in processes of its own or in one for many.
    ///
    /// # Errors
    /// When the server ended or answers nonsense.
    pub fn run_in_batch(&mut self, probe: Probe) -> Result<Vec<u8>, ReplayError> {
        if !self.is_batched || probe != Probe::First {
            return self.run(probe);
        }
        self.send_run(self.seed, loads::RUN_IN_PROCESS, probe as u64)?;
        self.answer()
    }

    fn send_run(&mut self, file: u32, flags: u64, probe: u64) -> Result<(), ReplayError> {
        if let Some((number, processors)) = seat::since(self.seat) {
            self.send(serve::SEAT, 0, 0, 0, &processors)?;
            self.seat = number;
        }
        self.send(serve::RUN, file, flags, probe, &[])
    }

    /// These units are hot until the next call or until files come, go or change their size: recorded runs list them. In order;
    /// those of files that the server does not have are left out. The set of the last call costs nothing. While one `Rc` is in use, the
    /// images that go with it must be alike in all other units.
    ///
    /// # Errors
    /// When the server ended.
    pub fn watch(&mut self, hot: &Rc<[UnitKey]>) -> Result<(), ReplayError> {
        let is_it = |(known, _): &(Rc<[UnitKey]>, u64)| Rc::ptr_eq(known, hot);
        if self.watches.last().is_some_and(is_it) {
            return Ok(());
        }
        let mut payload = Vec::new();
        let is_next = |one: &UnitKey, next: &UnitKey| one.file == next.file && one.number + 1 == next.number;
        for range in hot.chunk_by(is_next) {
            let Some(number) = self.numbers.get(&range[0].file) else { continue };
            payload.extend(u64::from(*number).to_le_bytes());
            payload.extend(range[0].number.to_le_bytes());
            payload.extend((range.len() as u64).to_le_bytes());
        }
        let watch = match self.watches.iter().position(is_it) {
            Some(known) => self.watches.remove(known),
            None => {
                self.watch_count += 1;
                (hot.clone(), self.watch_count)
            }
        };
        self.send(serve::WATCH, 0, watch.1, 0, &payload)?;
        if self.watches.len() == MOST_WATCHES {
            self.watches.remove(0);
        }
        self.watches.push(watch);
        Ok(())
    }

    /// As [`Self::run`], with what the run loaded of the hot units.
    ///
    /// # Errors
    /// When the server ended or answers nonsense.
    pub fn run_recorded(&mut self, probe: Probe, manner: Manner) -> Result<(&[u8], Loads), ReplayError> {
        let more = match (manner, self.is_in_process) {
            (Manner::Guarded { .. }, _) => loads::RUN_GUARDED,
            (Manner::Afresh, true) => loads::RUN_IN_PROCESS | loads::RUN_AFRESH,
            (Manner::Compared, true) => loads::RUN_IN_PROCESS | loads::RUN_AFRESH | loads::RUN_COMPARED,
            (Manner::Fast, true) => loads::RUN_IN_PROCESS,
            (_, false) => 0,
        };
        let mut reports = self.reports.take().map_or_else(|| self.find_reports(), Ok)?;
        let apart = if matches!(reports, Reports::Apart { .. }) { loads::RUN_REPORT_APART } else { 0 };
        let seed = if let Manner::Guarded { seed } = manner { seed } else { self.seed };
        self.send_run(seed, loads::RUN_LOADS | more | apart, probe as u64)?;
        match &mut reports {
            Reports::Sent(last) => *last = self.answer()?,
            Reports::Apart { file, path, last } => {
                last.resize(self.answer_bytes()?, 0);
                let read = file.read_exact_at(last, 0);
                read.map_err(|source| ReplayError::ReportFile { path: path.clone(), source })?;
            }
        }
        let answer = self.answer()?;
        let loads = self.parse_loads(&answer).ok_or(ReplayError::Loads)?;
        let (Reports::Apart { last, .. } | Reports::Sent(last)) = self.reports.insert(reports);
        Ok((last, loads))
    }

    fn find_reports(&mut self) -> Result<Reports, ReplayError> {
        self.send(serve::REPORT, 0, 0, 0, &[])?;
        let path = String::from_utf8_lossy(&self.answer()?).into_owned();
        if path.is_empty() {
            return Ok(Reports::Sent(Vec::new()));
        }
        // A system that hides processes from each other hides the file: reports are sent then.
        let apart = |file| Reports::Apart { file, path: path.clone(), last: Vec::new() };
        Ok(File::open(&path).map_or_else(|_| Reports::Sent(Vec::new()), apart))
    }

    /// Whether recorded runs may be done in-process.
    pub fn is_in_process(&self) -> bool {
        self.is_in_process
    }

    /// Runs recovery of generation `generation` (from 1), and what follows it if that is wanted, recorded, and told event by event.
    ///
    /// # Errors
    /// When the server ended or answers nonsense.
    pub fn run_told(&mut self, generation: u32, has_follow_up: bool) -> Result<(Vec<u8>, Loads, Vec<u8>), ReplayError> {
        let probe = if has_follow_up { told::WITH_FOLLOW_UP } else { told::RECOVERY };
        self.send_run(generation, loads::RUN_LOADS, probe)?;
        let report = self.answer()?;
        let answer = self.answer()?;
        let loads = self.parse_loads(&answer).ok_or(ReplayError::Loads)?;
        Ok((report, loads, self.answer()?))
    }

    /// The events of a told run; the server's files must still be those of that run. `first_new`: identity of the first file that it
    /// makes; `prefix`: of the case's folder.
    ///
    /// # Errors
    /// When they are of another version.
    pub fn parse_told(&self, answer: &[u8], first_new: u32, prefix: &str) -> Result<Told, ReplayError> {
        let by_number = self.by_number.clone();
        let by_path = self.files.iter().map(|(file, state)| (state.path.clone(), *file)).collect();
        let mut files = told::Files { by_number, by_path, next: first_new, prefix: prefix.to_owned() };
        told::parse(answer, &mut files).ok_or(ReplayError::Told)
    }

    fn parse_loads(&self, answer: &[u8]) -> Option<Loads> {
        let (header, rest) = answer.split_at_checked(loads::HEADER_BYTES)?;
        let word = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("four bytes"));
        let (flags, count) = (word(4), word(8) as usize);
        let (list, text) = rest.split_at_checked(count.checked_mul(loads::LOAD_BYTES)?)?;
        if word(0) != loads::VERSION || text.len() != word(12) as usize {
            return None;
        }
        let text = String::from_utf8_lossy(text);
        let (is_different, is_unfit) = (flags & loads::DIFFERS != 0, flags & loads::UNFIT != 0);
        let mut found = Loads { doubt: doubt(flags, &text), is_different, is_unfit, ..Loads::default() };
        for load in list.chunks_exact(loads::LOAD_BYTES) {
            let number = u64::from_le_bytes(load[8..16].try_into().expect("eight bytes"));
            let file = self.by_number.get(&u32::from_le_bytes(load[4..8].try_into().expect("four bytes")))?;
            let unit = UnitKey { file: *file, number };
            if load[0] == loads::BY_TARGET {
                found.by_target.push(unit);
                found.sites.push(u32::from_le_bytes(load[16..20].try_into().expect("four bytes")));
            } else {
                found.by_contents.push(unit);
            }
        }
        Some(found)
    }

    /// How often recovery entered each of its named stages (`stage.h`) so far, in order of names. Empty: it names none.
    ///
    /// # Errors
    /// When the server ended or answers nonsense.
    pub fn stages(&mut self) -> Result<BTreeMap<String, u64>, ReplayError> {
        self.send(serve::STAGES, 0, 0, 0, &[])?;
        let answer = self.answer()?;
        let mut stages = BTreeMap::new();
        let mut rest = answer.as_slice();
        while let Some((entered, after)) = rest.split_first_chunk() {
            let end = after.iter().position(|byte| *byte == 0).ok_or(ReplayError::Stages)?;
            stages.insert(String::from_utf8_lossy(&after[..end]).into_owned(), u64::from_le_bytes(*entered));
            rest = &after[end + 1..];
        }
        Ok(stages)
    }

    /// Which engine did the runs that were to be in-process: of targets with hooks the recorded ones that were not guarded.
    ///
    /// # Errors
    /// When the server ended or answers nonsense.
    pub fn engines(&mut self) -> Result<Engines, ReplayError> {
        if !self.is_in_process && !self.is_batched {
            return Ok(Engines::default());
        }
        self.send(serve::ENGINES, 0, 0, 0, &[])?;
        let answer = self.answer()?;
        let (counts, mut rest) = answer.split_at_checked(loads::ENGINES_BYTES).ok_or(ReplayError::Engines)?;
        let count = |at: usize| u64::from_le_bytes(counts[at..at + 8].try_into().expect("eight bytes"));
        let mut engines =
            Engines { in_process: count(0), compared: count(8), remembered: count(24), isolated: BTreeMap::new() };
        while let Some((runs, after)) = rest.split_first_chunk() {
            let end = after.iter().position(|byte| *byte == 0).ok_or(ReplayError::Engines)?;
            let reason = String::from_utf8_lossy(&after[..end]).into_owned();
            engines.isolated.insert(reason, u64::from_le_bytes(*runs));
            rest = &after[end + 1..];
        }
        Ok(engines)
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

    fn send(&mut self, kind: u32, file: u32, offset: u64, size: u64, payload: &[u8]) -> Result<(), ReplayError> {
        let mut command = [0; 32];
        command[..4].copy_from_slice(&kind.to_le_bytes());
        command[4..8].copy_from_slice(&file.to_le_bytes());
        command[8..16].copy_from_slice(&offset.to_le_bytes());
        command[16..24].copy_from_slice(&size.to_le_bytes());
        command[24..].copy_from_slice(&(payload.len() as u64).to_le_bytes());
        let input = self.input.as_mut().expect("open until drop");
        let sent = input.write_all(&command).and_then(|()| input.write_all(payload));
        sent.map_err(|_| self.ended())
    }

    /// What the server said before it ended.
    fn ended(&mut self) -> ReplayError {
        self.input = None;
        let mut said = String::new();
        if let Some(mut errors) = self.process.stderr.take() {
            let _ = errors.read_to_string(&mut said);
        }
        let status = self.process.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
        let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or(&status).trim();
        ReplayError::Ended { message: last.to_owned() }
    }
}

/// Why a run's loads are not all known.
fn doubt(flags: u32, text: &str) -> Option<Doubt> {
    let unknown = |reason: &str| Doubt::Unknown(reason.to_owned());
    let reasons = [
        (loads::NOT_HOOKED, unknown("the adapter was built without hooks")),
        (loads::DIFFERS, unknown(&format!("the in-process engine cannot be trusted here: {text}"))),
        (loads::UNSEEN, unknown(&format!("recovery loads PM past the hooks: {text}"))),
        (loads::SHARED, unknown("recovery started a thread or a process, whose loads have no order")),
        (loads::DAMAGED, unknown("recovery overwrote the list of what it loads, in memory that is not its own")),
        (loads::OVERFLOW, Doubt::Bound("a recovery that loads more units than the list of loads holds, 1,048,576")),
        (loads::MAPPINGS, Doubt::Bound("a recovery that has more than 64 mappings of its heap at a time")),
    ];
    reasons.into_iter().find(|(flag, _)| flags & flag != 0).map(|(_, reason)| reason)
}

impl Drop for ReplayServer {
    /// Closing its input ends the server, which removes its folder.
    fn drop(&mut self) {
        self.input = None;
        let _ = self.process.wait();
    }
}
