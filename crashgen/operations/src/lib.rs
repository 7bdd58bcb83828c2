// SPDX-License-Identifier: Apache-2.0
//! The kinds of operations that workloads are made of: how traces number them, what workload files call them, and what they are about.
//! The runner has the same list in `runner/workload/operations.c`, the harness in `harness/faultline/workload/operations.py`, and the
//! numbers are those of `pintools/trace.h`. `runner/tests/test_operations.py` compares them.

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
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
    /// Begins a transaction: what follows takes effect when it is committed.
    Begin,
    /// Lets the operations since begin take effect, all at once.
    Commit,
    /// Ends the transaction; its operations have no effect.
    Abort,
    /// Overwrites a part of a slot's object.
    Write,
}

/// Of an operation: its kind, its number in traces, its word, and what it is about.
type Row = (OperationKind, u8, &'static str, About);

/// What an operation is about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum About {
    /// The whole heap.
    Heap,
    /// A slot, and the object that it makes.
    NewObject,
    /// A slot.
    Slot,
    /// A field of a slot's object.
    Field,
    /// The same, and a second slot.
    FieldAndSlot,
    /// A part of a slot's object.
    Part,
}

const KINDS: [Row; 14] = [
    (OperationKind::Create, 2, "create", About::Heap),
    (OperationKind::Open, 3, "open", About::Heap),
    (OperationKind::Close, 4, "close", About::Heap),
    (OperationKind::Allocate, 5, "allocate", About::NewObject),
    (OperationKind::Free, 6, "free", About::Slot),
    (OperationKind::Reallocate, 7, "reallocate", About::NewObject),
    (OperationKind::Link, 8, "link", About::FieldAndSlot),
    (OperationKind::Unlink, 9, "unlink", About::Field),
    (OperationKind::Drop, 11, "drop", About::Slot),
    (OperationKind::Load, 12, "load", About::FieldAndSlot),
    (OperationKind::Begin, 13, "begin", About::Heap),
    (OperationKind::Commit, 14, "commit", About::Heap),
    (OperationKind::Abort, 15, "abort", About::Heap),
    (OperationKind::Write, 16, "write", About::Part),
];

impl OperationKind {
    fn row(self) -> &'static Row {
        &KINDS[self as usize]
    }

    /// The kind with this number in traces.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        KINDS.iter().find(|row| row.1 == number).map(|row| row.0)
    }

    /// The word for it in workload files and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.row().2
    }

    /// Whether it is done to a slot: all but create, open, close and those that begin or end a transaction.
    #[must_use]
    pub fn has_slot(self) -> bool {
        self.row().3 != About::Heap
    }

    /// Whether it names a field of an object: operations of graphs.
    #[must_use]
    pub fn has_field(self) -> bool {
        matches!(self.row().3, About::Field | About::FieldAndSlot)
    }

    /// Whether it names a second slot.
    #[must_use]
    pub fn has_other_slot(self) -> bool {
        self.row().3 == About::FieldAndSlot
    }

    /// Whether it asks for memory and fills it.
    #[must_use]
    pub fn makes_object(self) -> bool {
        self.row().3 == About::NewObject
    }

    /// Whether it writes content, which is told by an object id of its own.
    #[must_use]
    pub fn has_content(self) -> bool {
        matches!(self.row().3, About::NewObject | About::Part)
    }

    /// Whether the heap is another one once it has happened: operations on slots, create and commit.
    #[must_use]
    pub fn has_effect(self) -> bool {
        self.has_slot() || matches!(self, OperationKind::Create | OperationKind::Commit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_row() {
        for (place, row) in KINDS.iter().enumerate() {
            assert_eq!(row.0 as usize, place);
            assert_eq!(OperationKind::from_number(row.1), Some(row.0));
        }
        assert_eq!(OperationKind::from_number(1), None, "a case is no operation");
        assert_eq!(OperationKind::from_number(17), None);
    }
}
