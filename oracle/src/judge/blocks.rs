// SPDX-License-Identifier: Apache-2.0
//! Heap blocks among themselves: FL006, FL007, FL011.

use super::words::bytes_of;
use super::{Extent, Judge, Subject, recovery_phrase};
use crate::contract::Accounting;
use crate::fact::{AccountingError, ExtentError, Fact, Step};
use crate::history::Holder;
use crate::report::{Block, BlockState, Life, Location, Place, SectionKind, Status, Walk};
use crate::rule::RuleId;

/// The live heap blocks of one life, by file and offset, and what refers to them.
pub(super) struct LiveBlocks<'a> {
    life: &'a Life,
    blocks: Vec<Block>,
    holders: Vec<Option<Holder>>,
    is_reached: Vec<bool>,
}

impl<'a> LiveBlocks<'a> {
    pub(super) fn new(life: &'a Life, walk: &Walk) -> LiveBlocks<'a> {
        let is_live = |block: &&Block| block.state == BlockState::Allocated;
        let mut blocks: Vec<Block> = walk.blocks.iter().filter(is_live).copied().collect();
        blocks.sort_by_key(|block| (block.file, block.offset));
        let (holders, is_reached) = (vec![None; blocks.len()], vec![false; blocks.len()]);
        LiveBlocks { life, blocks, holders, is_reached }
    }

    pub(super) fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    fn position(&self, file: u32, offset: u64) -> Option<usize> {
        let after = self.blocks.partition_point(|block| (block.file, block.offset) <= (file, offset));
        let contains = |block: &Block| {
            block.file == file && (block.offset == offset || (block.offset < offset && offset < block.end()))
        };
        // Where blocks overlap the nearest start wins; an earlier, longer one is found too.
        self.blocks[..after].iter().rposition(contains)
    }

    /// The live block that this place lies in.
    pub(super) fn containing(&self, file: u32, offset: u64) -> Option<Block> {
        self.position(file, offset).map(|position| self.blocks[position])
    }

    /// Notes that the holder's object is in the block at this place; gives the holder whose object already is.
    pub(super) fn refer(&mut self, at: Location, holder: Holder) -> Option<Holder> {
        let position = self.position(at.file, at.offset)?;
        self.is_reached[position] = true;
        let other = self.holders[position];
        self.holders[position] = other.or(Some(holder));
        other
    }

    /// Notes that something refers to the block at this place.
    pub(super) fn reach(&mut self, at: Location) {
        if let Some(position) = self.position(at.file, at.offset) {
            self.is_reached[position] = true;
        }
    }

    /// Live blocks that something refers to.
    pub(super) fn referenced(&self) -> impl Iterator<Item = Block> {
        self.blocks.iter().zip(&self.is_reached).filter(|(_, is_reached)| **is_reached).map(|(block, _)| *block)
    }

    /// Live blocks that nothing refers to.
    pub(super) fn unreferenced(&self) -> impl Iterator<Item = Block> {
        self.blocks.iter().zip(&self.is_reached).filter(|(_, is_reached)| !**is_reached).map(|(block, _)| *block)
    }

    /// The block with its file by name.
    pub(super) fn extent(&self, block: &Block) -> Extent {
        extent(self.life, block)
    }
}

pub(super) fn extent(life: &Life, block: &Block) -> Extent {
    let file = life.file_name(block.file).unwrap_or("?").to_owned();
    Extent { place: Place { file, offset: block.offset }, bytes: block.bytes }
}

fn words(extent: &Extent) -> String {
    format!("{} in {} at {:#x}", bytes_of(extent.bytes), extent.place.file, extent.place.offset)
}

impl<'a> Judge<'a> {
    /// FL006, FL007 and FL011 on what walk and check say in a life; `None` without a usable walk.
    pub(super) fn judge_walk(&mut self, life: &'a Life, number: u16) -> Option<LiveBlocks<'a>> {
        self.judge_check(life, number);
        let walk = match &life.walk {
            Some(walk) if walk.status == Status::Ok => walk,
            Some(walk) if walk.status != Status::UnsupportedCall => {
                let what = format!("walk after {}", recovery_phrase(number));
                self.violate_answer(life, Step::new(number, SectionKind::Walk), walk.status, &what);
                return None;
            }
            _ => {
                if self.contract.accounting == Accounting::Full && !self.is_cut_short(usize::from(number)) {
                    self.not_judged(RuleId::Inconsistent, "accounting: the adapter has no walk");
                }
                return None;
            }
        };
        if self.contract.accounting == Accounting::Full {
            self.judge_accounting(life, number, walk);
        }
        let live = LiveBlocks::new(life, walk);
        self.judge_overlap(&live, number);
        self.judge_extents(&live, number, walk.file_bytes);
        Some(live)
    }

    fn judge_check(&mut self, life: &Life, number: u16) {
        match life.check {
            Some(Status::Ok) => self.out.judged.insert(RuleId::Inconsistent),
            None | Some(Status::UnsupportedCall) if self.is_cut_short(usize::from(number)) => {}
            None | Some(Status::UnsupportedCall) => {
                self.not_judged(RuleId::Inconsistent, "check: the adapter has none");
            }
            Some(status) => {
                self.out.judged.insert(RuleId::Inconsistent);
                let what = format!("the allocator's own check after {}", recovery_phrase(number));
                self.violate_answer(life, Step::new(number, SectionKind::Check), status, &what);
            }
        }
    }

    /// The blocks of each file must follow each other from its first byte on, and their sizes must add up to the files'.
    fn judge_accounting(&mut self, life: &Life, number: u16, walk: &Walk) {
        self.out.judged.insert(RuleId::Inconsistent);
        let recovery = recovery_phrase(number);
        let mut blocks: Vec<&Block> = walk.blocks.iter().collect();
        blocks.sort_by_key(|block| (block.file, block.offset, block.bytes));
        let mut at = (0, 0u64);
        let (mut sum, mut occupied) = (0u64, 0u64);
        for block in blocks {
            let end = if block.file == at.0 { at.1 } else { 0 };
            if block.offset != end {
                let error = if block.offset > end { AccountingError::Gap } else { AccountingError::Overlap };
                let block = extent(life, block);
                let text = format!(
                    "walk after {recovery}: {error} before the heap block of {}: expected it at {end:#x}",
                    words(&block)
                );
                let fact = Fact::Accounting(number.into(), error);
                return self.violate(fact, Subject { block: Some(block), ..Subject::default() }, text);
            }
            sum = sum.saturating_add(block.bytes);
            if block.state != BlockState::Unusable {
                occupied = occupied.saturating_add(block.bytes); // not by holes
            }
            at = (block.file, block.end());
        }
        if occupied > self.shape.limit_bytes {
            let text = format!(
                "walk after {recovery}: the heap blocks occupy {occupied} bytes, and limit_bytes permits {}",
                self.shape.limit_bytes
            );
            self.violate(Fact::Accounting(number.into(), AccountingError::Limit), Subject::default(), text);
        }
        let heap_bytes = walk.file_bytes.saturating_sub(self.side_bytes(life));
        if sum != heap_bytes {
            let text = format!(
                "walk after {recovery}: the heap blocks make {sum} bytes in all, the heap's files {heap_bytes}"
            );
            self.violate(Fact::Accounting(number.into(), AccountingError::Sum), Subject::default(), text);
        }
    }

    /// Bytes of the files in the heap folder that are no files of the heap, which are named: no heap block lies in them, and neither
    /// the workload nor this life maps them (a lock with a process id, a log for people).
    fn side_bytes(&mut self, life: &Life) -> u64 {
        let mut bytes = 0u64;
        for unwalked in life.unwalked.iter().filter(|unwalked| !unwalked.is_mapped) {
            let Some(name) = life.file_name(unwalked.file).filter(|name| !self.history.maps(name)) else { continue };
            bytes = bytes.saturating_add(unwalked.bytes);
            self.not_judged(
                RuleId::Inconsistent,
                format!(
                    "accounting of {name}: it holds no heap block and is never mapped, so it is no file of the heap"
                ),
            );
        }
        bytes
    }

    fn judge_overlap(&mut self, live: &LiveBlocks<'_>, number: u16) {
        self.out.judged.insert(RuleId::Overlap);
        let mut longest: Option<&Block> = None;
        for block in live.blocks() {
            if let Some(other) = longest.filter(|other| other.file == block.file && block.offset < other.end()) {
                let (other, block) = (live.extent(other), live.extent(block));
                let text = format!(
                    "live heap blocks overlap after {}: {} and {}",
                    recovery_phrase(number),
                    words(&other),
                    words(&block)
                );
                let fact = Fact::LiveBlocksOverlap(number.into());
                self.violate(fact, Subject { block: Some(block), ..Subject::default() }, text);
            }
            longest = longest.filter(|other| other.file == block.file && other.end() > block.end()).or(Some(block));
        }
    }

    /// `file_bytes` bounds every file: it is the sum of their sizes.
    fn judge_extents(&mut self, live: &LiveBlocks<'_>, number: u16, file_bytes: u64) {
        self.out.judged.insert(RuleId::BadExtent);
        for block in live.blocks() {
            if let Some((error, what)) = self.extent_error(block, file_bytes) {
                let block = live.extent(block);
                let text = format!("live heap block of {} after {}: {what}", words(&block), recovery_phrase(number));
                let fact = Fact::BlockExtent(number.into(), error);
                self.violate(fact, Subject { block: Some(block), ..Subject::default() }, text);
            }
        }
    }

    fn extent_error(&self, block: &Block, file_bytes: u64) -> Option<(ExtentError, String)> {
        let (alignment, smallest) = (self.shape.alignment.max(1), self.shape.smallest_bytes);
        let has_end = block.offset.checked_add(block.bytes).is_some_and(|end| end <= file_bytes);
        if !has_end {
            return Some((ExtentError::PastEnd, format!("it ends past the heap's {file_bytes} bytes")));
        }
        if block.offset % alignment != 0 {
            return Some((ExtentError::Misaligned, format!("it is not aligned to {alignment} bytes")));
        }
        let text = || format!("it is smaller than the smallest heap block, {smallest} bytes");
        (block.bytes < smallest).then(|| (ExtentError::TooSmall, text()))
    }

    /// FL006 and FL007 on the drain's allocations, against live heap blocks (or, without walk, objects in slots) and each other.
    pub(super) fn judge_drain_extents(&mut self, life: &Life, live: &[Block], bound_bytes: u64) {
        let Some(drain) = &life.drain else { return };
        let mut all: Vec<(&Block, bool)> = live.iter().map(|block| (block, false)).collect();
        all.extend(drain.blocks.iter().map(|block| (block, true)));
        all.sort_by_key(|(block, is_new)| (block.file, block.offset, *is_new));
        let mut longest: Option<(&Block, bool)> = None;
        for (block, is_new) in all {
            if let Some((other, _)) = longest.filter(|(other, other_is_new)| {
                (is_new || *other_is_new) && other.file == block.file && block.offset < other.end()
            }) {
                let (other, block) = (extent(life, other), extent(life, block));
                let text = format!(
                    "an allocation after recovery overlaps a live one: {} and {}",
                    words(&other),
                    words(&block)
                );
                let subject = Subject { block: Some(block), ..Subject::default() };
                self.violate(Fact::AllocationOverlaps, subject, text);
            }
            longest = longest
                .filter(|(other, _)| other.file == block.file && other.end() > block.end())
                .or(Some((block, is_new)));
        }
        for block in &drain.blocks {
            self.judge_drained(life, block, bound_bytes);
        }
    }

    fn judge_drained(&mut self, life: &Life, block: &Block, bound_bytes: u64) {
        let alignment = self.shape.alignment.max(1);
        let (error, what) = match block.offset.checked_add(block.bytes) {
            Some(end) if end <= bound_bytes && block.offset % alignment == 0 => return,
            Some(end) if end <= bound_bytes => {
                (ExtentError::Misaligned, format!("is not aligned to {alignment} bytes"))
            }
            _ => (ExtentError::PastEnd, format!("ends past the heap's {bound_bytes} bytes")),
        };
        let block = extent(life, block);
        let text = format!("an allocation after recovery, {}, {what}", words(&block));
        let fact = Fact::AllocationExtent(error);
        self.violate(fact, Subject { block: Some(block), ..Subject::default() }, text);
    }
}
