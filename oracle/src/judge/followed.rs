// SPDX-License-Identifier: Apache-2.0
//! The references that recovery left, in the order in which they are judged, and which object is where.
//!
//! Where objects hold references to objects, the report has a section OBJECTS. Each object of the history must then be at one place
//! of the report, and each place must have one object. Following the references from the slots finds out which object is where: a
//! reference whose object has the right content says where that object is, and from then on the object's fields are judged like
//! the slots.
//!
//! What is certain comes first. A reference on which an operation is pending may lead to either of two objects, so it waits until all
//! others have shown their objects. A reference that leads to a wrong object waits to the end, when it is known whose place that is.
//! Without the section each slot is judged by itself, in order.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::blocks::LiveBlocks;
use super::references::{FirstPart, Found};
use super::{Judge, ShownObject};
use crate::history::{Candidate, Holder, ObjectId};
use crate::report::{Life, Location, Objects};

/// When a reference is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Look {
    First,
    /// After all references on which nothing is pending.
    Pending,
    /// When nothing more is to be learned.
    Last,
}

/// What a holder was found to hold; `None`: null.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reference {
    pub holder: Holder,
    pub at: Option<Location>,
    pub look: Look,
}

/// Which of the objects that a holder may hold can be at the place where it points to.
pub(super) enum Identity<'c> {
    /// This one is there, another holder has shown it.
    Known(Vec<Candidate<'c>>),
    /// These are nowhere else.
    Open(Vec<Candidate<'c>>),
    /// None: this object is there.
    Another(ObjectId),
    /// None: each is at another place.
    Elsewhere,
}

/// The references of one life and what following them has shown.
pub(super) struct FollowedReferences<'a> {
    pub life: &'a Life,
    pub live: Option<LiveBlocks<'a>>,
    /// Where objects hold references to objects.
    objects: Option<&'a Objects>,
    waiting: [VecDeque<Reference>; 3],
    /// By position in `objects`: which object is there.
    there: Vec<Option<ObjectId>>,
    /// Position of each object that was found.
    positions: BTreeMap<ObjectId, u32>,
    /// Objects that a holder must hold and does not.
    lost: Vec<Option<ObjectId>>,
    pub first_part: FirstPart,
}

impl<'a> FollowedReferences<'a> {
    pub fn new(life: &'a Life, mut live: Option<LiveBlocks<'a>>) -> FollowedReferences<'a> {
        let objects = life.objects.as_ref();
        if let Some(live) = &mut live {
            objects.iter().flat_map(|objects| &objects.entries).for_each(|object| live.reach(object.at));
        }
        FollowedReferences {
            life,
            live,
            objects,
            waiting: Default::default(),
            there: vec![None; objects.map_or(0, |objects| objects.entries.len())],
            positions: BTreeMap::new(),
            lost: Vec::new(),
            first_part: FirstPart::default(),
        }
    }

    pub fn is_graph(&self) -> bool {
        self.objects.is_some()
    }

    pub fn add(&mut self, holder: Holder, at: Option<Location>) {
        self.wait(Reference { holder, at, look: Look::First });
    }

    pub fn wait(&mut self, reference: Reference) {
        self.waiting[reference.look as usize].push_back(reference);
    }

    /// The next reference to judge: all that are certain first.
    pub fn next(&mut self) -> Option<Reference> {
        self.waiting.iter_mut().find_map(VecDeque::pop_front)
    }

    /// Something refers to this place.
    pub fn reach(&mut self, at: Location) {
        if let Some(live) = &mut self.live {
            live.reach(at);
        }
    }

    /// Where the report has the content of the object that the holder points to.
    pub fn key(&self, holder: Holder, at: Location) -> Option<u32> {
        match self.objects {
            Some(objects) => objects.position(at),
            None => holder.slot(),
        }
    }

    /// The object at this place in the report.
    pub fn identity<'c>(&self, key: u32, candidates: Vec<Candidate<'c>>) -> Identity<'c> {
        if !self.is_graph() {
            return Identity::Open(candidates);
        }
        let id = |candidate: &Candidate<'_>| candidate.object.and_then(|object| object.id);
        if let Some(there) = self.there[key as usize] {
            let is_it = |candidate: &Candidate<'_>| id(candidate).is_none_or(|id| id == there);
            let known: Vec<_> = candidates.into_iter().filter(is_it).collect();
            return if known.is_empty() { Identity::Another(there) } else { Identity::Known(known) };
        }
        let is_nowhere = |candidate: &Candidate<'_>| id(candidate).is_none_or(|id| !self.positions.contains_key(&id));
        let open: Vec<_> = candidates.into_iter().filter(is_nowhere).collect();
        if open.is_empty() { Identity::Elsewhere } else { Identity::Open(open) }
    }

    /// The object is at this place in the report: its fields are judged next.
    pub fn bind(&mut self, key: u32, object: ObjectId) {
        let Some(objects) = self.objects else { return };
        self.there[key as usize] = Some(object);
        self.positions.insert(object, key);
        for (holder, at) in Holder::fields_of(object).zip(objects.entries[key as usize].fields) {
            self.add(holder, at);
        }
    }

    pub fn lose(&mut self, object: Option<ObjectId>) {
        self.lost.push(object);
    }
}

impl<'a> Judge<'a> {
    /// Notes how many objects are lost with the references that are: those, and what only they reach.
    pub(super) fn count_lost(&self, references: &mut FollowedReferences<'a>) {
        let (mut lost, mut unknown) = (BTreeSet::new(), 0);
        let mut objects = std::mem::take(&mut references.lost);
        while let Some(object) = objects.pop() {
            let Some(object) = object else {
                unknown += 1;
                continue;
            };
            if references.positions.contains_key(&object) || !lost.insert(object) {
                continue;
            }
            let fields = Holder::fields_of(object).map(|field| self.history.candidates(field, self.contract.fill));
            objects
                .extend(fields.flat_map(|candidates| candidates.objects().map(|object| object.id).collect::<Vec<_>>()));
        }
        references.first_part.lost_objects = lost.len() as u64 + unknown;
    }

    /// Notes that an object was found, so that later lives look at its content.
    pub(super) fn learn(
        &mut self,
        references: &mut FollowedReferences<'a>,
        found: &Found<'_>,
        object: Option<ObjectId>,
    ) {
        let Some(key) = found.key else { return };
        self.shown.push(ShownObject { key, holder: found.holder, id: object, at: found.at });
        if let Some(object) = object {
            references.bind(key, object);
        }
    }
}
