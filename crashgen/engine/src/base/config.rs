// SPDX-License-Identifier: Apache-2.0
//! What one exploration is given: a JSON file that the harness writes.

use crate::base::error::{EngineError, bad_input};
use crashgen::complete::Bounds;
use crashgen::edit::{AsRepaired, Edit, Place};
use crashgen::model::PersistencyModel;
use crashgen::model::losses::{Loss, losses};
use crashgen::replay::{Probe, ServerOptions};
use crashgen::strategy::{Options, Sample, Strategy};
use crashgen::symbols::{Symbol, Symbols};
use crashgen::token::Witness;
use crashgen::trace::{EventKind, Trace};
use oracle::contract::{FileSystem, OutOfMemory};
use oracle::history::{Generation, OperationIndex, Phase};
use oracle::{Contract, HeapShape, RuleId};
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Version of the configuration file.
pub const VERSION: u32 = 2;

/// Leaves that `complete` keeps. Some hundreds are usual, so a search with this many explodes.
pub const LEAF_LIMIT: u32 = 20_000;
/// What a worker of `complete` keeps of loads and heap reports, MiB: one of several on a machine with little memory.
pub const MEMORY_LIMIT_MIB: u32 = 1024;
/// What remembers something for each crash after the first.
const SEARCHES_OF_CRASH: usize = 3;

/// One exploration.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    version: u32,
    /// The sealed trace.
    pub trace: PathBuf,
    runner: PathBuf,
    adapter: PathBuf,
    /// The adapter of another build, which recovers the heaps that the first one makes. None: that one does.
    #[serde(default)]
    upgrade: Option<PathBuf>,
    /// What recovers, built with hooks (`runner/protocol.h`): what `complete` runs. None: `complete` is not possible.
    hooked_adapter: Option<PathBuf>,
    /// A part of it that was compiled without hooks: it cannot run in-process, where nobody would see what that loads.
    #[serde(default)]
    without_hooks: Option<String>,
    /// What the runner is started under so that every access of any target is seen: a tracer with its arguments. Empty: there is none.
    #[serde(default)]
    tracer: Vec<String>,
    /// Which engine runs recoveries where their loads are needed. None: the fastest that there is, and slower ones where it does not
    /// see all that the target does.
    #[serde(default)]
    engine: Option<EngineKind>,
    /// Files of the allocator whose functions flush, fence or store for their callers ([`crashgen::symbols`]).
    #[serde(default)]
    pub helpers: Vec<PathBuf>,
    /// The workload the trace was taken of: the twins run it again.
    pub workload_file: PathBuf,
    /// Existing folder for images, on a memory file system if there is one.
    scratch: PathBuf,
    heap: Heap,
    /// What the allocator promises.
    pub contract: Contract,
    /// Persistency model.
    pub model: &'static dyn PersistencyModel,
    /// What the file system promises of operations that were not synced. None: what the contract asks for.
    #[serde(default)]
    file_system: Option<FileSystem>,
    /// File operations that power failure loses.
    #[serde(skip)]
    pub loss: Arc<Loss>,
    /// Which states are run.
    pub strategy: &'static dyn Strategy,
    /// Crashes after the first, one after the other: in recoveries and in what follows them.
    #[serde(default)]
    pub nested: u32,
    /// Whether they are explored in what follows recoveries, too.
    #[serde(default = "yes")]
    pub follow_up: bool,
    /// Workers over the crash positions of `complete`.
    #[serde(default = "one")]
    pub jobs: u32,
    /// Seeds the samples.
    pub seed: u64,
    /// Bounds.
    pub limits: Limits,
    /// The crash positions (events before the crash) to look at, from the first to the last of each range: what an earlier exploration
    /// left. Empty: all.
    #[serde(default)]
    pub left: Vec<(u32, u32)>,
    /// Whether the operations of the workload share the budget ([`crate::explore::shares`]).
    #[serde(default)]
    pub shares_budget: bool,
    /// Where power fails for the first time.
    #[serde(default)]
    start: Start,
    /// Files outside of the heap folder that an earlier run of the allocator made, and that are still there.
    #[serde(default)]
    pub left_outside: Vec<String>,
    /// Look at none after this one; the certificate says so.
    #[serde(default)]
    pub last_position: Option<u32>,
    /// Stop at the first finding of this rule, or of any.
    pub stop_at_rule: Option<StopRule>,
    /// Ids of known findings, at which [`StopRule::Any`] does not stop.
    #[serde(default)]
    pub known_findings: Vec<String>,
    /// Behind a finding that lost a store the exploration goes on as if it were repaired, if it does not end soon
    /// ([`crate::explore::behind`]).
    #[serde(default)]
    pub looks_behind: bool,
    /// After so many recoveries more; none: by the size of the trace.
    #[serde(default)]
    pub patience: Option<u64>,
    /// When the time that is asked for is over, counted from when this was read; none without a limit, and where the limit is too far away
    /// to ever come.
    #[serde(skip)]
    pub ends: Option<Instant>,
    /// What is taken for repaired in the workload.
    #[serde(skip)]
    pub as_repaired: Arc<AsRepaired>,
    /// The trace is explored as if its source had these flushes and fences less or more.
    #[serde(default)]
    pub edits: Vec<Edit>,
    /// The same of what recoveries do, and what follows them.
    #[serde(default)]
    pub later_edits: Vec<Edit<Place>>,
    /// What recoveries showed is written here, or compared with what is written here (`explore/outcomes.rs`).
    #[serde(default)]
    pub outcomes: Option<OutcomesFile>,
    /// How much of the probe script is run.
    pub probe: ProbeName,
    /// Crash states that live long where nothing else was found ([`crate::explore::long_lives`]).
    #[serde(default)]
    pub long_lives: u32,
    /// What tokens name.
    pub identity: Identity,
}

/// Between a module's name and an offset in it, as the runner says a place.
const OFFSET_MARK: &str = "+0x";

/// Where the first crash positions are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
enum Start {
    Named(StartName),
    /// In this operation and what follows it.
    Operation(OperationIndex),
}

impl Default for Start {
    fn default() -> Self {
        Start::Named(StartName::Create)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum StartName {
    /// In the creation of each heap.
    Create,
    /// In what follows it.
    Workload,
}

/// What runs recoveries, the fastest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum EngineKind {
    /// One long-lived process; the hooks of a target that was built with them announce its accesses.
    InProcess,
    /// Processes under a tracer, which sees every access of any target.
    Traced,
    /// Processes of their own, in which nothing is seen.
    Isolated,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Heap {
    heap_bytes: u64,
    limit_bytes: u64,
    slots: u32,
    /// Of the workload's slots; the runner knows which there are.
    slot_layout: String,
    /// Heaps are opened lazily, as the workload says.
    #[serde(default)]
    is_lazy: bool,
    address_hint: u64,
    alignment: u64,
    smallest_bytes: u64,
    /// Recoveries map it at other addresses than the workload did.
    relocates: bool,
}

/// Bounds; each is said in the certificate when it is hit.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// `mixed` enumerates a position that has at most this many states.
    pub exhaustive_states: u64,
    /// States drawn at a position that has more.
    pub samples: u32,
    /// Seconds, none: no limit.
    pub time_s: Option<f64>,
    /// At most this many recoveries are run, none: no limit.
    pub recoveries: Option<u64>,
    /// `complete` keeps at most this many leaves of its memory at a time, none: [`LEAF_LIMIT`].
    pub leaves: Option<u32>,
    /// Each worker of `complete` keeps about this much of loads, choices of lines, contents, heap reports and recovery traces; none:
    /// [`MEMORY_LIMIT_MIB`]. The limit is each worker's own, so that what is found does not depend on how many there are.
    pub memory_mib: Option<u32>,
    /// CPU time of one life; more is a hang.
    pub cpu_limit_ms: u64,
    /// Wall time of one life: the backstop.
    pub wall_limit_ms: u64,
}

/// How much of the probe script is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProbeName {
    /// Open, slots, walk, check.
    First,
    /// All stages, once for each distinct pair of heap report and allocator metadata.
    Full,
    /// All stages of each image, with many opens between them, and a long use.
    #[serde(skip)]
    Deep,
}

/// Which findings end an exploration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopRule {
    /// The first, whatever it is: `any`.
    Any,
    /// Those of one rule: FL004.
    One(RuleId),
    /// One that is known: FL004-2eceaf6b.
    Finding(String),
}

impl<'de> Deserialize<'de> for StopRule {
    fn deserialize<D: serde::Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        match String::deserialize(source)?.as_str() {
            "any" => Ok(Self::Any),
            finding if finding.contains('-') => Ok(Self::Finding(finding.to_owned())),
            rule => rule.parse().map(Self::One).map_err(serde::de::Error::custom),
        }
    }
}

/// Where outcomes go.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum OutcomesFile {
    /// All are written to this file.
    Write(PathBuf),
    /// Those that this file does not have are counted. It was written by an exploration of the trace without the edits that was complete and had
    /// no finding. What that explored is not explored again (`explore/unchanged.rs`).
    Compare(PathBuf),
}

/// What tokens name.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct Identity {
    pub allocator: String,
    pub mutant: Option<String>,
    pub build: String,
    pub workload: String,
    pub ops: Option<u32>,
    pub seed: u64,
    pub flush: String,
}

/// Where the tracer has what a program loads: from 64 MiB on upwards. No program that is tested fills so much.
const TRACED_CODE: Range<u64> = 64 << 20..1 << 30;

fn one() -> u32 {
    1
}

fn yes() -> bool {
    true
}

fn end_after(seconds: f64) -> Option<Instant> {
    Instant::now().checked_add(Duration::try_from_secs_f64(seconds.max(0.0)).ok()?)
}

impl Config {
    /// Reads and checks a configuration.
    ///
    /// # Errors
    /// Names the file, the key and what was expected.
    pub fn read(path: &Path) -> Result<Self, EngineError> {
        let name = path.display();
        let text =
            std::fs::read_to_string(path).map_err(|error| bad_input(format!("{name}: cannot be read: {error}")))?;
        let config = Self::parse(&name.to_string(), &text)?;
        let files = [&config.runner, &config.adapter, &config.workload_file, &config.scratch];
        for file in files.into_iter().chain(&config.hooked_adapter).chain(&config.upgrade) {
            if !file.exists() {
                return Err(bad_input(format!(
                    "{}: not there, {name} names it; run `faultline build`",
                    file.display()
                )));
            }
        }
        Ok(config)
    }

    /// As [`Config::read`], of text in memory, without looking at the files it names. `name` is for messages.
    ///
    /// # Errors
    /// As [`Config::read`].
    pub fn parse(name: &str, text: &str) -> Result<Self, EngineError> {
        let mut config: Self = serde_json::from_str(text).map_err(|error| bad_input(format!("{name}: {error}")))?;
        config.ends = config.limits.time_s.and_then(end_after);
        if config.version != VERSION {
            return Err(bad_input(format!("{name}: version {}, expected {VERSION}", config.version)));
        }
        if !config.heap.alignment.is_power_of_two() {
            return Err(bad_input(format!(
                "{name}: heap.alignment is {}, expected a power of two",
                config.heap.alignment
            )));
        }
        Ok(config)
    }

    /// For the oracle.
    pub fn shape(&self) -> HeapShape {
        HeapShape {
            alignment: self.heap.alignment,
            smallest_bytes: self.heap.smallest_bytes,
            heap_bytes: self.heap.heap_bytes,
            limit_bytes: self.heap.limit_bytes,
            slots: self.heap.slots,
            is_relocated: self.heap.relocates,
        }
    }

    /// The program that runs workloads and probes.
    pub fn runner(&self) -> &Path {
        &self.runner
    }

    /// What was built for the trace.
    fn programs(&self) -> Vec<PathBuf> {
        [&self.adapter].into_iter().chain(&self.upgrade).chain([&self.runner]).cloned().collect()
    }

    /// What sites are called.
    pub fn symbols(&self) -> Symbols {
        Symbols::new(self.programs(), self.helpers.clone())
    }

    /// The text with a place in words, where it has one as the runner names it: `MODULE+0xOFFSET`, of the adapter with hooks or of a library
    /// that was built with it.
    pub fn with_place(&self, text: &str) -> String {
        let Some(adapter) = &self.hooked_adapter else { return text.to_owned() };
        let Some(start) = text.find(OFFSET_MARK) else { return text.to_owned() };
        let digits_at = start + OFFSET_MARK.len();
        let name_at = text[..start].rfind(char::is_whitespace).map_or(0, |space| space + 1);
        let module = adapter.with_file_name(&text[name_at..start]);
        let digits = text[digits_at..].find(|c: char| !c.is_ascii_hexdigit()).map_or(text.len(), |end| digits_at + end);
        let Ok(offset) = u64::from_str_radix(&text[digits_at..digits], 16) else { return text.to_owned() };
        if start == name_at || !module.exists() {
            return text.to_owned();
        }
        let places = self.symbols().of_places(&[Some((module.as_path().into(), offset))]);
        let place = places.first().map(Symbol::text).unwrap_or_default();
        format!("{}{place}, {}", &text[..name_at], &text[name_at..])
    }

    /// Whether all that the edits do is to leave flushes and fences out.
    pub fn only_leaves_out(&self) -> bool {
        self.edits.iter().all(Edit::only_leaves_out) && self.later_edits.iter().all(Edit::only_leaves_out)
    }

    /// Where power does not fail at first, and why, in words for the certificate; empty: it fails everywhere.
    pub fn start_text(&self) -> String {
        match (self.start, self.contract.create_unsafe) {
            (Start::Named(StartName::Create), false) => String::new(),
            (Start::Named(StartName::Workload), _) => " without its creation (--start workload)".to_owned(),
            (Start::Named(StartName::Create), true) => {
                " without its creation, of which the contract promises nothing (create_unsafe)".to_owned()
            }
            (Start::Operation(first), _) => format!(" from operation {first} on (--start {first})"),
        }
    }

    /// Whether power does not fail yet where the heap has this history.
    pub fn is_before_start(&self, now: &Generation) -> bool {
        let is_creation = now.phase() != Phase::Created;
        let is_unsafe = is_creation && self.contract.create_unsafe;
        match self.start {
            Start::Named(StartName::Create) => is_unsafe,
            Start::Named(StartName::Workload) => is_creation,
            Start::Operation(first) => is_unsafe || !now.has_begun_from(first),
        }
    }

    /// # Errors
    /// Bad input: no operation of the trace is one that the exploration starts with.
    pub fn check_start(&self, trace: &Trace) -> Result<(), EngineError> {
        let Start::Operation(first) = self.start else { return Ok(()) };
        let last = trace.events.iter().filter_map(|event| match &event.kind {
            EventKind::OperationBegin { index, .. } => Some(*index),
            _ => None,
        });
        let last = last.max().unwrap_or(0);
        if last < first {
            return Err(EngineError::BadInput(format!(
                "--start {first}: the last operation of the workload is {last}; name that one or one before it"
            )));
        }
        Ok(())
    }

    /// The engines that see what recoveries load, the fastest first; the one that was asked for, and slower ones.
    pub fn seeing_engines(&self) -> Vec<EngineKind> {
        let is_whole = self.hooked_adapter.is_some() && self.without_hooks.is_none();
        let in_process = is_whole.then_some(EngineKind::InProcess);
        let traced = (!self.tracer.is_empty()).then_some(EngineKind::Traced);
        in_process.into_iter().chain(traced).filter(|kind| self.engine.is_none_or(|first| first <= *kind)).collect()
    }

    /// Why the build with hooks does not run though there is one.
    pub fn why_not_in_process(&self) -> Option<String> {
        let part = self.without_hooks.as_ref().filter(|_| self.engine.is_none() && self.hooked_adapter.is_some())?;
        Some(format!("{part} was compiled without hooks"))
    }

    /// The engine that runs recoveries where their loads are needed.
    pub fn engine(&self) -> EngineKind {
        self.seeing_engines().first().copied().unwrap_or(EngineKind::Isolated)
    }

    /// The same, with this taken for repaired.
    pub fn with_repaired(&self, repaired: AsRepaired) -> Self {
        Self { as_repaired: Arc::new(repaired), ..self.clone() }
    }

    /// The same with this engine, or slower ones.
    pub fn with_engine(&self, engine: EngineKind) -> Self {
        Self { engine: Some(engine), ..self.clone() }
    }

    /// Whether there is an engine that sees what recoveries load.
    pub fn sees_loads(&self) -> bool {
        self.engine() != EngineKind::Isolated
    }

    /// Whether all of the probe script is run.
    pub fn is_full(&self) -> bool {
        self.probe != ProbeName::First
    }

    /// How much of the probe script is run, as servers are asked.
    pub fn probe(&self) -> Probe {
        match self.probe {
            ProbeName::First => Probe::First,
            ProbeName::Full => Probe::Full,
            ProbeName::Deep => Probe::Deep,
        }
    }

    /// The same for long lives: of one state drawn at each crash position, by the first crash alone.
    pub fn for_long_lives(&self) -> Self {
        let limits = Limits { samples: 1, ..self.limits };
        Self { probe: ProbeName::Deep, strategy: &Sample, nested: 0, limits, ..self.clone() }
    }

    /// The same, where power failure loses these file operations.
    pub fn with_loss(&self, loss: &Loss) -> Self {
        Self { loss: Arc::new(loss.clone()), ..self.clone() }
    }

    /// Whether power failure may lose file operations.
    pub fn loses_file_operations(&self) -> bool {
        let file_system = self.file_system.unwrap_or(self.contract.file_system);
        file_system == FileSystem::Posix && self.model.loses_file_operations()
    }

    /// The same for a token: with the whole probe that shows it. Earlier tokens say by their rule alone that it is a long life.
    ///
    /// # Errors
    /// When the trace has no file operations that can be lost as the token says.
    pub fn for_token(self, witness: &Witness, trace: &Trace) -> Result<Self, EngineError> {
        let is_of_long_life = witness.is_of_long_life || witness.rule.parse() == Ok(RuleId::NotLasting);
        let probe = if is_of_long_life { ProbeName::Deep } else { ProbeName::Full };
        let of_token = Self { probe, ..self };
        if witness.lost.is_empty() {
            return Ok(of_token);
        }
        let losses = losses(&trace.events, &trace.unsynced);
        let loss = losses.find(&witness.lost, witness.position).ok_or_else(|| {
            bad_input("the token loses file operations that cannot be lost there; trace the same build and workload")
        })?;
        Ok(of_token.with_loss(loss))
    }

    /// What bounds each search of `complete`. A worker's memory is shared, about equally, by the searches that it has at a time: one over the
    /// workload, and for each later crash that of the recoveries that are traced, that of the recoveries after it, and what is remembered of
    /// their starts.
    pub fn bounds(&self) -> Bounds {
        let leaves = self.limits.leaves.unwrap_or(LEAF_LIMIT) as usize;
        let of_worker = (self.limits.memory_mib.unwrap_or(MEMORY_LIMIT_MIB) as usize) << 20;
        let bytes = of_worker / (1 + SEARCHES_OF_CRASH * self.nested as usize);
        Bounds { leaves, bytes, seed: self.seed }
    }

    /// What a user may set of strategies.
    pub fn options(&self) -> Options {
        let Limits { samples, exhaustive_states, .. } = self.limits;
        Options { seed: self.seed, samples, exhaustive_states }
    }

    /// As [`Config::server`], for runs that explore with a strategy.
    ///
    /// # Errors
    /// As [`Config::server`].
    pub fn exploring_server(&self, strategy: &dyn Strategy) -> Result<ServerOptions, EngineError> {
        if strategy.follows_loads() { self.recording_server() } else { self.batching_server() }
    }

    /// As [`Config::server`], for runs whose loads are recorded: in the engine that sees them, if there is one.
    ///
    /// # Errors
    /// As [`Config::server`].
    pub fn recording_server(&self) -> Result<ServerOptions, EngineError> {
        match self.engine() {
            EngineKind::InProcess => Ok(ServerOptions { is_in_process: true, ..self.seeing_server("recorded")? }),
            EngineKind::Traced => self.seeing_server("recorded"),
            EngineKind::Isolated => self.batching_server(),
        }
    }

    /// As [`Config::server`], for the referee of in-process runs: the traced engine. None: runs are not in-process, or there is no tracer.
    ///
    /// # Errors
    /// As [`Config::server`].
    pub fn referee_server(&self) -> Result<Option<ServerOptions>, EngineError> {
        if self.engine() != EngineKind::InProcess || self.tracer.is_empty() {
            return Ok(None);
        }
        self.with_engine(EngineKind::Traced).seeing_server("referee").map(Some)
    }

    /// Whether recoveries map the heap at other addresses than the workload did.
    pub fn relocates(&self) -> bool {
        self.heap.relocates
    }

    /// `runner twins` of the workload: what the first build makes, opened by the one that recovers.
    pub fn twins_command(&self, options: &ServerOptions) -> Command {
        let made = ServerOptions { adapter: self.adapter.clone(), ..options.clone() };
        let mut command = made.command("twins");
        command.arg("--workload").arg(&self.workload_file).stdin(Stdio::null());
        if let Some(upgrade) = &self.upgrade {
            command.arg("--opened-by").arg(upgrade);
        }
        command
    }

    /// As [`Config::server`], where the heap was made, if this one recovers it elsewhere.
    ///
    /// # Errors
    /// As [`Config::server`].
    pub fn heap_in_place_server(&self) -> Result<Option<ServerOptions>, EngineError> {
        if !self.relocates() {
            return Ok(None);
        }
        Ok(Some(ServerOptions { relocated_by: None, ..self.server("heap-in-place")? }))
    }

    /// As [`Config::server`], with the target's code where it was in the trace. None: there is no tracer, and nothing else has it there; or
    /// other code recovers.
    ///
    /// # Errors
    /// As [`Config::server`].
    pub fn code_server(&self, is_in_place: bool) -> Result<Option<ServerOptions>, EngineError> {
        if self.tracer.is_empty() || self.upgrade.is_some() {
            return Ok(None);
        }
        let server = self.server(if is_in_place { "code-in-place" } else { "code-moved" })?;
        Ok(Some(ServerOptions { tracer: self.tracer.clone(), is_code_in_place: is_in_place, ..server }))
    }

    /// Whether the word could be an address of the program, of its code or its data, in the trace.
    pub fn may_be_of_code(&self, word: u64) -> bool {
        let heap = self.heap.address_hint..self.heap.address_hint + self.heap.limit_bytes;
        TRACED_CODE.contains(&word) && !heap.contains(&word)
    }

    /// As [`Config::server`]; first parts of the probe are run in one process with others.
    ///
    /// # Errors
    /// As [`Config::server`].
    pub fn batching_server(&self) -> Result<ServerOptions, EngineError> {
        Ok(ServerOptions { is_batched: true, ..self.server("images")? })
    }

    /// As [`Config::server`], with loads seen, each run in a process of its own: for a few runs.
    ///
    /// # Errors
    /// As [`Config::server`].
    pub fn seeing_server(&self, purpose: &str) -> Result<ServerOptions, EngineError> {
        let server = self.server(purpose)?;
        Ok(match (self.engine(), &self.hooked_adapter) {
            (EngineKind::InProcess, Some(hooked)) => ServerOptions { adapter: hooked.clone(), ..server },
            (EngineKind::Traced, _) => ServerOptions { tracer: self.tracer.clone(), ..server },
            _ => server,
        })
    }

    /// A server (or `runner` command) with a scratch folder of its own.
    ///
    /// # Errors
    /// When the folder cannot be made.
    pub fn server(&self, purpose: &str) -> Result<ServerOptions, EngineError> {
        let scratch = self.scratch.join(purpose);
        std::fs::create_dir_all(&scratch)
            .map_err(|error| EngineError::Infrastructure(format!("{}: cannot be made: {error}", scratch.display())))?;
        Ok(ServerOptions {
            runner: self.runner.clone(),
            tracer: Vec::new(),
            adapter: self.upgrade.as_ref().unwrap_or(&self.adapter).clone(),
            scratch,
            heap_bytes: self.heap.heap_bytes,
            limit_bytes: self.heap.limit_bytes,
            slots: self.heap.slots,
            slot_layout: self.heap.slot_layout.clone(),
            is_lazy: self.heap.is_lazy,
            address_hint: self.heap.address_hint,
            cpu_limit_ms: self.limits.cpu_limit_ms,
            wall_limit_ms: self.limits.wall_limit_ms,
            ends: self.ends,
            is_in_process: false,
            is_batched: false,
            is_unchecked: false,
            relocated_by: self.heap.relocates.then_some(self.contract.mapping_alignment),
            is_code_in_place: false,
            printed: None,
            ends_when_full: self.contract.out_of_memory == OutOfMemory::Ends,
            seed: self.seed,
        })
    }
}
