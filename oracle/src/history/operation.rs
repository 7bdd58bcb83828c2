// SPDX-License-Identifier: Apache-2.0
//! The operations of a workload.

pub use operations::OperationKind;

/// Number of an operation in the workload, counted from 0 over the whole workload file.
pub type OperationIndex = u32;

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
    /// Id of the object it makes, or of the content it writes; 0 where it does neither.
    pub object: u32,
    /// write: the first byte of the object that it overwrites; 0 otherwise.
    pub from: u64,
    /// link, unlink and load: the field.
    pub field: u8,
    /// link: the slot whose object the field gets; load: the slot whose object has the field; 0 otherwise.
    pub other_slot: u32,
}

impl Operation {
    /// The slots that it reads or writes.
    pub(super) fn slots(&self) -> impl Iterator<Item = u32> {
        let other = self.kind.has_other_slot().then_some(self.other_slot);
        self.kind.has_slot().then_some(self.slot).into_iter().chain(other)
    }
}
