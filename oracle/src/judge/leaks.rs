// SPDX-License-Identifier: Apache-2.0
//! FL010: live heap blocks that nothing refers to.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::followed::FollowedReferences;
use super::references::FirstPart;
use super::{Judge, Leaked, Subject};
use crate::contract::Leaks;
use crate::fact::Fact;
use crate::history::OperationIndex;
use crate::report::{Block, Life, Status};
use crate::rule::RuleId;

impl<'a> Judge<'a> {
    /// FL010: live heap blocks that no slot reaches, through fields or without.
    pub(super) fn judge_leaks(&mut self, references: &mut FollowedReferences<'a>) {
        self.out.judged.insert(RuleId::Leak);
        let Some(live) = &references.live else { return };
        let unreached: Vec<Block> = live.unreferenced().collect();
        references.first_part.leaked_bytes =
            Some(unreached.iter().map(|block| block.bytes).fold(0, u64::saturating_add));
        references.first_part.leaked_blocks = unreached.len() as u64;
        let leaked = self.not_retained(references.life, unreached);
        let permitted = self.permitted_leaks(&references.first_part);
        let count = leaked.len() as u64;
        let Some(first) = leaked.first() else { return };
        let of_pending = self.leaks_of_pending();
        let blocks = leaked.iter().map(|block| live.extent(block)).collect();
        self.out.leaks = Some(Arc::new(Leaked { blocks, of_pending }));
        if count <= permitted.saturating_add(references.first_part.lost_objects) {
            return;
        }
        let (block, plural) = (live.extent(first), if count == 1 { "" } else { "s" });
        let text = format!(
            "{count} live heap block{plural} that no slot refers to, {permitted} permitted; \
             the first has {} bytes in {} at {:#x}",
            block.bytes, block.place.file, block.place.offset
        );
        let operation = self.history.current().pending().first().map(|pending| pending.operation.index);
        self.violate(Fact::Leaked, Subject { operation, block: Some(block), ..Subject::default() }, text);
    }

    /// A conservative collector keeps what a stale word reaches: the runner says what that is.
    fn not_retained(&mut self, life: &Life, mut unreached: Vec<Block>) -> Vec<Block> {
        if self.contract.leaks != Leaks::Collected || unreached.is_empty() {
            return unreached;
        }
        match &life.retained {
            Some(retained) if retained.status == Status::Ok => {
                let kept: BTreeSet<_> = retained.blocks.iter().map(Block::location).collect();
                unreached.retain(|block| !kept.contains(&block.location()));
            }
            _ if self.is_cut_short(0) => unreached.clear(),
            _ => {
                self.unknown("the heap report does not say what stale words keep from being collected".to_owned());
                unreached.clear();
            }
        }
        unreached
    }

    fn leaks_of_pending(&self) -> u64 {
        if self.contract.leaks == Leaks::Pending { self.history.pending_operations() } else { 0 }
    }

    /// How many heap blocks the contract lets a crash now leak, besides those that stale words retain.
    pub(super) fn permitted_leaks(&self, shown: &FirstPart) -> u64 {
        // Without a collector what the workload drops stays for good.
        let happened: Vec<OperationIndex> = shown.happened.iter().chain(&shown.unclear).copied().collect();
        let dropped = self.history.garbage_objects(&happened);
        match self.contract.leaks {
            Leaks::None | Leaks::Pending => self.leaks_of_pending() + dropped,
            Leaks::Collected => self.history.garbage_left_by_close(&shown.happened),
        }
    }
}
