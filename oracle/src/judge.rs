// SPDX-License-Identifier: Apache-2.0
//! The verdict on one recovered heap.
//!
//! Each rule states a fact, and every fact that holds is reported: a slot whose heap block is free is both a lost operation (FL004)
//! and a dangling slot (FL008). One exception: a heap block that no slot refers to because its slot is lost is not reported as a
//! leak too. Nothing is inferred that the report does not show; what cannot be checked is said in `not_judged`.

mod blocks;
mod contents;
mod followed;
mod leaks;
mod lives;
mod objects;
mod references;
mod twin;
mod without_crash;
mod without_operations;
mod without_walk;
mod words;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use crate::contract::{AfterFailedCreate, Contract, OutOfMemory};
use crate::fact::{Fact, Step};
use crate::history::{History, Holder, ObjectId, OperationIndex, Phase};
use crate::pattern::Segment;
use crate::report::{HeapReport, Life, Location, Outcome, Place, SectionKind, Status};
use crate::rule::{RuleId, RuleSet};

pub use twin::TwinSet;
pub use without_crash::WithoutCrash;
use without_crash::{end_of, failure_words, has_filled};
pub(crate) use words::recovery_phrase;
use words::{message_about, stage_phrase, tail};

/// What configuration fixes about the heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeapShape {
    /// Every allocation's alignment, bytes; a power of two.
    pub alignment: u64,
    /// Size of the smallest heap block.
    pub smallest_bytes: u64,
    /// Size at creation.
    pub heap_bytes: u64,
    /// Most that the heap's files may ever grow to.
    pub limit_bytes: u64,
    /// Slots of the workload. The heap has more: those from this number on are the probe's.
    pub slots: u32,
    /// Recoveries map it at other addresses than the workload did.
    pub is_relocated: bool,
}

/// Answers for the bytes of objects. Whoever owns the crash image implements it.
pub trait ContentSource {
    /// The first offset in the object that differs from the expected content, looking at its first `bytes` bytes, of which
    /// `expected` covers at least that many; `None` if all are right. The object starts at `offset` of the file `file` (relative
    /// to the heap folder). Bytes past the end of the file, or in a file that is not there, differ.
    ///
    /// A source that knows several images at once (a set of remaining choices) answers whether **any** of them differs.
    fn differs(&self, file: &str, offset: u64, expected: &[Segment], bytes: u64) -> Option<u64>;
}

/// A part of a file of the heap.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Extent {
    /// Where it starts.
    pub place: Place,
    /// Its size; 0 where it is not known.
    pub bytes: u64,
}

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The rule that says so; FL014 where power had failed before.
    pub rule: RuleId,
    /// What is broken, whichever crash it was.
    pub fact: Fact,
    /// What was found and what was expected, one line for people: nothing is told apart by it.
    pub message: String,
    /// The slot concerned.
    pub slot: Option<u32>,
    /// The operation whose effect is wrong.
    pub operation: Option<OperationIndex>,
    /// The heap block (or allocation, or object) concerned.
    pub block: Option<Extent>,
    /// Of FL010: all that are concerned.
    pub leaks: Option<Arc<Leaked>>,
    /// Of FL012: how much less can be allocated than without a crash.
    pub lost_bytes: Option<u64>,
}

impl Violation {
    /// The rule that is broken, whichever crash it was.
    pub fn broken(&self) -> RuleId {
        self.fact.rule()
    }
}

/// Live heap blocks that no slot refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaked {
    /// In the order of walk.
    pub blocks: Vec<Extent>,
    /// So many may be of pending operations, which may leave them.
    pub of_pending: u64,
}

/// What the oracle says of one heap report at one point of a history.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judgement {
    /// Broken promises, in order of rule.
    pub violations: Vec<Violation>,
    /// Why nothing can be said; if not empty, the verdict is never pass.
    pub unknown: Vec<String>,
    /// What this recovery fails with and the heap without a crash, too: no finding of the crash state, and no pass.
    pub as_without_crash: Vec<String>,
    /// Rules that were checked against this report.
    pub judged: RuleSet,
    /// Rules that could not be checked (or not wholly), and why.
    pub not_judged: Vec<(RuleId, Cow<'static, str>)>,
    /// Pending operations that the recovered heap shows to have happened.
    pub happened: Vec<OperationIndex>,
    /// Pending operations that left no mark which would tell.
    pub unclear: Vec<OperationIndex>,
    /// None: nothing leaked, and nothing may yet become a leak.
    pub leaks: Option<Arc<Leaked>>,
}

/// pass, fail or unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Everything that was checked holds.
    Pass,
    /// At least one promise is broken.
    Fail,
    /// Nothing broken was seen, and not everything could be seen.
    Unknown,
}

impl Judgement {
    /// The verdict: a violation is a fact whatever else is unknown.
    pub fn verdict(&self) -> Verdict {
        match (self.violations.is_empty(), self.unknown.is_empty() && self.as_without_crash.is_empty()) {
            (false, _) => Verdict::Fail,
            (true, false) => Verdict::Unknown,
            (true, true) => Verdict::Pass,
        }
    }
}

/// Judges a heap report against what the contract promises at this point of the history.
///
/// A report with the first part of the probe only is judged as far as it goes. `twins` are needed for FL012's capacity.
pub fn judge(
    contract: &Contract,
    shape: &HeapShape,
    history: &History,
    report: &HeapReport,
    content: &dyn ContentSource,
    twins: Option<&TwinSet>,
) -> Judgement {
    let mut judge = Judge {
        contract,
        shape,
        history,
        report,
        content,
        twins,
        unsound: BTreeSet::new(),
        shown: Vec::new(),
        filled: None,
        out: Judgement::default(),
    };
    judge.run();
    judge.end_filling();
    judge.compare_without_crash();
    judge.name_skipped_recovery();
    judge.leave_out_what_operations_tell();
    judge.name_rules_not_reached();
    judge.name_later_generation();
    judge.out.violations.sort_by_key(|violation| violation.rule);
    judge.out
}

/// Everything a judgement looks at, and what it has found.
struct Judge<'a> {
    contract: &'a Contract,
    shape: &'a HeapShape,
    history: &'a History,
    report: &'a HeapReport,
    content: &'a dyn ContentSource,
    twins: Option<&'a TwinSet>,
    /// Objects, by [`ShownObject::key`], that cannot be looked at, or were found wrong: later stages say nothing new about them.
    unsound: BTreeSet<u32>,
    /// Objects that life 0 showed.
    shown: Vec<ShownObject>,
    /// How the life ended that filled the heap, until that is judged.
    filled: Option<Fact>,
    out: Judgement,
}

/// An object that life 0 showed.
#[derive(Clone, Copy)]
struct ShownObject {
    /// Where the report has its content: the slot, or the position among the objects.
    key: u32,
    /// What holds it.
    holder: Holder,
    /// Which object it is.
    id: Option<ObjectId>,
    /// Where it is, in files of life 0.
    at: Location,
}

/// What a violation is about, where it is known.
#[derive(Default)]
struct Subject {
    slot: Option<u32>,
    operation: Option<OperationIndex>,
    block: Option<Extent>,
    lost_bytes: Option<u64>,
}

impl<'a> Judge<'a> {
    fn run(&mut self) {
        self.name_what_is_not_explored();
        self.judge_outcome();
        if self.report.outcome == Outcome::Broken || self.history.current().phase() == Phase::Absent {
            return;
        }
        let Some(life) = self.report.life(0) else { return };
        match life.open {
            Some(Status::Ok) => {
                self.judge_address(life);
                self.judge_clean_close(life);
            }
            Some(status) => return self.judge_refusal(life, status),
            None if self.report.outcome == Outcome::Done => {
                return self.unknown("the heap report does not say what open answered".to_owned());
            }
            None => return,
        }
        if let Some(first_part) = self.judge_first_part(life) {
            life.contents.iter().for_each(|contents| self.judge_contents(life, 0, contents));
            self.judge_later_lives(&first_part);
            self.out.happened = first_part.happened;
            self.out.unclear = first_part.unclear;
        }
    }

    /// FL015: all that is judged of this heap is judged where it is mapped, and where the code is, which is always elsewhere. That something
    /// breaks only there is for those to say who recover it with one of them where it was, too.
    fn judge_address(&mut self, life: &Life) {
        if self.shape.is_relocated && life.is_not_moved {
            self.not_judged(
                RuleId::NotRelocatable,
                "promised and not judged: the adapter does not map at address_hint",
            );
        } else if !self.contract.relocatable || self.shape.is_relocated {
            self.out.judged.insert(RuleId::NotRelocatable);
        }
    }

    /// FL018: a heap that was not closed is broken, and open says that it did not recover it. A heap that is right needed no recovery,
    /// whatever open says: an allocator may have nothing to recover between two operations.
    fn name_skipped_recovery(&mut self) {
        let is_skipped = self.report.life(0).is_some_and(|life| life.has_recovered == Some(false));
        let is_broken = !self.out.violations.is_empty();
        if !is_skipped || !is_broken || self.history.may_be_as_closed(&self.out.happened) {
            return;
        }
        self.out.judged.insert(RuleId::RecoverySkipped);
        let text =
            "operations have taken effect since the heap was last closed, but open took it as a close had left it";
        self.violate(Fact::OpenedAsClosed, Subject::default(), format!("{text}: it skipped recovery"));
    }

    /// FL014: whatever is broken after a later crash was in order after the one before it.
    fn name_later_generation(&mut self) {
        let crashes = self.history.generations().len();
        if crashes == 1 {
            return;
        }
        self.out.judged.insert(RuleId::LaterGeneration);
        for violation in &mut self.out.violations {
            violation.message = format!("after {crashes} crashes, {}: {}", violation.rule, violation.message);
            violation.rule = RuleId::LaterGeneration;
        }
    }

    fn violate(&mut self, fact: Fact, subject: Subject, message: String) {
        let Subject { slot, operation, block, lost_bytes } = subject;
        let leaks = self.out.leaks.clone().filter(|_| fact == Fact::Leaked);
        let rule = fact.rule();
        self.out.violations.push(Violation { rule, fact, message, slot, operation, block, leaks, lost_bytes });
    }

    /// A step answered an error, which it must not.
    fn violate_answer(&mut self, life: &Life, step: Step, status: Status, what: &str) {
        let text = format!("{what} answered {status}{}", message_about(life, step.section));
        self.violate(Fact::Answered(step, status.into()), Subject::default(), text);
    }

    fn unknown(&mut self, reason: String) {
        self.out.unknown.push(reason);
    }

    fn not_judged(&mut self, rule: RuleId, reason: impl Into<Cow<'static, str>>) {
        self.out.not_judged.push((rule, reason.into()));
    }

    /// Whether the life ended because something went wrong in it, so that missing sections need no other reason.
    fn is_cut_short(&self, life: usize) -> bool {
        self.report.outcome != Outcome::Done && usize::from(self.report.last_life) == life
    }

    /// No campaign tries these promises yet. What a contract does not promise is not named: there is nothing to judge.
    fn name_what_is_not_explored(&mut self) {
        if self.history.generations().len() == 1 {
            self.not_judged(RuleId::LaterGeneration, "no crash after the first is explored");
        }
        if self.contract.relocatable && !self.shape.is_relocated {
            self.not_judged(RuleId::NotRelocatable, "promised and not judged: relocatable, without FL_CAN_RELOCATE");
        }
        if self.contract.promises(RuleId::CorruptionMissed) {
            let promises = [("detects", &self.contract.detects), ("isolates", &self.contract.isolates)];
            for (promise, kinds) in promises.into_iter().filter(|(_, kinds)| !kinds.is_empty()) {
                let text = format!("promised and not judged: {promise} {}", kinds.join(", "));
                self.not_judged(RuleId::CorruptionMissed, text);
            }
        }
    }

    /// Every rule that the contract promises to keep is judged, broken or named as not judged: none is passed over in silence.
    fn name_rules_not_reached(&mut self) {
        let out = &mut self.out;
        let mut reached = out.judged;
        out.violations.iter().for_each(|violation| reached.insert(violation.rule));
        out.not_judged.iter().for_each(|(rule, _)| reached.insert(*rule));
        let is_open = self.report.life(0).is_some_and(|life| life.open == Some(Status::Ok));
        let why = match self.report.outcome {
            Outcome::Broken => "the probe could not be followed",
            _ if self.history.current().phase() == Phase::Absent => "there is no heap: create has not begun",
            Outcome::Done if !is_open => "there is no heap: recovery refused the image",
            Outcome::Done => "the heap report lacks what it needs",
            _ => "the probe ended early",
        };
        let promised = RuleId::ALL.into_iter().filter(|rule| self.contract.promises(*rule));
        let missing = promised.filter(|rule| !reached.contains(*rule));
        out.not_judged.extend(missing.map(|rule| (rule, Cow::Borrowed(why))));
    }

    /// FL001 and FL002: a process of the probe must come to its end, whatever the image.
    fn judge_outcome(&mut self) {
        let life = self.report.life(usize::from(self.report.last_life));
        let what = stage_phrase(self.report.last_life, self.report.last_stage);
        match self.report.outcome {
            Outcome::Overloaded => {
                return self.unknown(format!("{what}: the machine was overloaded, the wall limit came first"));
            }
            Outcome::Broken => {
                let message = tail(life.and_then(|life| life.messages.last()));
                return self.unknown(format!("{what} could not be followed{message}"));
            }
            Outcome::Done | Outcome::Signal(_) | Outcome::Exited | Outcome::Hung => {}
        }
        // What the life said before is of a step that it came through: who dies says nothing.
        if let Some(fact) = end_of(self.report) {
            match self.contract.out_of_memory == OutOfMemory::Ends && has_filled(self.report) {
                true => self.filled = Some(fact),
                false => self.violate(fact, Subject::default(), failure_words(fact, recovery_phrase)),
            }
        }
        self.out.judged.insert(RuleId::RecoveryCrashed);
        self.out.judged.insert(RuleId::RecoveryHung);
    }

    /// FL004: what a close that has returned leaves is a heap that needs no recovery, where the contract promises it.
    fn judge_clean_close(&mut self, life: &Life) {
        let Some(operation) = self.history.closed_by() else { return };
        match life.has_recovered {
            Some(false) => {}
            Some(true) => {
                let text = format!("operation {operation} (close) returned, but open had to recover the heap");
                self.violate(Fact::CloseLost, Subject { operation: Some(operation), ..Subject::default() }, text);
            }
            None => self.not_judged(RuleId::OperationLost, "whether the last close is lost: open does not tell"),
        }
    }

    /// FL003: recovery of the crash image answered an error.
    fn judge_refusal(&mut self, life: &Life, status: Status) {
        self.out.judged.insert(RuleId::RecoveryFailed);
        let message = message_about(life, SectionKind::Open);
        if self.history.must_open() {
            let text = format!("recovery answered {status}, but the heap was created{message}");
            let step = Step::new(0, SectionKind::Open);
            return self.violate(Fact::Answered(step, status.into()), Subject::default(), text);
        }
        let operation = self.history.current().create_index();
        let subject = Subject { operation: Some(operation), ..Subject::default() };
        // "corrupt" says that a complete heap was damaged, which no power failure may make of an incomplete one.
        let is_clean = match self.contract.after_failed_create {
            AfterFailedCreate::Error => status != Status::Corrupt,
            AfterFailedCreate::ReCreatable => status == Status::NotAHeap,
        };
        if !is_clean {
            let text = format!("recovery answered {status} while create was pending: expected not-a-heap{message}");
            return self.violate(Fact::CreationRefused(status.into()), subject, text);
        }
        if self.contract.after_failed_create == AfterFailedCreate::Error {
            return;
        }
        match self.report.lives.iter().find_map(|life| life.recreate) {
            Some(Status::Ok) => {}
            Some(status) => {
                let message = tail(self.report.lives.iter().rev().find_map(|life| life.messages.last()));
                let text = format!("create after a create that power cut short answered {status}{message}");
                let step = Step::new(0, SectionKind::Recreate);
                self.violate(Fact::Answered(step, status.into()), subject, text);
            }
            None if self.report.outcome == Outcome::Done => {
                self.not_judged(RuleId::RecoveryFailed, "the probe did not try create again (first part only)");
            }
            None => {}
        }
    }
}
