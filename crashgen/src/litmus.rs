// SPDX-License-Identifier: Apache-2.0
//! Litmus tests: small programs with the exact set of states that power failure may leave, over all crash positions.
//!
//! ```text
//! name: clwb-needs-a-fence
//! lines: x | y                # one line each; `x y | z` puts x and y on one line
//! T0: x = 1
//! T0: clwb x
//! T0: y = 1
//! allowed: x=0 y=0 ; x=1 y=0 ; x=0 y=1 ; x=1 y=1
//! ```
//!
//! Steps are in memory order: `v = N`, `nt v = N`, `wide a b = N M` (one 16-byte store to two adjacent units), `clflush v`,
//! `clflushopt v`, `clwb v`, `sfence`, `mfence`, `rmw v = N`. Variables are 8 bytes and start at 0.
//!
//! ```text
//! name: a-name-needs-a-sync-of-its-folder
//! fs: posix                   # or `ordered`, which is usual
//! lines of f: x               # the variables lie in f, and x is 0 where f does not have it
//! T0: create f
//! T0: truncate f 4096
//! T0: fsync f
//! allowed: f=none x=0 ; f=0 x=0 ; f=4096 x=0
//! ```
//!
//! Steps on files are `create f`, `truncate f N`, `extend f N` (fallocate), `write v = N` (by a system call), `unlink f`, `rename f g`, `mkdir d`,
//! `rmdir d`, `fsync f`, `fsync dir` (where the files lie), `fsync dir d` and `sync`. A state has the size of each file that a step names, or
//! `none`, and 0 for a folder. `unsynced: f` says that f is mapped without MAP_SYNC.

use crate::model::losses::{Loss, Losses, losses};
use crate::model::{LineKey, Model, PersistencyModel};
use crate::strategy::{Asked, Exhaustive, Strategy};
use crate::trace::{
    Event, EventKind, FenceKind, FileEffect, FileId, FlushKind, LINE_BYTES, SiteId, StoreKind, ThreadId,
};
use std::collections::BTreeSet;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Most states, over all positions, that a litmus test may have.
const STATE_LIMIT: u128 = 1 << 20;
/// Most variables: a state holds a value for each.
const VARIABLE_LIMIT: usize = 64;
/// The file that the variables lie in.
const FILE: FileId = FileId(0);
/// Its size, where no step makes it.
const FILE_BYTES: u64 = 1 << 20;
/// In the place of a size: there is no such file.
const NONE: u64 = u64::MAX;

/// What is wrong with a litmus file: line number from 1 (0: the whole file) and message.
#[derive(Debug, thiserror::Error)]
#[error("{line}: {message}")]
#[allow(missing_docs)]
pub struct LitmusError {
    pub line: usize,
    pub message: String,
}

/// A value for each variable, in the order of [`Litmus::variables`], and then for each name in that of [`Litmus::names`].
pub type State = Vec<u64>;

/// A parsed test.
#[derive(Debug)]
pub struct Litmus {
    /// Its name.
    pub name: String,
    /// Name and byte offset of each variable.
    pub variables: Vec<(String, u64)>,
    /// Files and folders that steps name.
    pub names: Vec<String>,
    /// The file system promises no more than POSIX does.
    is_posix: bool,
    /// The file of the variables, where a step makes it.
    lies_in: Option<String>,
    /// It is mapped without MAP_SYNC.
    is_unsynced: bool,
    /// Thread and words of each step.
    steps: Vec<(u16, String)>,
    /// Events before the first step.
    steps_at: usize,
    /// Events before the end of each step.
    ends: Vec<usize>,
    events: Vec<Event>,
    /// The states it allows; none when the file has no `allowed:`.
    pub allowed: Option<BTreeSet<State>>,
}

impl Litmus {
    /// Parses a test.
    ///
    /// # Errors
    /// The first line that is wrong, and what was expected.
    pub fn parse(text: &str) -> Result<Self, LitmusError> {
        let mut parser = Parser::default();
        for (index, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if !line.is_empty() {
                parser.line(index + 1, line).map_err(|message| LitmusError { line: index + 1, message })?;
            }
        }
        parser.finish()
    }

    /// All reachable persisted states, over all crash positions, the one before the first step included.
    ///
    /// # Errors
    /// When the positions have more than 2^20 states together.
    pub fn states(&self, model: &'static dyn PersistencyModel) -> Result<BTreeSet<State>, LitmusError> {
        self.states_up_to(model, STATE_LIMIT)
    }

    /// [`Litmus::states`] under another limit.
    ///
    /// # Errors
    /// When the positions have more than `limit` states together.
    pub fn states_up_to(
        &self,
        model: &'static dyn PersistencyModel,
        limit: u128,
    ) -> Result<BTreeSet<State>, LitmusError> {
        Ok(self.by_step(model, limit)?.into_iter().flatten().collect())
    }

    /// The same, by the steps that have ended when power fails: none, the first one, ... all.
    ///
    /// # Errors
    /// As [`Litmus::states`].
    pub fn states_by_step(&self, model: &'static dyn PersistencyModel) -> Result<Vec<BTreeSet<State>>, LitmusError> {
        self.by_step(model, STATE_LIMIT)
    }

    fn by_step(&self, model: &'static dyn PersistencyModel, limit: u128) -> Result<Vec<BTreeSet<State>>, LitmusError> {
        let mut found = Found { states: vec![BTreeSet::new(); self.ends.len() + 1], left: limit, limit };
        let last = self.events.len() as u32;
        self.add_states(model, &Loss { operations: Arc::default(), first: self.steps_at as u32, last }, &mut found)?;
        if self.is_posix && model.loses_file_operations() {
            let unsynced = if self.is_unsynced { BTreeSet::from([FILE]) } else { BTreeSet::new() };
            let Losses { sets, bounded_at } = losses(&self.events, &unsynced);
            if bounded_at.is_some() {
                return Err(found.too_many());
            }
            for loss in sets.iter().filter(|loss| loss.first as usize > self.steps_at) {
                self.add_states(model, loss, &mut found)?;
            }
        }
        Ok(found.states)
    }

    /// Adds the states of the crash positions that lose these operations.
    fn add_states(
        &self,
        model: &'static dyn PersistencyModel,
        loss: &Loss,
        found: &mut Found,
    ) -> Result<(), LitmusError> {
        let mut model = Model::new(model, Vec::new()).losing(loss.operations.clone());
        if loss.first == 0 {
            found.states[0].insert(self.values(&model, &model.view(), &[]));
        }
        for (number, event) in self.events[..loss.last as usize].iter().enumerate() {
            model.step(number as u32, event);
            if number + 1 < loss.first as usize {
                continue;
            }
            let view = model.view();
            let ended = self.ends.partition_point(|end| *end <= number + 1);
            found.left =
                view.state_count().and_then(|count| found.left.checked_sub(count)).ok_or_else(|| found.too_many())?;
            let _ = Exhaustive.states(&Asked::all(&view), &mut |choices| {
                found.states[ended].insert(self.values(&model, &view, choices));
                ControlFlow::Continue(())
            });
        }
        Ok(())
    }

    fn values(&self, model: &Model, view: &crate::model::View, choices: &[crate::model::Choice]) -> State {
        let is_there = |offset: u64| {
            let has = |file: &crate::model::FileState| file.path.is_some() && offset + 8 <= file.bytes;
            self.names.is_empty() || model.files().get(&FILE).is_some_and(has)
        };
        let value = |offset: u64| {
            if !is_there(offset) {
                return 0;
            }
            let Some(id) = model.find(LineKey { file: FILE, number: offset / LINE_BYTES }) else { return 0 };
            let open = view.lines.iter().position(|line| line.id == id);
            let choice = open.map_or_else(Default::default, |at| choices[at]);
            let (content, _) = model.line(id).content(choice);
            let at = (offset % LINE_BYTES) as usize;
            u64::from_le_bytes(content[at..at + 8].try_into().expect("8 bytes"))
        };
        let size = |name: &String| {
            let file = model.files().values().find(|file| file.path.as_deref() == Some(name));
            let is_folder = model.folders().contains(name.as_str());
            file.map_or(if is_folder { 0 } else { NONE }, |file| file.bytes)
        };
        let variables = self.variables.iter().map(|(_, offset)| value(*offset));
        variables.chain(self.names.iter().map(size)).collect()
    }

    /// `x=0 y=1 f=4096 g=none`.
    pub fn show(&self, state: &State) -> String {
        let names = self.variables.iter().map(|(name, _)| name).chain(&self.names);
        let value = |value: &u64| if *value == NONE { "none".to_owned() } else { value.to_string() };
        names.zip(state).map(|(name, of)| format!("{name}={}", value(of))).collect::<Vec<_>>().join(" ")
    }
}

/// The test as a file: parsing it gives the same test again.
impl fmt::Display for Litmus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "name: {}", self.name)?;
        if self.is_posix {
            writeln!(f, "fs: posix")?;
        }
        if !self.variables.is_empty() {
            let last = self.variables.last().map_or(0, |(_, offset)| offset / LINE_BYTES);
            let on_line = |number: u64| {
                let names = self.variables.iter().filter(move |(_, offset)| offset / LINE_BYTES == number);
                names.map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(" ")
            };
            let place = self.lies_in.as_ref().map(|file| format!(" of {file}")).unwrap_or_default();
            writeln!(f, "lines{place}: {}", (0..=last).map(on_line).collect::<Vec<_>>().join(" | "))?;
        }
        if let (true, Some(file)) = (self.is_unsynced, &self.lies_in) {
            writeln!(f, "unsynced: {file}")?;
        }
        for (thread, words) in &self.steps {
            writeln!(f, "T{thread}: {words}")?;
        }
        let Some(allowed) = &self.allowed else { return Ok(()) };
        let states: Vec<String> = allowed.iter().map(|state| self.show(state)).collect();
        writeln!(f, "allowed: {}", states.join(" ; "))
    }
}

/// The states that were found so far, by the steps that have ended.
struct Found {
    states: Vec<BTreeSet<State>>,
    /// How many more there may be.
    left: u128,
    limit: u128,
}

impl Found {
    fn too_many(&self) -> LitmusError {
        LitmusError { line: 0, message: format!("more than {} states", self.limit) }
    }
}

#[derive(Default)]
struct Parser {
    name: Option<String>,
    variables: Vec<(String, u64)>,
    is_posix: bool,
    lies_in: Option<String>,
    is_unsynced: bool,
    names: Vec<String>,
    /// Files that were made so far: their names now. One that was unlinked or replaced has none.
    files: Vec<Option<String>>,
    steps: Vec<(u16, String)>,
    ends: Vec<usize>,
    events: Vec<Event>,
    /// What `allowed:` says, in words, until all names are known.
    allowed: Option<Vec<(usize, String)>>,
}

type Parsed<T> = Result<T, String>;

impl Parser {
    fn line(&mut self, number: usize, line: &str) -> Parsed<()> {
        let (key, rest) =
            line.split_once(':').ok_or("expected `name:`, `fs:`, `lines:`, `unsynced:`, `T<n>:` or `allowed:`")?;
        let (key, rest) = (key.trim(), rest.trim());
        if let Some(file) = key.strip_prefix("lines of ") {
            self.lies_in = Some(file.trim().to_owned());
            return self.lines(rest);
        }
        match key {
            "name" if rest.is_empty() => Err("expected a name".into()),
            "name" if self.name.is_some() => Err("a second `name:`".into()),
            "name" => {
                self.name = Some(rest.to_owned());
                Ok(())
            }
            "lines" => self.lines(rest),
            "fs" => {
                self.is_posix = match rest {
                    "posix" => true,
                    "ordered" => false,
                    _ => return Err(format!("fs {rest:?}: expected `ordered` or `posix`")),
                };
                Ok(())
            }
            "unsynced" if self.lies_in.as_deref() == Some(rest) => {
                self.is_unsynced = true;
                Ok(())
            }
            "unsynced" => Err(format!("unsynced: {rest:?} is no file of `lines of`")),
            "allowed" => {
                self.allowed.get_or_insert_with(Vec::new).push((number, rest.to_owned()));
                Ok(())
            }
            _ => {
                let thread = key.strip_prefix('T').and_then(|number| number.parse::<u16>().ok());
                let thread = thread.ok_or_else(|| {
                    format!("{key:?} is neither `name`, `fs`, `lines`, `unsynced`, `allowed` nor a thread like `T0`")
                })?;
                self.steps.push((thread, rest.split_whitespace().collect::<Vec<_>>().join(" ")));
                let thread = ThreadId { process: 1, thread };
                match self.effect(rest)? {
                    Some(effect) => self.file_operation(thread, effect),
                    None => {
                        let kind = self.step(rest)?;
                        self.events.push(Event { thread, site: SiteId(0), kind });
                    }
                }
                self.ends.push(self.events.len());
                Ok(())
            }
        }
    }

    fn lines(&mut self, rest: &str) -> Parsed<()> {
        if !self.variables.is_empty() {
            return Err("a second `lines:`".into());
        }
        for (number, names) in rest.split('|').enumerate() {
            for (unit, name) in names.split_whitespace().enumerate() {
                if unit as u64 >= LINE_BYTES / 8 {
                    return Err("a line holds at most 8 variables".into());
                }
                if self.variables.iter().any(|(other, _)| other == name) {
                    return Err(format!("variable {name:?} is there twice"));
                }
                self.variables.push((name.to_owned(), number as u64 * LINE_BYTES + unit as u64 * 8));
            }
        }
        if self.variables.len() > VARIABLE_LIMIT {
            return Err(format!("{} variables, expected at most {VARIABLE_LIMIT}", self.variables.len()));
        }
        if self.variables.is_empty() { Err("expected variables, like `x | y`".into()) } else { Ok(()) }
    }

    fn offset(&self, name: &str) -> Parsed<u64> {
        let found = self.variables.iter().find(|(other, _)| other == name);
        found.map(|(_, offset)| *offset).ok_or_else(|| format!("variable {name:?} is not in `lines:`"))
    }

    /// What a step does to files; none: it does nothing to them.
    fn effect(&mut self, text: &str) -> Parsed<Option<FileEffect>> {
        let words: Vec<&str> = text.split_whitespace().collect();
        Ok(Some(match words[..] {
            ["create", name] => {
                let file = self.make(name)?;
                FileEffect::Create { file, path: name.into() }
            }
            ["truncate", name, bytes] => FileEffect::Truncate { file: self.file(name)?, bytes: number(bytes)? },
            ["extend", name, bytes] => FileEffect::Extend { file: self.file(name)?, bytes: number(bytes)? },
            ["write", name, "=", value] => {
                let value = number(value)?.to_le_bytes();
                FileEffect::Write { file: FILE, offset: self.offset(name)?, bytes: value[..].into() }
            }
            ["unlink", name] => {
                let file = self.file(name)?;
                self.files[file.0 as usize] = None;
                FileEffect::Unlink { path: name.into() }
            }
            ["rename", from, to] => {
                let file = self.file(from)?;
                self.files.iter_mut().filter(|name| name.as_deref() == Some(to)).for_each(|name| *name = None);
                self.files[file.0 as usize] = Some(to.to_owned());
                self.name(to)?;
                FileEffect::Rename { from: from.into(), to: to.into() }
            }
            ["mkdir", name] => {
                self.name(name)?;
                FileEffect::MakeFolder { path: name.into() }
            }
            ["rmdir", name] => FileEffect::RemoveFolder { path: name.into() },
            ["fsync", "dir"] => FileEffect::SyncFolder { path: ".".into() },
            ["fsync", "dir", name] => FileEffect::SyncFolder { path: name.into() },
            ["fsync", name] => FileEffect::Sync { file: self.file(name)?, offset: 0, bytes: u64::MAX },
            ["sync"] => FileEffect::SyncAll,
            _ => return Ok(None),
        }))
    }

    fn file_operation(&mut self, thread: ThreadId, effect: FileEffect) {
        let effect = Arc::new(effect);
        let begin = EventKind::FileBegin { effect: effect.clone() };
        let end = EventKind::FileEnd { effect, is_done: true };
        self.events.extend([begin, end].map(|kind| Event { thread, site: SiteId(0), kind }));
    }

    /// A file or a folder that states show.
    fn name(&mut self, name: &str) -> Parsed<()> {
        if self.variables.iter().any(|(variable, _)| variable == name) {
            return Err(format!("{name:?} is a variable, and no file"));
        }
        if !self.names.iter().any(|known| known == name) {
            self.names.push(name.to_owned());
        }
        Ok(())
    }

    /// A new file; the one that the variables lie in has its number from the start.
    fn make(&mut self, name: &str) -> Parsed<FileId> {
        self.name(name)?;
        if self.files.is_empty() {
            self.files.push(None);
        }
        if self.files.iter().flatten().any(|known| known == name) {
            return Err(format!("{name:?} is there already"));
        }
        let is_theirs = self.lies_in.as_deref() == Some(name) && !self.has_made(FILE);
        if is_theirs {
            self.files[0] = Some(name.to_owned());
            return Ok(FILE);
        }
        self.files.push(Some(name.to_owned()));
        Ok(FileId(self.files.len() as u32 - 1))
    }

    fn has_made(&self, file: FileId) -> bool {
        let makes = |effect: &FileEffect| matches!(effect, FileEffect::Create { file: of, .. } if *of == file);
        self.events.iter().any(|event| matches!(&event.kind, EventKind::FileEnd { effect, .. } if makes(effect)))
    }

    fn file(&self, name: &str) -> Parsed<FileId> {
        let at = self.files.iter().position(|known| known.as_deref() == Some(name));
        let at = at.ok_or_else(|| format!("{name:?} is no file here: `create` makes one"))?;
        Ok(FileId(at as u32))
    }

    fn step(&self, text: &str) -> Parsed<EventKind> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let flush = |kind, name| Ok(EventKind::Flush { kind, file: FILE, offset: self.offset(name)? });
        match words[..] {
            ["sfence"] => Ok(EventKind::Fence { kind: FenceKind::Sfence }),
            ["mfence"] => Ok(EventKind::Fence { kind: FenceKind::Mfence }),
            ["clflush", name] => flush(FlushKind::Clflush, name),
            ["clflushopt", name] => flush(FlushKind::Clflushopt, name),
            ["clwb", name] => flush(FlushKind::Clwb, name),
            ["nt", name, "=", value] => self.store(StoreKind::NonTemporal, &[name], &[value]),
            ["rmw", name, "=", value] => self.store(StoreKind::Rmw, &[name], &[value]),
            ["wide", a, b, "=", x, y] => self.store(StoreKind::Plain, &[a, b], &[x, y]),
            [name, "=", value] => self.store(StoreKind::Plain, &[name], &[value]),
            _ => Err(format!(
                "{text:?} is no step: expected `v = N`, `nt v = N`, `wide a b = N M`, `clflush v`, `clflushopt v`, `clwb v`, `sfence`, `mfence`, `rmw v = N` or a file operation"
            )),
        }
    }

    fn store(&self, kind: StoreKind, names: &[&str], values: &[&str]) -> Parsed<EventKind> {
        let offset = self.offset(names[0])?;
        if names.len() == 2 && self.offset(names[1])? != offset + 8 {
            return Err(format!("{:?} and {:?} are not adjacent", names[0], names[1]));
        }
        let mut bytes = Vec::new();
        for value in values {
            bytes.extend(number(value)?.to_le_bytes());
        }
        Ok(EventKind::Store { kind, file: FILE, offset, bytes: bytes.into() })
    }

    /// The states of one `allowed:`.
    fn states(&self, rest: &str) -> Parsed<Vec<State>> {
        let names: Vec<&str> =
            self.variables.iter().map(|(name, _)| name.as_str()).chain(self.names.iter().map(String::as_str)).collect();
        let mut states = Vec::new();
        for text in rest.split(';').map(str::trim).filter(|text| !text.is_empty()) {
            let mut state: Vec<Option<u64>> = vec![None; names.len()];
            for part in text.split_whitespace() {
                let (name, value) =
                    part.split_once('=').ok_or_else(|| format!("{part:?}: expected `variable=number`"))?;
                let at = names.iter().position(|other| *other == name);
                let at = at.ok_or_else(|| format!("{name:?} is neither in `lines:` nor a file of a step"))?;
                if state[at].is_some() {
                    return Err(format!("state {text:?} names {name:?} twice"));
                }
                let is_none = at >= self.variables.len() && value == "none";
                state[at] = Some(if is_none { NONE } else { number(value)? });
            }
            let whole: Option<State> = state.into_iter().collect();
            states.push(whole.ok_or_else(|| format!("state {text:?} does not name every variable and file"))?);
        }
        Ok(states)
    }

    fn finish(mut self) -> Result<Litmus, LitmusError> {
        let whole = |message: &str| LitmusError { line: 0, message: message.to_owned() };
        if self.variables.is_empty() && self.names.is_empty() {
            return Err(whole("no `lines:`"));
        }
        if self.lies_in.as_ref().is_some_and(|_| !self.has_made(FILE)) {
            return Err(whole("no step creates the file of `lines of`"));
        }
        let mut allowed = None;
        for (line, rest) in self.allowed.iter().flatten() {
            let states = self.states(rest).map_err(|message| LitmusError { line: *line, message })?;
            allowed.get_or_insert_with(BTreeSet::new).extend(states);
        }
        let steps = std::mem::take(&mut self.events);
        if !self.names.is_empty() && self.lies_in.is_none() {
            self.make_file();
        }
        let steps_at = self.events.len();
        self.events.extend(steps);
        Ok(Litmus {
            name: self.name.ok_or_else(|| whole("no `name:`"))?,
            variables: self.variables,
            names: self.names,
            is_posix: self.is_posix,
            lies_in: self.lies_in,
            is_unsynced: self.is_unsynced,
            steps: self.steps,
            steps_at,
            ends: self.ends.iter().map(|end| steps_at + end).collect(),
            events: self.events,
            allowed,
        })
    }

    /// The variables lie in a file that is durable before the first step.
    fn make_file(&mut self) {
        let thread = ThreadId { process: 1, thread: 0 };
        for effect in [
            FileEffect::Create { file: FILE, path: "a file that no step names".into() },
            FileEffect::Truncate { file: FILE, bytes: FILE_BYTES },
            FileEffect::SyncAll,
        ] {
            self.file_operation(thread, effect);
        }
    }
}

fn number(text: &str) -> Parsed<u64> {
    text.parse().map_err(|_| format!("{text:?} is no number"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Px86;

    const CLWB: &str =
        "name: n\nlines: x | y\nT0: x = 1\nT0: clwb x\nT0: y = 1\nallowed: x=0 y=0 ; x=1 y=0 ; x=0 y=1 ; x=1 y=1\n";

    #[test]
    fn an_unfenced_flush_may_be_lost() {
        let litmus = Litmus::parse(CLWB).expect("valid");
        assert_eq!(litmus.states(&Px86).expect("small"), litmus.allowed.expect("given"));
    }

    #[test]
    fn a_fence_after_the_flush_orders_the_stores() {
        let litmus = Litmus::parse(&CLWB.replace("T0: y", "T0: sfence\nT0: y")).expect("valid");
        assert_eq!(litmus.states(&Px86).expect("small").len(), 3);
    }

    #[test]
    fn states_are_told_by_the_steps_that_have_ended() {
        let text = "name: n\nfs: posix\nlines: x\nT0: create f\nT0: fsync dir\nT0: x = 1\nT0: clwb x\nT0: sfence\n";
        let litmus = Litmus::parse(text).expect("valid");
        let by_step = litmus.states_by_step(&Px86).expect("small");
        let shown = by_step.iter().map(|states| states.iter().map(|state| litmus.show(state)).collect::<Vec<_>>());
        assert_eq!(
            shown.collect::<Vec<_>>(),
            [
                vec!["x=0 f=none"],
                vec!["x=0 f=0", "x=0 f=none"],
                vec!["x=0 f=0"],
                vec!["x=0 f=0", "x=1 f=0"],
                vec!["x=0 f=0", "x=1 f=0"],
                vec!["x=1 f=0"],
            ]
        );
    }

    #[test]
    fn wrong_input_names_its_line() {
        for (text, line) in [
            ("name: n\nlines: x\nT0: y = 1\n", 3),
            ("lines: x x", 1),
            ("name: n\nlines: x | y\nT0: wide x y = 1 2", 3),
            ("name: n", 0),
            ("lines: x\nallowed: x=0", 0),
            ("hello", 1),
        ] {
            assert_eq!(Litmus::parse(text).expect_err(text).line, line, "{text}");
        }
    }
}
