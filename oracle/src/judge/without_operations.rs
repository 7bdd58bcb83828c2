// SPDX-License-Identifier: Apache-2.0
//! Heaps of which nobody says what was done to them: a trace that was imported without its operations. What the heap shows by itself is
//! judged; what only the operations tell is named as not judged.

use super::Judge;
use crate::contract::{Contract, Publish};
use crate::fact::Fact;
use crate::rule::RuleId;

/// Rules that operations alone can tell.
const OF_OPERATIONS: [RuleId; 5] =
    [RuleId::OperationLost, RuleId::FreedObjectBack, RuleId::ContentChanged, RuleId::Leak, RuleId::RecoverySkipped];
const WHY: &str = "the trace does not say what the program did";

impl Judge<'_> {
    /// Takes back what was judged as if nothing had been done to the heap.
    pub(super) fn leave_out_what_operations_tell(&mut self) {
        if self.history.are_operations_known() {
            return;
        }
        let contract = self.contract;
        self.out.violations.retain(|violation| !needs_operations(violation.fact, contract));
        let is_separate = contract.publish == Publish::Separate;
        let dangling = is_separate.then_some(RuleId::DanglingSlot);
        for rule in OF_OPERATIONS.into_iter().chain(dangling) {
            self.out.judged.remove(rule);
            if contract.promises(rule) {
                self.not_judged(rule, WHY);
            }
        }
    }
}

/// Whether it is wrong only for what was done before.
fn needs_operations(fact: Fact, contract: &Contract) -> bool {
    match fact {
        // A pending free may leave the slot where it was.
        Fact::Dangling(_) | Fact::BlockShared(..) => contract.publish == Publish::Separate,
        Fact::CreationRefused(_) | Fact::ObjectsAreOne(_) | Fact::ObjectTwice(_) | Fact::ObjectExtent(..) => true,
        Fact::CapacityLost(_) | Fact::OpenCapacityLost(_) | Fact::CapacitySplit => true,
        _ => OF_OPERATIONS.contains(&fact.rule()),
    }
}
