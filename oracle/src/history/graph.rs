// SPDX-License-Identifier: Apache-2.0
//! The graph that the slots are the roots of: what refers to what, and what nothing refers to any more.

use std::collections::BTreeSet;
use std::fmt;

use super::generation::Change;
use super::{Generation, OperationIndex, OperationKind};

/// Id of an object: that of the operation which allocated it. A reallocation keeps it.
pub type ObjectId = u32;

/// Fields of an object in the graph layout (`FL_GRAPH_FIELDS` of include/adapter.h).
pub const FIELDS: u8 = 2;

/// What holds a reference to an object: a slot, or a field of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Holder {
    /// A slot: a root.
    Slot(u32),
    /// A field of an object.
    Field {
        /// The object.
        object: ObjectId,
        /// Number of the field, below [`FIELDS`].
        field: u8,
    },
}

impl Holder {
    /// The slot, if it is one.
    pub fn slot(self) -> Option<u32> {
        match self {
            Holder::Slot(slot) => Some(slot),
            Holder::Field { .. } => None,
        }
    }

    /// The fields of an object.
    pub fn fields_of(object: ObjectId) -> impl Iterator<Item = Holder> {
        (0..FIELDS).map(move |field| Holder::Field { object, field })
    }
}

impl From<u32> for Holder {
    fn from(slot: u32) -> Holder {
        Holder::Slot(slot)
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Holder::Slot(slot) => write!(f, "slot {slot}"),
            Holder::Field { object, field } => write!(f, "field {field} of object {object}"),
        }
    }
}

impl Generation {
    /// The object that the holder holds, if that is known.
    pub(super) fn held(&self, holder: Holder) -> Option<ObjectId> {
        self.holders.get(&holder)?.object.as_ref().map(|object| object.id)
    }

    fn held_if(&self, holder: Holder, happened: Option<&Change>) -> Option<ObjectId> {
        match happened.filter(|change| change.holder == holder) {
            Some(change) => change.after.as_ref().map(|object| object.id),
            None => self.held(holder),
        }
    }

    /// Adds the objects that the holders in `from` reach, once this change has happened.
    fn reach(
        &self,
        from: impl IntoIterator<Item = Holder>,
        happened: Option<&Change>,
        reached: &mut BTreeSet<ObjectId>,
    ) {
        let mut holders: Vec<Holder> = from.into_iter().collect();
        while let Some(holder) = holders.pop() {
            if let Some(object) = self.held_if(holder, happened).filter(|object| reached.insert(*object)) {
                holders.extend(Holder::fields_of(object));
            }
        }
    }

    fn slot_holders(&self) -> impl Iterator<Item = Holder> {
        self.holders.range(Holder::Slot(0)..=Holder::Slot(u32::MAX)).map(|(holder, _)| *holder)
    }

    /// Objects that nothing refers to once the change has happened: what its holder held so far, and what only that reached. An object
    /// that is freed is no garbage, but what only it reached is.
    pub(super) fn garbage_of(&self, change: &Change) -> BTreeSet<ObjectId> {
        let after = change.after.as_ref().map(|object| object.id);
        let held = self.held(change.holder);
        let Some(object) = held.filter(|object| self.is_graph && after != Some(*object)) else {
            return BTreeSet::new();
        };
        let (mut below, mut reached) = (BTreeSet::from([object]), BTreeSet::new());
        self.reach(Holder::fields_of(object), None, &mut below);
        self.reach(self.slot_holders(), Some(change), &mut reached);
        if change.by.kind == OperationKind::Free {
            reached.insert(object);
        }
        below.difference(&reached).copied().collect()
    }

    /// Another holder of the slot's object, for which only that slot may be its holder.
    pub(super) fn other_holder(&self, slot: u32) -> Option<Holder> {
        let holder = Holder::Slot(slot);
        let object = self.held(holder).filter(|_| self.is_graph)?;
        self.holders.keys().copied().find(|other| *other != holder && self.held(*other) == Some(object))
    }

    /// Objects that are garbage once these pending operations have happened.
    pub(super) fn garbage(&self, happened: &[OperationIndex]) -> u64 {
        let happened = self.pending.iter().filter(|pending| happened.contains(&pending.operation.index));
        let changes = happened.flat_map(|pending| &pending.changes);
        self.garbage + changes.map(|change| self.garbage_of(change).len() as u64).sum::<u64>()
    }
}
