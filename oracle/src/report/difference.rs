// SPDX-License-Identifier: Apache-2.0
//! How two heap reports differ, in words, for people who want to see where two recoveries part.

use super::{Block, HeapReport, Life, Location, Maximal, Status};
use crate::judge::recovery_phrase;
use std::fmt::{Debug, Display};

/// Collects the differences of one pair of lives.
struct Differences<'a> {
    lives: [&'a Life; 2],
    /// Which life it is, in words.
    after: &'static str,
    texts: Vec<String>,
}

impl HeapReport {
    /// One line for each thing that differs from the other report, in the order of the probe: what is here, then what is there. Of a
    /// list: how many entries it has, and the first one that differs. Contents are left out.
    pub fn differences(&self, other: &HeapReport) -> Vec<String> {
        let mut texts = Vec::new();
        if (self.outcome, self.last_life, self.last_stage) != (other.outcome, other.last_life, other.last_stage) {
            let end = |report: &HeapReport| match report.last_stage {
                None => format!("{:?} in life {}", report.outcome, report.last_life),
                Some(stage) => format!("{:?} in life {} at {stage:?}", report.outcome, report.last_life),
            };
            texts.push(format!("the probe ended with {}, not {}", end(self), end(other)));
        }
        for (number, (one, another)) in self.lives.iter().zip(&other.lives).enumerate() {
            let mut differences =
                Differences { lives: [one, another], after: recovery_phrase(number as u16), texts: Vec::new() };
            differences.collect();
            texts.append(&mut differences.texts);
        }
        texts
    }
}

fn mapped(life: &Life) -> String {
    let place = if life.is_not_moved { "not where it was told to" } else { "where it was told to" };
    format!("{place}{}", if life.is_kept_out { ", and keeps a stray store out" } else { "" })
}

impl Differences<'_> {
    fn collect(&mut self) {
        self.value("open", |life| life.open.map(text));
        self.value("whether it had to recover", |life| life.has_recovered.map(text));
        self.value("where it is mapped", |life| life.open.is_some().then(|| mapped(life)));
        self.value("files", |life| (!life.files.is_empty()).then(|| life.files.join(", ")));
        self.value("slots", |life| life.slots.as_ref().map(|slots| status_and(slots.status, &slots.count, "slots")));
        self.list(
            "slots in use",
            |life| life.slots.as_ref().map(|slots| slots.entries.as_slice()),
            |life, entry| format!("slot {} points to {}", entry.slot, place(life, entry.location())),
        );
        self.value("settle", |life| life.settled.map(text));
        self.value("objects", |life| life.objects.as_ref().map(|objects| text(objects.status)));
        self.list(
            "objects",
            |life| life.objects.as_ref().map(|objects| objects.entries.as_slice()),
            |life, entry| {
                let field = |held: &Option<Location>| held.map_or("null".to_owned(), |at| place(life, at));
                let fields: Vec<String> = entry.fields.iter().map(field).collect();
                format!("{} with fields {}", place(life, entry.at), fields.join(", "))
            },
        );
        self.value("walk", |life| {
            life.walk.as_ref().map(|walk| status_and(walk.status, &walk.file_bytes, "bytes of files"))
        });
        self.list("heap blocks", |life| life.walk.as_ref().map(|walk| walk.blocks.as_slice()), block);
        self.value("retained", |life| {
            life.retained.as_ref().map(|retained| status_and(retained.status, &retained.unreached, "unreached"))
        });
        self.list(
            "retained heap blocks",
            |life| life.retained.as_ref().map(|retained| retained.blocks.as_slice()),
            block,
        );
        self.list(
            "files without heap blocks",
            |life| Some(life.unwalked.as_slice()),
            |life, unwalked| {
                let name = life.files.get(unwalked.file as usize).map_or("?", String::as_str);
                format!("{name} of {} bytes", unwalked.bytes)
            },
        );
        self.value("check", |life| life.check.map(text));
        self.value("the drain", |life| {
            life.drain.as_ref().map(|drain| status_and(drain.status, &drain.capacity_bytes, "bytes got"))
        });
        self.list("allocations of the drain", |life| life.drain.as_ref().map(|drain| drain.blocks.as_slice()), block);
        self.value("the freeing of all", |life| life.free_all.map(text));
        let maximal = |maximal: Maximal| status_and(maximal.status, &maximal.bytes, "bytes");
        self.value("the maximal allocation", |life| life.maximal.map(maximal));
        self.value("close", |life| life.close.map(text));
        self.value("create", |life| life.recreate.map(text));
        self.list("messages", |life| Some(life.messages.as_slice()), |_, message| message.text.clone());
    }

    fn value(&mut self, what: &str, of: impl Fn(&Life) -> Option<String>) {
        let [here, there] = self.lives.map(of);
        if here != there {
            let said = |value: Option<String>| value.unwrap_or_else(|| "nothing".to_owned());
            self.say(what, &format!("{}, not {}", said(here), said(there)));
        }
    }

    fn list<T: PartialEq>(
        &mut self,
        what: &str,
        of: impl Fn(&Life) -> Option<&[T]>,
        text: impl Fn(&Life, &T) -> String,
    ) {
        let [here, there] = self.lives.map(|life| of(life).unwrap_or_default());
        let longest = here.len().max(there.len());
        let Some(first) = (0..longest).find(|at| here.get(*at) != there.get(*at)) else { return };
        let said = |life: &Life, list: &[T]| list.get(first).map_or("nothing".to_owned(), |entry| text(life, entry));
        let count = match here.len() == there.len() {
            true => String::new(),
            false => format!("{}, not {}; ", here.len(), there.len()),
        };
        let [one, other] = self.lives;
        self.say(what, &format!("{count}the first that differs: {}, not {}", said(one, here), said(other, there)));
    }

    fn say(&mut self, what: &str, said: &str) {
        self.texts.push(format!("{what} after {}: {said}", self.after));
    }
}

fn text(value: impl Display) -> String {
    value.to_string()
}

fn status_and(status: Status, value: &impl Debug, unit: &str) -> String {
    format!("{status}, {value:?} {unit}")
}

fn block(life: &Life, block: &Block) -> String {
    format!("{} bytes {} in {}", block.bytes, block.state, place(life, block.location()))
}

fn place(life: &Life, at: Location) -> String {
    format!("{} at {:#x}", life.file_name(at.file).unwrap_or("?"), at.offset)
}
