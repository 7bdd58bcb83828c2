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

use crate::model::{LineKey, Model, PersistencyModel};
use crate::strategy::{Asked, Exhaustive, Strategy};
use crate::trace::{Event, EventKind, FenceKind, FileId, FlushKind, LINE_BYTES, SiteId, StoreKind, ThreadId};
use std::collections::BTreeSet;
use std::fmt;
use std::ops::ControlFlow;

/// Most states, over all positions, that a litmus test may have.
const STATE_LIMIT: u128 = 1 << 20;
/// Most variables: a state holds a value for each.
const VARIABLE_LIMIT: usize = 64;
const FILE: FileId = FileId(0);

/// What is wrong with a litmus file: line number from 1 (0: the whole file) and message.
#[derive(Debug, thiserror::Error)]
#[error("{line}: {message}")]
#[allow(missing_docs)]
pub struct LitmusError {
    pub line: usize,
    pub message: String,
}

/// A value for each variable, in the order of [`Litmus::variables`].
pub type State = Vec<u64>;

/// A parsed test.
#[derive(Debug)]
pub struct Litmus {
    /// Its name.
    pub name: String,
    /// Name and byte offset of each variable.
    pub variables: Vec<(String, u64)>,
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
                parser.line(line).map_err(|message| LitmusError { line: index + 1, message })?;
            }
        }
        parser.finish().map_err(|message| LitmusError { line: 0, message })
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
        let mut model = Model::new(model, Vec::new());
        let mut states = BTreeSet::from([vec![0; self.variables.len()]]);
        let mut left = limit;
        for (number, event) in self.events.iter().enumerate() {
            model.step(number as u32, event);
            let view = model.view();
            let Some(rest) = view.state_count().and_then(|count| left.checked_sub(count)) else {
                return Err(LitmusError { line: 0, message: format!("more than {limit} states") });
            };
            left = rest;
            let _ = Exhaustive.states(&Asked::all(&view), &mut |choices| {
                states.insert(self.values(&model, &view, choices));
                ControlFlow::Continue(())
            });
        }
        Ok(states)
    }

    fn values(&self, model: &Model, view: &crate::model::View, choices: &[crate::model::Choice]) -> State {
        let value = |offset: u64| {
            let Some(id) = model.find(LineKey { file: FILE, number: offset / LINE_BYTES }) else { return 0 };
            let open = view.lines.iter().position(|line| line.id == id);
            let choice = open.map_or_else(Default::default, |at| choices[at]);
            let (content, _) = model.line(id).content(choice);
            let at = (offset % LINE_BYTES) as usize;
            u64::from_le_bytes(content[at..at + 8].try_into().expect("8 bytes"))
        };
        self.variables.iter().map(|(_, offset)| value(*offset)).collect()
    }

    /// `x=0 y=1`.
    pub fn show(&self, state: &State) -> String {
        let parts: Vec<String> =
            self.variables.iter().zip(state).map(|((name, _), value)| format!("{name}={value}")).collect();
        parts.join(" ")
    }
}

/// The test as a file: parsing it gives the same test again.
impl fmt::Display for Litmus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "name: {}", self.name)?;
        let last = self.variables.last().map_or(0, |(_, offset)| offset / LINE_BYTES);
        let on_line = |number: u64| {
            let names = self.variables.iter().filter(move |(_, offset)| offset / LINE_BYTES == number);
            names.map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(" ")
        };
        writeln!(f, "lines: {}", (0..=last).map(on_line).collect::<Vec<_>>().join(" | "))?;
        for event in &self.events {
            writeln!(f, "T{}: {}", event.thread.thread, self.show_step(&event.kind))?;
        }
        match &self.allowed {
            Some(allowed) => {
                let states: Vec<String> = allowed.iter().map(|state| self.show(state)).collect();
                writeln!(f, "allowed: {}", states.join(" ; "))
            }
            None => Ok(()),
        }
    }
}

impl Litmus {
    fn show_step(&self, step: &EventKind) -> String {
        let name = |offset: u64| {
            self.variables.iter().find(|(_, other)| *other == offset).map_or("?", |(name, _)| name.as_str())
        };
        match step {
            EventKind::Flush { kind, offset, .. } => {
                let instruction = match kind {
                    FlushKind::Clflush => "clflush",
                    FlushKind::Clflushopt => "clflushopt",
                    FlushKind::Clwb => "clwb",
                };
                format!("{instruction} {}", name(*offset))
            }
            EventKind::Store { kind, offset, bytes, .. } => {
                let values: Vec<String> = bytes
                    .chunks_exact(8)
                    .map(|unit| u64::from_le_bytes(unit.try_into().expect("8 bytes")).to_string())
                    .collect();
                let first = name(*offset);
                match kind {
                    StoreKind::Plain if values.len() == 2 => {
                        format!("wide {first} {} = {}", name(offset + 8), values.join(" "))
                    }
                    StoreKind::Plain => format!("{first} = {}", values[0]),
                    StoreKind::NonTemporal => format!("nt {first} = {}", values[0]),
                    StoreKind::Rmw => format!("rmw {first} = {}", values[0]),
                }
            }
            EventKind::Fence { kind: FenceKind::Mfence } => "mfence".to_owned(),
            _ => "sfence".to_owned(),
        }
    }
}

#[derive(Default)]
struct Parser {
    name: Option<String>,
    variables: Vec<(String, u64)>,
    events: Vec<Event>,
    allowed: Option<BTreeSet<State>>,
}

type Parsed<T> = Result<T, String>;

impl Parser {
    fn line(&mut self, line: &str) -> Parsed<()> {
        let (key, rest) = line.split_once(':').ok_or("expected `name:`, `lines:`, `T<n>:` or `allowed:`")?;
        let (key, rest) = (key.trim(), rest.trim());
        match key {
            "name" if rest.is_empty() => Err("expected a name".into()),
            "name" if self.name.is_some() => Err("a second `name:`".into()),
            "name" => {
                self.name = Some(rest.to_owned());
                Ok(())
            }
            "lines" => self.lines(rest),
            "allowed" => self.allowed(rest),
            _ => {
                let thread = key.strip_prefix('T').and_then(|number| number.parse::<u16>().ok());
                let thread = thread
                    .ok_or_else(|| format!("{key:?} is neither `name`, `lines`, `allowed` nor a thread like `T0`"))?;
                let kind = self.step(rest)?;
                let thread = ThreadId { process: 1, thread };
                self.events.push(Event { thread, site: SiteId(0), kind });
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
                "{text:?} is no step: expected `v = N`, `nt v = N`, `wide a b = N M`, `clflush v`, `clflushopt v`, `clwb v`, `sfence`, `mfence` or `rmw v = N`"
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
            let value: u64 = value.parse().map_err(|_| format!("{value:?} is no number"))?;
            bytes.extend(value.to_le_bytes());
        }
        Ok(EventKind::Store { kind, file: FILE, offset, bytes: bytes.into() })
    }

    fn allowed(&mut self, rest: &str) -> Parsed<()> {
        let states = self.allowed.get_or_insert_with(BTreeSet::new);
        for text in rest.split(';').map(str::trim).filter(|text| !text.is_empty()) {
            let mut state: Vec<Option<u64>> = vec![None; self.variables.len()];
            for part in text.split_whitespace() {
                let (name, value) =
                    part.split_once('=').ok_or_else(|| format!("{part:?}: expected `variable=number`"))?;
                let at = self
                    .variables
                    .iter()
                    .position(|(other, _)| other == name)
                    .ok_or_else(|| format!("variable {name:?} is not in `lines:`"))?;
                if state[at].is_some() {
                    return Err(format!("state {text:?} names {name:?} twice"));
                }
                state[at] = Some(value.parse().map_err(|_| format!("{value:?} is no number"))?);
            }
            let whole: Option<State> = state.into_iter().collect();
            states.insert(whole.ok_or_else(|| format!("state {text:?} does not name every variable"))?);
        }
        Ok(())
    }

    fn finish(self) -> Parsed<Litmus> {
        if self.variables.is_empty() {
            return Err("no `lines:`".into());
        }
        Ok(Litmus {
            name: self.name.ok_or("no `name:`")?,
            variables: self.variables,
            events: self.events,
            allowed: self.allowed,
        })
    }
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
