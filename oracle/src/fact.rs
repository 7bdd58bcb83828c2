// SPDX-License-Identifier: Apache-2.0
//! What exactly breaks a rule.
//!
//! A message is for people. It may change with every release, and the allocator's own words may change with each of its commits. A
//! [`Fact`] is what findings are told apart by: with the place in the source it makes a finding's id. So the text of a fact is made of
//! the names in this file and of numbers that the heap report's format defines, never of the words of a message. Names last, like the
//! ids of rules: a name may be retired, it is never changed and never given to another fact.
//!
//! Two bugs that show the same fact at the same place have one id. Where that happens, split the fact.

use std::fmt;

use crate::history::Holder;
use crate::report::{
    EMPTIED, EMPTIED_REOPENED, EXECUTED, LIFE_COUNT, REOPENED, SECOND_RECOVERY, SectionKind, Stage, Status, USE,
    WITHOUT_LOSS,
};
use crate::rule::RuleId;

/// The life that a [`Step`] names which the process that executed the workload goes through: no life of a recovery.
pub(crate) const EXECUTED_STEP: u16 = LIFE_COUNT as u16;

macro_rules! facts {
    ($($(#[doc = $what:literal])+ $fact:ident $(($($field:ident: $type:ty),+))? = $rule:expr, $text:literal;)*) => {
        /// A kind of broken thing.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Fact { $($(#[doc = $what])+ $fact $(($($type),+))?,)* }

        impl Fact {
            /// The rule that it breaks, whichever crash it comes after.
            #[allow(unused_variables)] // of most facts the rule does not depend on the parts
            pub fn rule(self) -> RuleId {
                match self { $(Fact::$fact $(($($field),+))? => $rule,)* }
            }
        }

        impl fmt::Display for Fact {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self { $(Fact::$fact $(($($field),+))? => write!(f, $text),)* }
            }
        }

        #[cfg(test)]
        const TEXTS: &[&str] = &[$($text),*];
    };
}

macro_rules! names {
    ($(#[doc = $what:literal])+ $kind:ident { $($one:ident = $name:literal,)* }) => {
        $(#[doc = $what])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[allow(missing_docs)] // the names say it
        pub enum $kind { $($one,)* }

        impl fmt::Display for $kind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $($kind::$one => $name,)* })
            }
        }
    };
}

// What it is, the rule, and the text that ids are made of.
facts! {
    /// The process died of this signal.
    Died(step: Step, signal: u32) = RuleId::RecoveryCrashed, "died {step} signal-{signal}";
    /// The process called exit.
    Exited(step: Step) = RuleId::RecoveryCrashed, "exited {step}";
    /// The process did not come to an end.
    Hung(step: Step) = RuleId::RecoveryHung, "hung {step}";

    /// A step answered an error.
    Answered(step: Step, code: Code) = step.rule_of_an_error(), "answered {step} {code}";
    /// Recovery refused a heap in creation with a status that says something else of it.
    CreationRefused(code: Code) = RuleId::RecoveryFailed, "creation-refused {code}";

    /// A close returned, and open had to recover the heap.
    CloseLost = RuleId::OperationLost, "close-lost";
    /// Null is where an object must be.
    Null(holder: HolderKind) = RuleId::OperationLost, "null {holder}";
    /// The object that the holder must hold has no live heap block.
    BlockLost(holder: HolderKind) = RuleId::OperationLost, "block-lost {holder}";
    /// The holder points to the place of the object that it held before.
    PlaceOfOlder(holder: HolderKind) = RuleId::OperationLost, "place-of-older {holder}";
    /// The holder points to the content of the object that it held before.
    ContentOfOlder(holder: HolderKind) = RuleId::OperationLost, "content-of-older {holder}";
    /// The object that the holder must hold is at another place.
    ObjectElsewhere(holder: HolderKind) = RuleId::OperationLost, "object-elsewhere {holder}";
    /// The heap block has the size from before the reallocation.
    ReallocationLost(holder: HolderKind) = RuleId::OperationLost, "reallocation-lost {holder}";

    /// An operation set the holder to null, and it points somewhere.
    SetAgain(holder: HolderKind) = RuleId::FreedObjectBack, "set-again {holder}";
    /// No operation ever set the holder, and it points somewhere.
    NeverSet(holder: HolderKind) = RuleId::FreedObjectBack, "never-set {holder}";
    /// The holder points to an object that was freed, where another one must be.
    FreedForNew(holder: HolderKind) = RuleId::FreedObjectBack, "freed-for-new {holder}";
    /// Objects that the probe allocated and freed are back when the heap is opened again.
    ProbeObjectsBack = RuleId::FreedObjectBack, "probe-objects-back";

    /// Of a transaction that was being committed some changes are there, and some are not.
    TransactionInPart = RuleId::TransactionInPart, "transaction-in-part";

    /// Two live heap blocks of a walk overlap.
    LiveBlocksOverlap(life: LifeName) = RuleId::Overlap, "live-blocks-overlap {life}";
    /// An allocation after recovery overlaps something live.
    AllocationOverlaps = RuleId::Overlap, "allocation-overlaps";
    /// Two holders of different objects refer to one heap block.
    BlockShared(one: HolderKind, other: HolderKind) = RuleId::Overlap, "block-shared {one} {other}";
    /// Another object is where the holder's object must be.
    ObjectsAreOne(holder: HolderKind) = RuleId::Overlap, "objects-are-one {holder}";
    /// An object that must be one is there twice.
    ObjectTwice(holder: HolderKind) = RuleId::Overlap, "object-twice {holder}";
    /// Objects of two slots overlap, where there is no walk.
    ObjectsOverlap = RuleId::Overlap, "objects-overlap";

    /// Of a live heap block of a walk.
    BlockExtent(life: LifeName, error: ExtentError) = RuleId::BadExtent, "block-extent {life} {error}";
    /// Of an allocation after recovery.
    AllocationExtent(error: ExtentError) = RuleId::BadExtent, "allocation-extent {error}";
    /// Of an object that a holder points to.
    ObjectExtent(holder: HolderKind, error: ExtentError) = RuleId::BadExtent, "object-extent {holder} {error}";

    /// The holder points to a place where no live heap block is.
    Dangling(holder: HolderKind) = RuleId::DanglingSlot, "dangling {holder}";
    /// The content of the object that the holder points to is wrong in that step.
    ContentWrong(holder: HolderKind, step: Step) = RuleId::ContentChanged, "content-wrong {holder} {step}";
    /// More heap blocks leaked than the contract permits.
    Leaked = RuleId::Leak, "leaked";
    /// The heap blocks of a walk do not make up the heap.
    Accounting(life: LifeName, error: AccountingError) = RuleId::Inconsistent, "accounting {life} {error}";

    /// A drain got less than the twin's.
    CapacityLost(life: LifeName) = RuleId::NotUsable, "capacity-lost {life}";
    /// A drain got less than the twin held before it was closed.
    OpenCapacityLost(life: LifeName) = RuleId::NotUsable, "open-capacity-lost {life}";
    /// The emptied heap has its twin's bytes in smaller pieces.
    CapacitySplit = RuleId::NotUsable, "capacity-split";

    /// A life found another heap than the life that it is compared with.
    HeapDiffers(life: LifeName, part: Part, change: Change) = RuleId::NotIdempotent, "heap-differs {life} {part} {change}";
    /// A life found other bytes in an object whose content nobody promised.
    ContentDiffers(life: LifeName, holder: HolderKind) = RuleId::NotIdempotent, "content-differs {life} {holder}";

    /// The heap was not closed, open took it as a close had left it, and it is broken.
    OpenedAsClosed = RuleId::RecoverySkipped, "opened-as-closed";
}

names! {
    /// What holds a reference to an object.
    HolderKind { Slot = "slot", Field = "field", }
}

names! {
    /// What is wrong with where a heap block or an object lies.
    ExtentError { PastEnd = "past-end", Misaligned = "misaligned", TooSmall = "too-small", }
}

names! {
    /// How the heap blocks of a walk fail to make up the heap.
    AccountingError { Gap = "gap", Overlap = "overlap", Sum = "sum", Limit = "limit", }
}

names! {
    /// A part of the heap that two recoveries must agree about.
    Part { Slot = "slot", Field = "field", LiveBlock = "live-block", }
}

names! {
    /// What became of a part of the heap.
    Change { Appeared = "appeared", Vanished = "vanished", Changed = "changed", }
}

impl From<Holder> for HolderKind {
    fn from(holder: Holder) -> HolderKind {
        match holder {
            Holder::Slot(_) => HolderKind::Slot,
            Holder::Field { .. } => HolderKind::Field,
        }
    }
}

impl Change {
    /// Of something that was there or not, and is there or not.
    pub(crate) fn from_to<T>(was: Option<T>, is: Option<T>) -> Change {
        match (was, is) {
            (None, _) => Change::Appeared,
            (_, None) => Change::Vanished,
            _ => Change::Changed,
        }
    }
}

/// What an adapter function answered, as the heap report has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Code(Status);

impl From<Status> for Code {
    fn from(status: Status) -> Code {
        Code(status)
    }
}

impl Code {
    pub(crate) fn status(self) -> Status {
        self.0
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "status-{}", u32::from(self.0))
    }
}

/// One of the heap's lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LifeName(u16);

impl From<u16> for LifeName {
    fn from(number: u16) -> LifeName {
        LifeName(number)
    }
}

impl fmt::Display for LifeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            0 => "recovery",
            WITHOUT_LOSS => "recovery-without-loss",
            SECOND_RECOVERY => "second-recovery",
            USE => "use",
            REOPENED => "reopened",
            EMPTIED => "emptied",
            EXECUTED_STEP => "executed",
            _ => "emptied-reopened",
        })
    }
}

/// A step of the probe: which of the heap's lives it belongs to, and what the life did in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Step {
    life: u16,
    pub(crate) section: SectionKind,
    /// Contents are read after several stages; all other steps come after [`Stage::Recovery`].
    after: Stage,
}

impl Step {
    /// A step that a life goes through once.
    pub fn new(life: u16, section: SectionKind) -> Step {
        Step { life, section, after: Stage::Recovery }
    }

    /// What the life did in it.
    pub fn section(self) -> SectionKind {
        self.section
    }

    /// The reading of the contents after a stage.
    pub fn contents_after(life: u16, stage: Stage) -> Step {
        Step { life, section: SectionKind::Contents, after: stage }
    }

    /// Which of the heap's lives.
    pub(crate) fn life(self) -> u16 {
        self.life
    }

    /// The same step of a twin, of which one life executed the workload.
    pub(crate) fn of_twin(self) -> Step {
        Step { life: if self.life == EXECUTED { EXECUTED_STEP } else { self.life }, ..self }
    }

    /// The step of a twin that does the same: its first life after the workload is life 3.
    pub(crate) fn in_twin(self) -> Step {
        let settles = self.section == SectionKind::Settle; // life 3 opens at once
        Step { life: self.life.max(if settles { REOPENED } else { USE }), ..self }
    }

    /// The rule that is broken when the step answers an error.
    fn rule_of_an_error(self) -> RuleId {
        let is_reopened = self.life == REOPENED || self.life == EMPTIED_REOPENED;
        match self.section {
            SectionKind::Walk | SectionKind::Check => RuleId::Inconsistent,
            SectionKind::Drain | SectionKind::FreeAll | SectionKind::Maximal | SectionKind::Close => RuleId::NotUsable,
            _ if is_reopened || self.after != Stage::Recovery => RuleId::NotUsable,
            _ => RuleId::RecoveryFailed,
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let section = match self.section {
            SectionKind::Open => "open",
            SectionKind::Files => "files",
            SectionKind::Slots => "slots",
            SectionKind::Objects => "objects",
            SectionKind::Walk => "walk",
            SectionKind::Retained => "retained",
            SectionKind::Unwalked => "unwalked",
            SectionKind::Check => "check",
            SectionKind::Contents => "contents",
            SectionKind::Drain => "drain",
            SectionKind::FreeAll => "free-all",
            SectionKind::Maximal => "maximal",
            SectionKind::Close => "close",
            SectionKind::Recreate => "recreate",
            SectionKind::Message => "message",
            SectionKind::Settle => "settle",
        };
        let after = match self.after {
            Stage::Recovery => "",
            Stage::Drain => "-after-drain",
            Stage::FreeAll => "-after-free-all",
            Stage::Maximal => "-after-maximal",
        };
        write!(f, "{}/{section}{after}", LifeName(self.life))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_two_facts_have_one_name() {
        let names: BTreeSet<&str> = TEXTS.iter().filter_map(|text| text.split(' ').next()).collect();
        assert_eq!(names.len(), TEXTS.len());
    }

    #[test]
    fn the_parts_of_a_fact_are_in_its_text() {
        for text in TEXTS {
            let is_name = |word: &str| word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
            let is_part = |word: &str| word.trim_start_matches("signal-").starts_with('{') && word.ends_with('}');
            assert!(text.split(' ').all(|word| is_name(word) || is_part(word)), "{text}");
        }
        let step = Step::contents_after(USE, Stage::FreeAll);
        let fact = Fact::Answered(step, Status::Undefined(77).into());
        assert_eq!(fact.to_string(), "answered use/contents-after-free-all status-77");
        let fact = Fact::HeapDiffers(SECOND_RECOVERY.into(), Part::LiveBlock, Change::from_to(None, Some(64)));
        assert_eq!(fact.to_string(), "heap-differs second-recovery live-block appeared");
    }

    #[test]
    fn an_error_breaks_the_rule_of_its_step() {
        let rule = |life, section| Fact::Answered(Step::new(life, section), Status::Error.into()).rule();
        for life in [0, WITHOUT_LOSS, SECOND_RECOVERY, USE, EMPTIED] {
            assert_eq!(rule(life, SectionKind::Open), RuleId::RecoveryFailed);
        }
        for life in [REOPENED, EMPTIED_REOPENED] {
            assert_eq!(rule(life, SectionKind::Open), RuleId::NotUsable, "a close came before");
        }
        assert_eq!(rule(REOPENED, SectionKind::Check), RuleId::Inconsistent);
        assert_eq!(rule(USE, SectionKind::Close), RuleId::NotUsable);
        let after_drain = Fact::Answered(Step::contents_after(USE, Stage::Drain), Status::Error.into());
        assert_eq!(after_drain.rule(), RuleId::NotUsable);
    }
}
