// SPDX-License-Identifier: Apache-2.0
//! Random legal crashes, and each single corruption of what recovery made of them: the legal one passes, a corruption breaks its
//! rule and no other, and one that the contract permits (or that the adapter cannot show) is not reported.
//!
//! Two rules are expected together only where one corruption is two facts: a slot that names a free heap block (FL004, FL008), live
//! heap blocks that overlap in an accounted heap (FL006, FL011), a live heap block that appears and takes capacity (FL012, FL013).

mod common;

use common::random::{Crash, Random, with_slot};
use common::*;
use oracle::contract::{Accounting, AfterFailedCreate, Durable, Fill, Leaks, Publish};
use oracle::judge::Verdict;
use oracle::report::build::allocated;
use oracle::report::{Block, BlockState, Outcome, SectionKind, Stage, USE};
use oracle::{OperationKind, RuleId, Status};
use std::collections::BTreeMap;

const SEEDS: u64 = 600;

/// What a corruption left, and which rules that breaks.
struct Bent {
    probe: Probe,
    memory: Memory,
    breaks: Vec<RuleId>,
}

fn bent(crash: &Crash, probe: Probe, breaks: &[RuleId]) -> Option<Bent> {
    Some(Bent { probe, memory: crash.heap.memory(), breaks: breaks.to_vec() })
}

/// As above where the condition holds; else the contract permits it, or nothing shows it.
fn bent_if(crash: &Crash, is_broken: bool, probe: Probe, breaks: &[RuleId]) -> Option<Bent> {
    bent(crash, probe, if is_broken { breaks } else { &[] })
}

/// `None`: this crash has nothing to corrupt in this way.
type Corruption = fn(&Crash, &mut Random) -> Option<Bent>;

/// Each with a name, and whether some contract permits it.
const CORRUPTIONS: &[(&str, bool, Corruption)] = &[
    ("a life dies of a signal", false, dies),
    ("a life calls exit", false, exits),
    ("a life does not end", false, hangs),
    ("recovery answers an error", false, refuses),
    ("recovery calls a heap in creation corrupt", false, refuses_creation),
    ("creating again fails", true, fails_to_recreate),
    ("a later open answers an error", false, refuses_later),
    ("the slots cannot be read", false, slots_fail),
    ("the contents cannot be read", false, contents_fail),
    ("an object and its slot are gone", false, object_lost),
    ("a slot is gone, its heap block stays", false, slot_lost),
    ("an empty slot holds an object", false, slot_risen),
    ("a probe slot holds an object", false, probe_slot_risen),
    ("objects that the probe freed are back", false, probe_objects_back),
    ("a pending allocation names another's heap block", false, block_shared),
    ("live heap blocks overlap", false, blocks_overlap),
    ("two allocations of the emptied heap overlap", false, emptied_overlaps),
    ("an allocation overlaps a live heap block", false, drain_overlaps_live),
    ("two allocations overlap", false, drain_overlaps_itself),
    ("an object is off alignment", false, misaligned),
    ("a heap block is too small for its object", false, too_small),
    ("a heap block is smaller than any may be", false, tiny),
    ("an allocation lies past the heap's end", false, drain_past_end),
    ("a slot names a free heap block", false, slot_dangles),
    ("a published pending allocation has no heap block", false, pending_dangles),
    ("an allocation of the emptied heap lies past its end", false, emptied_past_end),
    ("an object has another's content", false, content_of_another),
    ("a byte of an object is wrong", false, byte_wrong),
    ("a later stage changes an object", false, content_changes_later),
    ("a heap block leaks", true, leak),
    ("the accounting has a gap", true, gap),
    ("check fails", false, check_fails),
    ("walk fails", false, walk_fails),
    ("capacity is lost", true, capacity_lost),
    ("capacity is lost when all objects are freed", true, emptied_capacity_lost),
    ("an allocation fails", false, drain_fails),
    ("an allocation of the emptied heap fails", false, emptied_drain_fails),
    ("a free of an object fails", false, emptying_fails),
    ("a free fails", false, free_fails),
    ("the maximal allocation fails", false, maximal_fails),
    ("close fails", false, close_fails),
    ("another recovery moves an object", false, object_moves),
    ("another recovery shrinks a heap block", false, block_shrinks),
    ("another recovery leaks a heap block", false, leaks_later),
    ("a stale word retains a heap block", true, retained),
    ("another recovery retains a heap block", true, retained_later),
    ("a clean close loses a slot", false, survivor_lost),
    ("another recovery changes what nobody promised", false, unpromised_changes),
];

fn seeded(seed: u64) -> (Crash, Random) {
    (Crash::random(seed * 0x9e37_79b9), Random(seed * 0x517c_c1b7))
}

#[test]
fn each_corruption_breaks_its_rule_and_no_other() {
    let mut seen: BTreeMap<(&str, bool), u32> = BTreeMap::new();
    let mut rules_seen: Vec<RuleId> = Vec::new();
    for seed in 1..=SEEDS {
        let (crash, mut random) = seeded(seed);
        let legal = crash.judged(&crash.probe(), &crash.heap.memory());
        assert!(legal.violations.is_empty() && legal.unknown.is_empty(), "seed {seed}: {}\n{legal:#?}", crash.words());
        for (name, _, corrupt) in CORRUPTIONS {
            let Some(bent) = corrupt(&crash, &mut random) else { continue };
            let judgement = crash.judged(&bent.probe, &bent.memory);
            assert_eq!(rules(&judgement), bent.breaks, "seed {seed}, {name}: {}\n{judgement:#?}", crash.words());
            *seen.entry((name, bent.breaks.is_empty())).or_default() += 1;
            rules_seen.extend(bent.breaks);
        }
    }
    for (name, is_permitted_by_some, _) in CORRUPTIONS {
        let count = |is_permitted| seen.get(&(*name, is_permitted)).copied().unwrap_or(0);
        assert!(count(false) >= 10, "{name}: broke its rule {} times", count(false));
        assert_eq!(count(true) >= 10, *is_permitted_by_some, "{name}: was permitted {} times", count(true));
    }
    // Rules beyond FL013 are about what is not explored yet.
    for rule in RuleId::ALL.into_iter().take_while(|rule| *rule < RuleId::LaterGeneration) {
        assert!(rules_seen.contains(&rule), "no corruption breaks {rule}");
    }
}

#[test]
fn a_probe_of_which_nothing_is_known_is_unknown_and_breaks_nothing() {
    for seed in 1..=SEEDS / 10 {
        let (crash, mut random) = seeded(seed);
        for outcome in [Outcome::Overloaded, Outcome::Broken] {
            let judgement = crash.judged(&ended(&crash, &mut random, outcome), &crash.heap.memory());
            assert_eq!((judgement.verdict(), rules(&judgement)), (Verdict::Unknown, vec![]), "seed {seed}");
        }
    }
}

/// The crashes must not all be of one kind.
#[test]
fn every_kind_of_contract_and_crash_is_among_them() {
    let crashes: Vec<Crash> = (1..=SEEDS).map(|seed| seeded(seed).0).collect();
    let kinds: &[fn(&Crash) -> bool] = &[
        |crash| crash.contract.publish == Publish::Separate,
        |crash| crash.contract.fill == Fill::After,
        |crash| crash.contract.leaks == Leaks::None,
        |crash| crash.contract.leaks == Leaks::Pending,
        |crash| crash.contract.leaks == Leaks::Collected,
        |crash| crash.contract.durable == Durable::OnClose,
        |crash| crash.contract.accounting == Accounting::None,
        |crash| crash.contract.after_failed_create == AfterFailedCreate::ReCreatable,
        |crash| !crash.has_walk,
        |crash| crash.is_creating(),
        |crash| crash.dangling.is_some() && crash.has_walk,
        |crash| crash.dangling.is_some() && !crash.has_walk,
        |crash| crash.open.is_none(),
        |crash| crash.open.is_some_and(|(_, _, is_shown)| is_shown),
        |crash| crash.open.is_some_and(|(_, _, is_shown)| !is_shown),
    ];
    for (number, is_of_kind) in kinds.iter().enumerate() {
        let count = crashes.iter().filter(|crash| is_of_kind(crash)).count() as u64;
        assert!((3..=SEEDS - 3).contains(&count), "kind {number}: {count}");
    }
}

// FL001, FL002

fn ended(crash: &Crash, random: &mut Random, outcome: Outcome) -> Probe {
    let ends = [0, 1, 2, 3, 4, 5, 6].map(|life| (life, SectionKind::Open));
    let (life, stage) =
        random.pick(&[&ends[..], &[3, 5].map(|life| (life, SectionKind::Drain))].concat()).expect("nine");
    crash.probe().ended(life, stage, outcome)
}

fn dies(crash: &Crash, random: &mut Random) -> Option<Bent> {
    bent(crash, ended(crash, random, Outcome::Signal(11)), &[RuleId::RecoveryCrashed])
}

fn exits(crash: &Crash, random: &mut Random) -> Option<Bent> {
    bent(crash, ended(crash, random, Outcome::Exited), &[RuleId::RecoveryCrashed])
}

fn hangs(crash: &Crash, random: &mut Random) -> Option<Bent> {
    bent(crash, ended(crash, random, Outcome::Hung), &[RuleId::RecoveryHung])
}

// FL003

fn refused(crash: &Crash, life: usize, status: Status) -> Probe {
    let mut probe = crash.probe();
    probe.lives = life as u16 + 1;
    probe.open[life] = Some(status);
    probe
}

fn refuses(crash: &Crash, random: &mut Random) -> Option<Bent> {
    let status = random.pick(&[Status::NotAHeap, Status::Corrupt, Status::OutOfMemory, Status::Error])?;
    (!crash.is_creating()).then(|| bent(crash, refused(crash, 0, status), &[RuleId::RecoveryFailed]))?
}

fn refuses_creation(crash: &Crash, _: &mut Random) -> Option<Bent> {
    crash.is_creating().then(|| bent(crash, refused(crash, 0, Status::Corrupt), &[RuleId::RecoveryFailed]))?
}

fn fails_to_recreate(crash: &Crash, _: &mut Random) -> Option<Bent> {
    let probe = Probe { recreate: Some(Status::Error), ..refused(crash, 0, Status::NotAHeap) };
    let is_promised = crash.contract.after_failed_create == AfterFailedCreate::ReCreatable;
    crash.is_creating().then(|| bent_if(crash, is_promised, probe, &[RuleId::RecoveryFailed]))?
}

fn refuses_later(crash: &Crash, random: &mut Random) -> Option<Bent> {
    let life = random.pick(&[1, 2, 3, 4, 5, 6])?;
    let rule = if [4, 6].contains(&life) { RuleId::NotUsable } else { RuleId::RecoveryFailed };
    bent(crash, refused(crash, life, Status::Error), &[rule])
}

fn slots_fail(crash: &Crash, random: &mut Random) -> Option<Bent> {
    let life = random.pick(&[0, 2, 3, 4])?;
    let mut probe = crash.probe();
    probe.slots_status[life] = Status::Error;
    bent(crash, probe, &[if life == 4 { RuleId::NotUsable } else { RuleId::RecoveryFailed }])
}

const STAGES: [(u16, Stage); 6] = [
    (1, Stage::Recovery),
    (2, Stage::Recovery),
    (3, Stage::Recovery),
    (3, Stage::Drain),
    (3, Stage::FreeAll),
    (4, Stage::Recovery),
];

fn contents_fail(crash: &Crash, random: &mut Random) -> Option<Bent> {
    let (life, stage) = random.pick(&STAGES)?;
    let mut probe = crash.probe();
    probe.contents_status.insert((life, stage), Status::Error);
    probe.contents.insert((life, stage), vec![]);
    let is_recovery = life < 4 && stage == Stage::Recovery;
    bent(crash, probe, &[if is_recovery { RuleId::RecoveryFailed } else { RuleId::NotUsable }])
}

// FL004, FL005

fn without(heap: &Heap, slot: u32) -> Heap {
    let mut less = heap.clone();
    less.objects.remove(&slot);
    less
}

fn object_lost(crash: &Crash, random: &mut Random) -> Option<Bent> {
    let less = without(&crash.heap, random.pick(&crash.settled())?);
    bent(crash, crash.probe_of(&less), &[RuleId::OperationLost])
}

fn slot_lost(crash: &Crash, random: &mut Random) -> Option<Bent> {
    let lost = random.pick(&crash.settled())?;
    let probe = crash.probe().each_slots(|slots| slots.retain(|entry| entry.0 != lost));
    bent(crash, probe, &[RuleId::OperationLost])
}

fn risen(crash: &Crash, slot: u32) -> Option<Bent> {
    let mut more = crash.heap.clone();
    more.put(slot, crash.place(64)?, 64, 0xbeef);
    let probe = crash.probe_of(&more);
    Some(Bent { probe, memory: more.memory(), breaks: vec![RuleId::FreedObjectBack] })
}

fn slot_risen(crash: &Crash, random: &mut Random) -> Option<Bent> {
    risen(crash, random.pick(&crash.empty())?)
}

fn probe_slot_risen(crash: &Crash, random: &mut Random) -> Option<Bent> {
    risen(crash, SLOTS + random.below(u64::from(PROBE_SLOTS)) as u32)
}

/// Two: one is the maximal allocation, which the probe does not free.
fn probe_objects_back(crash: &Crash, _: &mut Random) -> Option<Bent> {
    let offset = crash.place(128)?;
    let mut probe = crash.probe();
    probe.slots[4].extend([(SLOTS, 0, offset), (SLOTS + 1, 0, offset + 64)]);
    let back = Heap { leaked: vec![(offset, 64), (offset + 64, 64)], ..crash.heap.clone() };
    probe.walk[4] = crash.probe_of(&back).walk[4].clone();
    bent(crash, probe, &[RuleId::FreedObjectBack])
}

// FL006

/// While it is pending, and filled later, its content says nothing.
fn block_shared(crash: &Crash, random: &mut Random) -> Option<Bent> {
    let (OperationKind::Allocate, slot, false) = crash.open? else { return None };
    let pending = crash.script.history.current().pending().first()?;
    let other = &crash.heap.objects[&random.pick(&crash.settled())?];
    let is_fine = crash.contract.fill == Fill::After && pending.operation.bytes <= other.capacity;
    is_fine.then(|| bent(crash, with_slot(crash.probe(), slot, other.offset), &[RuleId::Overlap]))?
}

fn blocks_overlap(crash: &Crash, _: &mut Random) -> Option<Bent> {
    let taken = crash.heap.taken();
    let (first, _) = taken.windows(2).map(|pair| (pair[0], pair[1])).find(|(a, b)| a.0 + a.1 == b.0)?;
    let longer = |blocks: &mut Vec<Block>| {
        blocks.iter_mut().filter(|block| block.offset == first.0).for_each(|block| block.bytes += 64);
    };
    let breaks = match crash.contract.accounting {
        Accounting::Full => vec![RuleId::Overlap, RuleId::Inconsistent],
        Accounting::None => vec![RuleId::Overlap],
    };
    crash.has_walk.then(|| bent(crash, crash.probe().each_walk(longer), &breaks))?
}

fn drained(crash: &Crash, block: Block, rule: RuleId) -> Option<Bent> {
    let mut probe = crash.probe();
    probe.drain.as_mut()?.push(block);
    bent(crash, probe, &[rule])
}

fn drain_overlaps_live(crash: &Crash, random: &mut Random) -> Option<Bent> {
    let object = &crash.heap.objects[&random.pick(&crash.settled())?];
    drained(crash, allocated(object.offset, 64), RuleId::Overlap)
}

fn drain_overlaps_itself(crash: &Crash, random: &mut Random) -> Option<Bent> {
    let twice = random.pick(&crash.probe().drain?)?;
    drained(crash, allocated(twice.offset + twice.bytes - 64, 64), RuleId::Overlap)
}

fn emptied_overlaps(crash: &Crash, random: &mut Random) -> Option<Bent> {
    let twice = random.pick(&crash.probe().emptied?)?;
    emptied(crash, allocated(twice.offset + twice.bytes - 64, 64), RuleId::Overlap)
}

fn emptied(crash: &Crash, block: Block, rule: RuleId) -> Option<Bent> {
    let mut probe = crash.probe();
    probe.emptied.as_mut()?.push(block);
    bent(crash, probe, &[rule])
}

// FL007

fn emptied_past_end(crash: &Crash, _: &mut Random) -> Option<Bent> {
    emptied(crash, allocated(HEAP_BYTES, 64), RuleId::BadExtent)
}

fn misaligned(crash: &Crash, random: &mut Random) -> Option<Bent> {
    let object = |slot: &u32| &crash.heap.objects[slot];
    let bytes = |slot: &u32| object(slot).segments.last().map_or(0, |last| last.end);
    let roomy: Vec<u32> = crash.settled().into_iter().filter(|slot| bytes(slot) + 8 <= object(slot).capacity).collect();
    let slot = random.pick(&roomy)?;
    let mut memory = crash.heap.memory();
    memory.write(object(&slot).offset + 8, &object(&slot).segments);
    let shift = |slots: &mut Vec<(u32, u32, u64)>| {
        slots.iter_mut().filter(|entry| entry.0 == slot).for_each(|entry| entry.2 += 8);
    };
    Some(Bent { probe: crash.probe().each_slots(shift), memory, breaks: vec![RuleId::BadExtent] })
}

/// After a reallocation that grew, a block of the size before says that the reallocation is lost.
fn too_small(crash: &Crash, random: &mut Random) -> Option<Bent> {
    let slot = random.pick(&crash.settled())?;
    let mut less = crash.heap.clone();
    let object = less.objects.get_mut(&slot)?;
    object.capacity -= 64;
    let capacity = object.capacity;
    let candidates = crash.script.history.candidates(slot, crash.contract.fill);
    let previous = candidates.objects().next()?.previous_bytes;
    let rule = if previous.is_some_and(|bytes| bytes <= capacity) { RuleId::OperationLost } else { RuleId::BadExtent };
    (crash.has_walk && capacity > 0).then(|| bent(crash, crash.probe_of(&less), &[rule]))?
}

fn tiny(crash: &Crash, random: &mut Random) -> Option<Bent> {
    let is_tiny = |slot: &u32| crash.heap.objects[slot].segments.last().is_some_and(|last| last.end <= 32);
    let slots: Vec<u32> = crash.settled().into_iter().filter(is_tiny).collect();
    let offset = crash.heap.objects[&random.pick(&slots)?].offset;
    let shrink = |blocks: &mut Vec<Block>| {
        blocks.iter_mut().filter(|block| block.offset == offset).for_each(|block| block.bytes = 32);
    };
    let is_seen = crash.has_walk && crash.contract.accounting == Accounting::None;
    is_seen.then(|| bent(crash, crash.probe().each_walk(shrink), &[RuleId::BadExtent]))?
}

fn drain_past_end(crash: &Crash, _: &mut Random) -> Option<Bent> {
    drained(crash, allocated(HEAP_BYTES, 64), RuleId::BadExtent)
}

// FL008

fn slot_dangles(crash: &Crash, random: &mut Random) -> Option<Bent> {
    let slot = random.pick(&crash.settled())?;
    let probe = with_slot(crash.probe_of(&without(&crash.heap, slot)), slot, crash.heap.objects[&slot].offset);
    crash.has_walk.then(|| bent(crash, probe, &[RuleId::OperationLost, RuleId::DanglingSlot]))?
}

fn pending_dangles(crash: &Crash, _: &mut Random) -> Option<Bent> {
    let (OperationKind::Allocate, slot, false) = crash.open? else { return None };
    let probe = with_slot(crash.probe(), slot, crash.place(64)?);
    crash.has_walk.then(|| bent(crash, probe, &[RuleId::DanglingSlot]))?
}

// FL009

fn content_of_another(crash: &Crash, random: &mut Random) -> Option<Bent> {
    let mut changed = crash.heap.clone();
    changed.objects.get_mut(&random.pick(&crash.settled())?)?.segments[0].object += 1;
    Some(Bent { probe: crash.probe_of(&changed), memory: changed.memory(), breaks: vec![RuleId::ContentChanged] })
}

/// And recovery shows nothing of the object that could say that it was put right.
fn byte_wrong(crash: &Crash, random: &mut Random) -> Option<Bent> {
    let slot = random.pick(&crash.settled())?;
    let object = &crash.heap.objects[&slot];
    let mut memory = crash.heap.memory();
    memory.bytes[(object.offset + random.below(object.segments.last()?.end)) as usize] ^= 1;
    let mut probe = crash.probe();
    probe.contents.values_mut().for_each(|entries| entries.retain(|entry| entry.0 != slot));
    Some(Bent { probe, memory, breaks: vec![RuleId::ContentChanged] })
}

fn content_changes_later(crash: &Crash, random: &mut Random) -> Option<Bent> {
    let has_a_word = |slot: &u32| crash.heap.objects[slot].segments[0].end >= 8;
    let slots: Vec<u32> = crash.settled().into_iter().filter(has_a_word).collect();
    let (slot, stage) = (random.pick(&slots)?, random.pick(&STAGES)?);
    let mut probe = crash.probe();
    probe.contents.get_mut(&stage)?.retain(|entry| entry.0 != slot);
    bent(crash, probe, &[RuleId::ContentChanged])
}

// FL010, FL011

/// Without walk it shows only as capacity that is gone.
fn leak(crash: &Crash, _: &mut Random) -> Option<Bent> {
    let mut leaky = crash.heap.clone();
    leaky.leaked.push((crash.place(64)?, 64));
    let (is_broken, rule) = match crash.has_walk {
        true => (crash.permitted_leaks() == 0, RuleId::Leak),
        false => (crash.is_emptied_capacity_lost(64), RuleId::NotUsable),
    };
    bent_if(crash, is_broken, crash.probe_of(&leaky), &[rule])
}

fn retained(crash: &Crash, _: &mut Random) -> Option<Bent> {
    let mut leaky = crash.heap.clone();
    leaky.leaked.push((crash.place(64)?, 64));
    let mut probe = crash.probe_of(&leaky);
    probe.retained = std::array::from_fn(|_| Some(vec![allocated(leaky.leaked[0].0, 64)]));
    let is_permitted = crash.contract.leaks == Leaks::Collected || crash.permitted_leaks() > 0;
    crash.has_walk.then(|| bent_if(crash, !is_permitted, probe, &[RuleId::Leak]))?
}

fn gap(crash: &Crash, random: &mut Random) -> Option<Bent> {
    let blocks = crash.probe().walk[0].clone()?;
    let free: Vec<u64> =
        blocks.iter().filter(|block| block.state == BlockState::Free).map(|block| block.offset).collect();
    let offset = random.pick(&free)?;
    let probe = crash.probe().each_walk(|blocks| {
        blocks.iter_mut().filter(|block| block.offset == offset).for_each(|block| block.bytes -= 1);
    });
    bent_if(crash, crash.contract.accounting == Accounting::Full, probe, &[RuleId::Inconsistent])
}

fn check_fails(crash: &Crash, random: &mut Random) -> Option<Bent> {
    let mut probe = crash.probe();
    probe.check[random.pick(&[0, 2, 3, 4])?] = Some(Status::Error);
    bent(crash, probe, &[RuleId::Inconsistent])
}

fn walk_fails(crash: &Crash, _: &mut Random) -> Option<Bent> {
    let probe = Probe { walk_status: Status::Corrupt, ..crash.probe() };
    crash.has_walk.then(|| bent(crash, probe, &[RuleId::Inconsistent]))?
}

// FL012

fn capacity_lost(crash: &Crash, _: &mut Random) -> Option<Bent> {
    let mut probe = crash.probe();
    let lost = probe.drain.as_mut()?.pop()?.bytes;
    bent_if(crash, crash.is_capacity_lost(lost)?, probe, &[RuleId::NotUsable])
}

fn emptied_capacity_lost(crash: &Crash, _: &mut Random) -> Option<Bent> {
    let mut probe = crash.probe();
    let lost = probe.emptied.as_mut()?.pop()?.bytes;
    bent_if(crash, crash.is_emptied_capacity_lost(lost), probe, &[RuleId::NotUsable])
}

fn emptied_drain_fails(crash: &Crash, _: &mut Random) -> Option<Bent> {
    unusable(crash, |probe| probe.emptied_status = Status::Corrupt)
}

fn emptying_fails(crash: &Crash, _: &mut Random) -> Option<Bent> {
    unusable(crash, |probe| probe.emptying = Status::Error)
}

fn unusable(crash: &Crash, bend: impl Fn(&mut Probe)) -> Option<Bent> {
    let mut probe = crash.probe();
    bend(&mut probe);
    bent(crash, probe, &[RuleId::NotUsable])
}

fn drain_fails(crash: &Crash, _: &mut Random) -> Option<Bent> {
    unusable(crash, |probe| probe.drain_status = Status::Corrupt)
}

fn free_fails(crash: &Crash, _: &mut Random) -> Option<Bent> {
    unusable(crash, |probe| probe.free_all = Some(Status::Error))
}

fn maximal_fails(crash: &Crash, _: &mut Random) -> Option<Bent> {
    let bytes = crash.probe().maximal?.0;
    (bytes > 0).then(|| unusable(crash, |probe| probe.maximal = Some((bytes, Status::OutOfMemory))))?
}

fn close_fails(crash: &Crash, random: &mut Random) -> Option<Bent> {
    let life = random.pick(&[3, 4, 5])?;
    unusable(crash, |probe| probe.close[life] = Some(Status::Error))
}

// FL013

/// Another heap is what the adapter shows after the second recovery, or after another first one (and the close that follows).
const ANOTHER_HEAP: [&[usize]; 2] = [&[2], &[3, 4]];

fn in_lives(crash: &Crash, heap: &Heap, lives: &[usize]) -> Probe {
    let (mut probe, other) = (crash.probe(), crash.probe_of(heap));
    for &life in lives {
        probe.slots[life].clone_from(&other.slots[life]);
        probe.walk[life].clone_from(&other.walk[life]);
    }
    if lives.contains(&usize::from(USE)) {
        (probe.drain, probe.maximal) = (other.drain, other.maximal);
    }
    probe
}

fn object_moves(crash: &Crash, random: &mut Random) -> Option<Bent> {
    let slot = random.pick(&crash.settled())?;
    let mut moved = crash.heap.clone();
    let offset = crash.place(moved.objects[&slot].capacity)?;
    moved.objects.get_mut(&slot)?.offset = offset;
    let lives = random.pick(&ANOTHER_HEAP)?;
    bent(crash, in_lives(crash, &moved, lives), &[RuleId::NotIdempotent])
}

fn block_shrinks(crash: &Crash, random: &mut Random) -> Option<Bent> {
    let slot = random.pick(&crash.settled())?;
    let mut less = crash.heap.clone();
    less.objects.get_mut(&slot)?.capacity -= 64;
    let is_left = crash.has_walk && less.objects[&slot].capacity > 0;
    let lives = random.pick(&ANOTHER_HEAP)?;
    is_left.then(|| bent(crash, in_lives(crash, &less, lives), &[RuleId::NotIdempotent]))?
}

fn leaks_later(crash: &Crash, random: &mut Random) -> Option<Bent> {
    appears_later(crash, random, |_, _| false)
}

/// A collector may take another word for a pointer the next time.
fn retained_later(crash: &Crash, random: &mut Random) -> Option<Bent> {
    appears_later(crash, random, |probe, block| {
        probe.retained = std::array::from_fn(|_| Some(vec![block]));
        crash.contract.leaks == Leaks::Collected
    })
}

fn appears_later(crash: &Crash, random: &mut Random, bend: impl FnOnce(&mut Probe, Block) -> bool) -> Option<Bent> {
    let mut leaky = crash.heap.clone();
    leaky.leaked.push((crash.place(64)?, 64));
    let lives = random.pick(&ANOTHER_HEAP)?;
    let mut probe = in_lives(crash, &leaky, lives);
    let is_permitted = bend(&mut probe, allocated(leaky.leaked[0].0, 64));
    let mut breaks = Vec::new();
    let is_used = lives.contains(&usize::from(USE));
    breaks.extend((is_used && crash.is_capacity_lost(64)?).then_some(RuleId::NotUsable));
    breaks.extend((!is_permitted).then_some(RuleId::NotIdempotent));
    crash.has_walk.then(|| bent(crash, probe, &breaks))?
}

fn survivor_lost(crash: &Crash, random: &mut Random) -> Option<Bent> {
    let lost = random.pick(&crash.settled())?;
    let mut probe = crash.probe();
    probe.slots[4].retain(|entry| entry.0 != lost);
    bent(crash, probe, &[RuleId::NotIdempotent])
}

fn unpromised_changes(crash: &Crash, random: &mut Random) -> Option<Bent> {
    let (OperationKind::Allocate, slot, true) = crash.open? else { return None };
    let mut probe = crash.probe();
    let entries = probe.contents.get_mut(&(random.pick(&[2, 3, 4])?, Stage::Recovery))?;
    let before = entries.len();
    entries.retain(|entry| entry.0 != slot);
    let is_promised = crash.contract.fill == Fill::Before && !crash.script.history.current().pending().is_empty();
    (entries.len() < before && !is_promised).then(|| bent(crash, probe, &[RuleId::NotIdempotent]))?
}
