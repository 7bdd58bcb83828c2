// SPDX-License-Identifier: Apache-2.0
//! Whether the object that a holder points to is one that it may hold: FL004, FL005, FL009 and the parts of FL006 and FL007 that
//! objects show.

use super::Judge;
use super::contents::Shown;
use super::followed::{FollowedReferences, Identity, Look};
use super::references::Found;
use crate::fact::{ExtentError, Fact, Step};
use crate::history::{Candidate, Candidates, ExpectedObject, ObjectId, OperationKind};
use crate::report::{Contents, SectionKind, Stage, Status};

/// Why an object is not as a candidate has it, the gravest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ObjectError {
    TooSmall,
    /// First wrong byte.
    Content(u64),
}

impl<'a> Judge<'a> {
    /// A holder that is not null: FL004, FL005, FL006, FL007, FL009. False: to be looked at again when more is known.
    pub(super) fn judge_set(
        &mut self,
        found: &Found<'a>,
        candidates: &Candidates<'_>,
        look: Look,
        references: &mut FollowedReferences<'a>,
    ) -> bool {
        let objects: Vec<Candidate<'_>> = candidates.iter().filter(|candidate| candidate.object.is_some()).collect();
        if objects.is_empty() {
            if !references.is_graph() {
                self.unsound.extend(found.key);
            }
            self.judge_unexpected(found);
            return true;
        }
        let Some(key) = found.key.filter(|key| !self.unsound.contains(key)) else {
            self.judge_unseen(found, references);
            references.first_part.note(found.holder, objects.into_iter());
            return true;
        };
        let is_last = !references.is_graph() || look == Look::Last;
        match references.identity(key, objects.clone()) {
            Identity::Known(known) => references.first_part.note(found.holder, known.into_iter()),
            Identity::Open(open) => return self.judge_object(found, &open, is_last, references),
            Identity::Another(_) | Identity::Elsewhere if !is_last => return false,
            Identity::Another(other) => self.judge_anothers_place(found, &objects, other, references),
            Identity::Elsewhere => self.judge_wrong_place(found, &objects, references),
        }
        true
    }

    /// The object is nowhere else: is it here? False: perhaps.
    fn judge_object(
        &mut self,
        found: &Found<'a>,
        objects: &[Candidate<'_>],
        is_last: bool,
        references: &mut FollowedReferences<'a>,
    ) -> bool {
        let errors: Vec<_> = objects.iter().map(|candidate| (candidate, self.object_error(found, candidate))).collect();
        let right = errors.iter().filter(|(_, error)| error.is_none()).map(|(candidate, _)| **candidate);
        let right = self.shown_after_recovery(found, right.collect());
        // Without walk nobody can tell whether the heap block is free already, and may be handed out and filled again.
        let may_be_anothers = found.capacity.is_none() && self.is_being_freed(found.holder);
        let is_right = !right.is_empty();
        if !is_right && !is_last && !may_be_anothers {
            return false;
        }
        self.judge_place(found);
        // The state that is right for longest says best what is wrong.
        let nearest = errors.iter().max_by_key(|(_, error)| error.map_or((true, None), |error| (false, Some(error))));
        let nearest = nearest.and_then(|(candidate, error)| candidate.object.map(|object| (object, *error)));
        match is_right {
            true => references.first_part.note(found.holder, right.into_iter()),
            false => references.first_part.note(found.holder, objects.iter().copied()),
        }
        if references.is_graph() {
            self.judge_sharing(found, nearest.map(|(object, _)| object.placed_by), references);
        }
        self.learn(references, found, nearest.and_then(|(object, _)| object.id));
        if may_be_anothers || !is_right {
            self.unsound.extend(found.key);
        }
        match nearest.filter(|_| !may_be_anothers) {
            Some((object, Some(ObjectError::TooSmall))) => self.judge_too_small(found, &object),
            Some((object, Some(ObjectError::Content(at)))) if self.may_be_put_right(found, &object, at) => {
                let (holder, bytes) = (found.holder, object.bytes);
                self.unknown(format!(
                    "{holder}: byte {at} of its {bytes} bytes is wrong in the crash image, and what recovery made of it is not known: \
                     the heap report does not show it"
                ));
            }
            Some((object, Some(ObjectError::Content(at)))) => self.judge_wrong_content(found, &object, at),
            _ => {}
        }
        true
    }

    /// Of several states that fit, those that the contents after recovery show, if they show any: recovery may have gone on with an
    /// operation that the crash image has nothing of.
    fn shown_after_recovery<'c>(&self, found: &Found<'_>, fitting: Vec<Candidate<'c>>) -> Vec<Candidate<'c>> {
        let Some((contents, key)) = self.recovered_contents().zip(found.key).filter(|_| fitting.len() > 1) else {
            return fitting;
        };
        let is_shown = |candidate: &&Candidate<'_>| {
            candidate.object.is_some_and(|object| Shown::of(contents, key).wrong_byte(&object).is_none())
        };
        let shown: Vec<_> = fitting.iter().filter(is_shown).copied().collect();
        if shown.is_empty() { fitting } else { shown }
    }

    fn recovered_contents(&self) -> Option<&'a Contents> {
        self.report.lives.iter().take(2).find_map(|life| life.contents_after(Stage::Recovery))
    }

    /// A live heap block that the report lists no object of, though a slot reaches it.
    fn judge_unseen(&mut self, found: &Found<'_>, references: &FollowedReferences<'a>) {
        let is_listed = found.key.is_some() || found.capacity.is_none();
        if !is_listed && references.life.objects.as_ref().is_some_and(|objects| objects.status == Status::Ok) {
            self.unknown(format!(
                "{} points to {}, which the heap report lists no object of",
                found.holder,
                found.place()
            ));
        }
        if found.key.is_some() {
            self.judge_place(found);
        }
    }

    /// The holder points to the place of another object than the one it must hold.
    fn judge_anothers_place(
        &mut self,
        found: &Found<'_>,
        objects: &[Candidate<'_>],
        other: ObjectId,
        references: &mut FollowedReferences<'a>,
    ) {
        references.first_part.note(found.holder, objects.iter().copied());
        let Some(object) = objects.iter().find_map(|candidate| candidate.object) else { return };
        references.lose(object.id);
        let (holder, operation) = (found.holder, object.placed_by);
        let held_before = self.history.previous(holder).map(|previous| previous.object.id);
        if held_before == Some(other) {
            let text =
                format!("{holder} still points to what it held before operation {operation}, in {}", found.place());
            return self.violate(Fact::PlaceOfOlder(holder.into()), self.subject(found, Some(operation)), text);
        }
        let text = format!(
            "{holder} points to {}, where object {other} is: two objects that operations left are one",
            found.place()
        );
        self.violate(Fact::ObjectsAreOne(holder.into()), self.subject(found, Some(operation)), text);
    }

    /// The object that the holder must hold is at another place than the one it points to, where no other object is expected.
    fn judge_wrong_place(
        &mut self,
        found: &Found<'_>,
        objects: &[Candidate<'_>],
        references: &mut FollowedReferences<'a>,
    ) {
        references.first_part.note(found.holder, objects.iter().copied());
        let is_right = |candidate: &&Candidate<'_>| self.object_error(found, candidate).is_none();
        let Some(object) = objects.iter().find(is_right).or(objects.first()).and_then(|candidate| candidate.object)
        else {
            return;
        };
        let (holder, operation) = (found.holder, object.placed_by);
        let subject = self.subject(found, Some(operation));
        if objects.iter().any(|candidate| self.object_error(found, candidate).is_none()) {
            let text =
                format!("{holder} points to a second object like the one that it must hold, in {}", found.place());
            return self.violate(Fact::ObjectTwice(holder.into()), subject, text);
        }
        let text =
            format!("{holder} points to {}, but operation {operation} made it hold an object elsewhere", found.place());
        self.violate(Fact::ObjectElsewhere(holder.into()), subject, text);
    }

    fn object_error(&self, found: &Found<'_>, candidate: &Candidate<'_>) -> Option<ObjectError> {
        let object = candidate.object?;
        if !found.holds(&object) {
            return Some(ObjectError::TooSmall);
        }
        self.content_error(found, &object).map(ObjectError::Content)
    }

    fn judge_unexpected(&mut self, found: &Found<'_>) {
        let holder = found.holder;
        let (fact, operation, why) = match self.history.previous(holder) {
            Some(previous) => {
                let (operation, kind) = (previous.operation, previous.kind.name());
                let why = format!("operation {operation} ({kind}) made it so");
                (Fact::SetAgain(holder.into()), Some(operation), why)
            }
            None => (Fact::NeverSet(holder.into()), None, "no operation put an object there".to_owned()),
        };
        let text = format!("{holder} points to {}, but must be null: {why}", found.place());
        self.violate(fact, self.subject(found, operation), text);
    }

    fn judge_place(&mut self, found: &Found<'_>) {
        let alignment = self.shape.alignment.max(1);
        if found.at.offset % alignment != 0 {
            let text = format!("{}: the object in {} is not aligned to {alignment} bytes", found.holder, found.place());
            let fact = Fact::ObjectExtent(found.holder.into(), ExtentError::Misaligned);
            self.violate(fact, self.subject(found, None), text);
        }
    }

    fn judge_too_small(&mut self, found: &Found<'_>, object: &ExpectedObject<'_>) {
        let (holder, operation) = (found.holder, object.operation);
        let capacity = found.capacity.unwrap_or(0);
        let asked = format!(
            "operation {operation} asked for {} bytes, but the heap block in {} holds {capacity}",
            object.bytes,
            found.place()
        );
        let subject = self.subject(found, Some(operation));
        if object.previous_bytes.is_some_and(|bytes| bytes <= capacity) {
            let text = format!("{holder}: a returned reallocate is lost: {asked}, enough for the size before");
            return self.violate(Fact::ReallocationLost(holder.into()), subject, text);
        }
        let fact = Fact::ObjectExtent(holder.into(), ExtentError::TooSmall);
        self.violate(fact, subject, format!("{holder}: {asked}"));
    }

    /// FL009, or FL004 where the holder holds what it did before, and FL005 where that was freed.
    fn judge_wrong_content(&mut self, found: &Found<'_>, object: &ExpectedObject<'_>, at: u64) {
        let (holder, operation) = (found.holder, object.written_by);
        if let Some(previous) = self.history.previous(holder) {
            let (older, by) = (&previous.object, previous.operation);
            let differs = self.content.differs(found.file, found.at.offset, &older.segments, older.bytes);
            if older.bytes > at && differs.is_none() {
                if previous.kind == OperationKind::Free {
                    let text = format!("{holder} holds the object that operation {by} freed, in {}", found.place());
                    self.violate(Fact::FreedForNew(holder.into()), self.subject(found, Some(by)), text);
                }
                let placed_by = object.placed_by;
                let text =
                    format!("{holder}: the object that operation {placed_by} put there is lost: an older one is there");
                let subject = self.subject(found, Some(placed_by));
                return self.violate(Fact::ContentOfOlder(holder.into()), subject, text);
            }
        }
        let text = format!(
            "{holder}: byte {at} of the {} bytes that operation {operation} left in {} is wrong after recovery",
            object.bytes,
            found.place()
        );
        let fact = Fact::ContentWrong(holder.into(), Step::new(0, SectionKind::Contents));
        self.violate(fact, self.subject(found, Some(operation)), text);
    }

    /// Contents show nothing wrong and not all, and power failed in the middle of an operation on the object: recovery may have taken
    /// back what that did to it.
    fn may_be_put_right(&self, found: &Found<'_>, object: &ExpectedObject<'_>, at: u64) -> bool {
        self.history.is_touched(found.holder)
            && self
                .recovered_contents()
                .zip(found.key)
                .is_some_and(|(contents, key)| Shown::of(contents, key).is_put_right(object, at).is_none())
    }

    /// The first wrong byte of the object in the crash image, unless recovery has put it right: what was seen after it counts more.
    fn content_error(&self, found: &Found<'_>, object: &ExpectedObject<'_>) -> Option<u64> {
        if object.checked_bytes == 0 {
            return None;
        }
        let at = self.content.differs(found.file, found.at.offset, object.segments, object.checked_bytes)?;
        let is_repaired = self
            .recovered_contents()
            .zip(found.key)
            .is_some_and(|(contents, key)| Shown::of(contents, key).is_put_right(object, at) == Some(true));
        (!is_repaired).then_some(at)
    }
}
