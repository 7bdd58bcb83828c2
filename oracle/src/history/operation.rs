// SPDX-License-Identifier: Apache-2.0
//! The operations of a workload.

/// Number of an operation in the workload, counted from 0 over the whole workload file.
pub type OperationIndex = u32;

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum OperationKind {
    /// Makes the heap.
    Create,
    /// Opens the heap, which recovers it.
    Open,
    /// Closes the heap.
    Close,
    /// Allocates into an empty slot.
    Allocate,
    /// Frees a slot's object.
    Free,
    /// Changes the size of a slot's object.
    Reallocate,
    /// Sets a field of a slot's object to another slot's object.
    Link,
    /// Sets a field of a slot's object to null.
    Unlink,
    /// Sets a slot to null and frees nothing.
    Drop,
    /// Sets an empty slot to what a field of another slot's object holds.
    Load,
}

impl OperationKind {
    /// The word for it in workload files and reports.
    pub fn name(self) -> &'static str {
        match self {
            OperationKind::Create => "create",
            OperationKind::Open => "open",
            OperationKind::Close => "close",
            OperationKind::Allocate => "allocate",
            OperationKind::Free => "free",
            OperationKind::Reallocate => "reallocate",
            OperationKind::Link => "link",
            OperationKind::Unlink => "unlink",
            OperationKind::Drop => "drop",
            OperationKind::Load => "load",
        }
    }

    /// Whether it changes what a slot or a field holds: all but create, open and close.
    pub fn has_slot(self) -> bool {
        !matches!(self, OperationKind::Create | OperationKind::Open | OperationKind::Close)
    }

    pub(super) fn has_field(self) -> bool {
        matches!(self, OperationKind::Link | OperationKind::Unlink | OperationKind::Load)
    }

    pub(super) fn makes_object(self) -> bool {
        matches!(self, OperationKind::Allocate | OperationKind::Reallocate)
    }
}

/// One operation, as its begin marker tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Operation {
    /// The thread that called it.
    pub thread: u32,
    /// What it does.
    pub kind: OperationKind,
    /// Its number in the workload.
    pub index: OperationIndex,
    /// Its slot; 0 for create, open and close.
    pub slot: u32,
    /// Bytes asked for; 0 where nothing is.
    pub bytes: u64,
    /// Id of the object it makes; 0 where it makes none.
    pub object: u32,
    /// link, unlink and load: the field.
    pub field: u8,
    /// link: the slot whose object the field gets; load: the slot whose object has the field; 0 otherwise.
    pub other_slot: u32,
}

impl Operation {
    /// The slots that it reads or writes.
    pub(super) fn slots(&self) -> impl Iterator<Item = u32> {
        let other = matches!(self.kind, OperationKind::Link | OperationKind::Load).then_some(self.other_slot);
        self.kind.has_slot().then_some(self.slot).into_iter().chain(other)
    }
}
