// SPDX-License-Identifier: Apache-2.0
//! Numbers for what is expected of a heap: equal expectations have equal numbers.

use super::generation::Generation;
use super::graph::Holder;
use super::object::ObjectState;
use crate::contract::Durable;

impl Generation {
    pub(super) fn hash(&self, durable: Durable, mix: &mut Mix) {
        mix.add(self.phase as u64);
        mix.add(u64::from(self.was_closed && durable == Durable::OnClose));
        mix.add(u64::from(self.closed_by.is_some()) << 1 | u64::from(self.is_as_closed));
        mix.add(self.last_effective.map_or(0, |index| u64::from(index) + 1));
        mix.add(self.unsettled_operations);
        mix.add(u64::from(self.effects));
        if self.is_concurrent {
            mix.add(u64::from(self.returned_below));
            mix.add_all(self.returned_ahead.iter().map(|index| u64::from(*index)));
        }
        mix.add(self.garbage);
        for (holder, state) in &self.holders {
            hash_holder(*holder, mix);
            hash_object(state.object.as_deref(), mix);
            if let Some(unsettled) = state.unsettled {
                let flags = u64::from(unsettled.may_be_null) << 1 | u64::from(unsettled.has_failed);
                mix.add_all([flags, unsettled.smallest_bytes, u64::from(unsettled.operation)]);
            }
        }
        for pending in &self.pending {
            let operation = &pending.operation;
            mix.add_all([operation.kind as u64, u64::from(operation.index), u64::from(operation.slot)]);
            for change in &pending.changes {
                hash_holder(change.holder, mix);
                hash_object(change.after.as_deref(), mix);
            }
        }
        if let Some(transaction) = &self.transaction {
            mix.add_all([u64::from(transaction.begun_by) + 1, transaction.operations]);
        }
    }
}

fn hash_holder(holder: Holder, mix: &mut Mix) {
    match holder {
        Holder::Slot(slot) => mix.add(u64::from(slot)),
        Holder::Field { object, field } => mix.add(u64::from(object) << 32 | u64::from(field) << 1 | 1),
    }
}

fn hash_object(object: Option<&ObjectState>, mix: &mut Mix) {
    let Some(object) = object else {
        return mix.add(0);
    };
    mix.add_all([
        1,
        u64::from(object.id),
        object.bytes,
        u64::from(object.operation),
        u64::from(object.written_by),
        object.segments.len() as u64,
    ]);
    if object.promised_bytes != object.bytes {
        mix.add(object.promised_bytes);
    }
    for segment in &object.segments {
        mix.add_all([segment.end, u64::from(segment.object)]);
    }
}

/// A running hash that is the same on every machine and with every compiler (splitmix64's mixer).
pub(super) struct Mix(pub(super) u64);

impl Mix {
    pub(super) fn add(&mut self, value: u64) {
        let mut mixed = (self.0.rotate_left(5) ^ value).wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        self.0 = mixed ^ (mixed >> 31);
    }

    pub(super) fn add_all(&mut self, values: impl IntoIterator<Item = u64>) {
        for value in values {
            self.add(value);
        }
    }
}
