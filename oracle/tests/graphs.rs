// SPDX-License-Identifier: Apache-2.0
//! Heaps whose objects hold references to objects: for each rule what trips it and its nearest legal neighbour, and random legal
//! crashes with each single corruption of objects, fields and what is retained, which breaks its rule and no other.

mod common;

use common::graph::{End, Graph, GraphCrash, Node, Step};
use common::random::Random;
use common::*;
use oracle::contract::{Leaks, Publish};
use oracle::history::{Holder, ObjectId};
use oracle::judge::Verdict;
use oracle::report::Stage;
use oracle::report::build::allocated;
use oracle::{Contract, OperationKind, RuleId, Segment, Status};
use std::collections::BTreeMap;

fn collected() -> Contract {
    Contract { leaks: Leaks::Collected, ..contract() }
}

fn field(object: ObjectId, field: u8) -> Holder {
    Holder::Field { object, field }
}

fn link(slot: u32, field: u8, other: u32) -> Step {
    Step { kind: OperationKind::Link, slot, bytes: 0, field, other }
}

/// Slot 0 holds object 2, slot 1 object 3, slot 2 object 4, of 100 bytes each; field 0 of object 2 holds object 3.
fn three_objects() -> (Script, Graph) {
    let script = Script::created().allocated(0, 100).allocated(1, 100).allocated(2, 100).linked(0, 0, 1);
    let mut graph = Graph::default();
    for (slot, object) in [(0, 2), (1, 3), (2, 4)] {
        let node = Node {
            offset: 64 + u64::from(slot) * 128,
            capacity: 128,
            segments: vec![Segment { end: 100, object }],
            fields: [None; 2],
        };
        graph.objects.insert(object, node);
        graph.slots.insert(slot, object);
    }
    graph.set(field(2, 0), Some(3));
    (script, graph)
}

#[track_caller]
fn breaks(script: &Script, graph: &Graph, expected: &[RuleId]) {
    assert_breaks(&judged(&collected(), script, &graph.probe(), &graph.memory()), expected);
}

#[track_caller]
fn passes(script: &Script, graph: &Graph) {
    assert_passes(&judged(&collected(), script, &graph.probe(), &graph.memory()));
}

#[test]
fn a_graph_that_shows_what_returned_passes() {
    let (script, graph) = three_objects();
    passes(&script, &graph);
    let (script, mut graph) = (script.linked(1, 1, 0).linked(1, 0, 1).dropped(2), graph);
    graph.set(field(3, 1), Some(2));
    graph.set(field(3, 0), Some(3));
    graph.slots.remove(&2);
    passes(&script, &graph.collected());
    // Both slots are dropped, and the cycle keeps nothing alive.
    let script = script.dropped(0).dropped(1);
    graph.slots.clear();
    passes(&script, &graph.collected());
    breaks(&script, &graph, &[RuleId::Leak]);
}

// FL004

#[test]
fn a_returned_link_that_is_missing_is_lost() {
    let (script, graph) = three_objects();
    let pending = script.begin_step(link(2, 1, 0));
    passes(&pending, &graph);
    let returned = pending.clone().returned(Status::Ok);
    let judgement = judged(&collected(), &returned, &graph.probe(), &graph.memory());
    assert_breaks(&judgement, &[RuleId::OperationLost]);
    let violation = &judgement.violations[0];
    assert_eq!((violation.slot, violation.operation), (None, Some(5)));
    assert!(violation.message.starts_with("field 1 of object 4 is null"), "{violation:?}");
    let mut linked = graph.clone();
    linked.set(field(4, 1), Some(2));
    passes(&pending, &linked);
    passes(&returned, &linked);
}

#[test]
fn an_overwritten_link_may_show_either_object_while_it_is_pending_and_the_new_one_after() {
    let (script, graph) = three_objects();
    let (pending, mut linked) = (script.begin_step(link(0, 0, 2)), graph.clone());
    linked.set(field(2, 0), Some(4));
    passes(&pending, &graph);
    passes(&pending, &linked);
    let returned = pending.clone().returned(Status::Ok);
    passes(&returned, &linked);
    breaks(&returned, &graph, &[RuleId::OperationLost]);
    let mut neither = graph;
    neither.set(field(2, 0), Some(2));
    breaks(&pending, &neither, &[RuleId::Overlap]);
    neither.set(field(2, 0), None);
    breaks(&pending, &neither, &[RuleId::OperationLost]);
}

#[test]
fn what_only_a_lost_link_reached_is_no_leak_of_its_own() {
    let (script, mut graph) = three_objects();
    let script = script.linked(1, 0, 2).dropped(1).dropped(2);
    graph.set(field(3, 0), Some(4));
    graph.slots.retain(|slot, _| *slot == 0);
    passes(&script, &graph);
    graph.set(field(2, 0), None);
    breaks(&script, &graph, &[RuleId::OperationLost]);
    breaks(&script, &graph.collected(), &[RuleId::OperationLost]);
    graph.leaked.push((4096, 64));
    breaks(&script, &graph, &[RuleId::OperationLost, RuleId::Leak]);
}

#[test]
fn a_loaded_slot_holds_what_the_field_held() {
    let (script, mut graph) = three_objects();
    let script = script.dropped(1);
    graph.slots.remove(&1);
    passes(&script, &graph);
    let pending = script.begin_step(Step { kind: OperationKind::Load, slot: 5, bytes: 0, field: 0, other: 0 });
    passes(&pending, &graph);
    let returned = pending.clone().returned(Status::Ok);
    breaks(&returned, &graph, &[RuleId::OperationLost]);
    graph.slots.insert(5, 3);
    passes(&pending, &graph);
    passes(&returned, &graph);
    // Unlinked where it came from, it stays.
    graph.set(field(2, 0), None);
    passes(&returned.unlinked(0, 0), &graph);
}

#[test]
fn a_slot_that_still_holds_what_was_dropped_before_the_last_allocation_lost_that() {
    let (script, graph) = three_objects();
    let script = script.dropped(1).allocated(1, 100);
    breaks(&script, &graph, &[RuleId::OperationLost]);
    let (script, mut graph) = three_objects();
    // Nothing else holds the older one.
    graph.slots.remove(&1);
    graph.slots.insert(3, 4);
    let script = script.dropped(2).allocated(2, 100).dropped(1).allocated(3, 100);
    graph.slots.insert(2, 4);
    graph.slots.remove(&3);
    let judgement = judged(&collected(), &script, &graph.probe(), &graph.memory());
    assert_breaks(&judgement, &[RuleId::OperationLost]);
    assert_eq!(judgement.violations.len(), 2, "{judgement:#?}");
}

// FL005

#[test]
fn an_unlinked_field_and_a_dropped_slot_must_be_null() {
    let (script, graph) = three_objects();
    let mut unlinked = graph.clone();
    unlinked.set(field(2, 0), None);
    let pending = script.clone().begin_step(Step { kind: OperationKind::Unlink, ..link(0, 0, 0) });
    passes(&pending, &graph);
    passes(&pending, &unlinked);
    let returned = pending.returned(Status::Ok);
    passes(&returned, &unlinked);
    breaks(&returned, &graph, &[RuleId::FreedObjectBack]);
    let pending = script.begin_step(Step { kind: OperationKind::Drop, ..link(2, 0, 0) });
    let mut dropped = graph.clone();
    dropped.slots.remove(&2);
    passes(&pending, &graph);
    passes(&pending, &dropped.collected());
    let returned = pending.returned(Status::Ok);
    passes(&returned, &dropped.collected());
    let judgement = judged(&collected(), &returned, &graph.probe(), &graph.memory());
    assert_breaks(&judgement, &[RuleId::FreedObjectBack]);
    assert!(judgement.violations[0].message.ends_with("operation 5 (drop) made it so"), "{judgement:?}");
}

#[test]
fn the_fields_of_a_new_object_are_null() {
    let (script, mut graph) = three_objects();
    let script = script.freed(2).allocated(2, 100);
    graph.objects.get_mut(&4).unwrap().segments[0].object = 7;
    passes(&script, &graph);
    graph.set(field(4, 1), Some(2));
    breaks(&script, &graph, &[RuleId::FreedObjectBack]);
}

// FL006

#[test]
fn two_objects_may_not_become_one_and_one_not_two() {
    let (script, graph) = three_objects();
    let mut one = graph.clone();
    one.set(field(2, 0), Some(4));
    breaks(&script, &one, &[RuleId::Overlap]);
    let mut two = graph.clone();
    two.objects.insert(9, Node { offset: 1024, ..graph.objects[&3].clone() });
    two.set(field(2, 0), Some(9));
    breaks(&script, &two, &[RuleId::Overlap]);
    // In one heap block, at two places.
    let mut shared = graph.clone();
    shared.objects.get_mut(&2).unwrap().capacity = 256;
    shared.objects.remove(&3);
    shared.objects.insert(3, Node { capacity: 0, ..graph.objects[&3].clone() });
    let probe = shared.probe().each_walk(|blocks| blocks.retain(|block| block.offset != 192));
    assert_breaks(&judged(&collected(), &script, &probe, &shared.memory()), &[RuleId::Overlap]);
}

// FL008

#[test]
fn a_field_that_points_to_no_live_heap_block_dangles_and_its_link_is_lost() {
    let (script, graph) = three_objects();
    let dangling = |graph: &Graph| {
        let mut probe = graph.probe();
        for objects in probe.objects.iter_mut().flatten() {
            objects[0].fields[0].as_mut().unwrap().offset = 4096;
        }
        probe
    };
    let judgement = judged(&collected(), &script, &dangling(&graph), &graph.memory());
    assert_breaks(&judgement, &[RuleId::OperationLost, RuleId::DanglingSlot]);
    let pending = script.begin_step(Step { kind: OperationKind::Unlink, ..link(0, 0, 0) });
    let judgement = judged(&collected(), &pending, &dangling(&graph), &graph.memory());
    assert_breaks(&judgement, &[RuleId::DanglingSlot]);
}

#[test]
fn with_separate_publication_only_the_slot_of_a_pending_free_may_dangle() {
    let (script, graph) = three_objects();
    let separate = Contract { publish: Publish::Separate, leaks: Leaks::Pending, ..collected() };
    let pending = script.linked(2, 0, 1).begin(OperationKind::Free, 2, 0);
    let mut freed = graph.clone();
    freed.objects.remove(&4);
    freed.slots.remove(&2);
    let probe = freed.probe().each_slots(|slots| slots.push((2, 0, graph.objects[&4].offset)));
    assert_passes(&judged(&separate, &pending, &probe, &freed.memory()));
    for publish in [Publish::Separate, Publish::Atomic] {
        // A collector follows the slot, whenever the adapter stores it.
        let judgement = judged(&Contract { publish, ..collected() }, &pending, &probe, &freed.memory());
        assert_breaks(&judgement, &[RuleId::DanglingSlot]);
    }
    let returned = pending.returned(Status::Ok);
    let judgement = judged(&separate, &returned, &probe, &freed.memory());
    assert!(rules(&judgement).contains(&RuleId::FreedObjectBack), "{judgement:#?}");
}

/// Threads that the contract allows do not run in a graph: nobody else can be handed what is freed before the slot is null.
#[test]
fn what_a_pending_free_left_in_its_slot_is_judged_with_its_fields() {
    let (script, mut graph) = three_objects();
    let (script, memory) = (script.linked(2, 0, 1), graph.memory());
    graph.set(field(4, 0), Some(3));
    let pending = script.begin(OperationKind::Free, 2, 0);
    let threads = Contract { publish: Publish::Separate, threads: 2, ..collected() };
    let one = Contract { threads: 1, ..threads.clone() };
    assert_passes(&judged(&one, &pending, &graph.probe(), &memory));
    assert_passes(&judged(&threads, &pending, &graph.probe(), &memory));
    graph.set(field(4, 0), Some(4));
    assert_breaks(&judged(&threads, &pending, &graph.probe(), &memory), &[RuleId::Overlap]);
    assert_breaks(&judged(&one, &pending, &graph.probe(), &memory), &[RuleId::Overlap]);
}

// FL009

#[test]
fn the_content_of_what_only_fields_reach_is_checked_in_every_life() {
    let (script, mut graph) = three_objects();
    let script = script.dropped(1);
    graph.slots.remove(&1);
    passes(&script, &graph);
    let position = graph.reached().iter().position(|object| *object == 3).unwrap() as u32;
    for (life, stage) in [(1, Stage::Recovery), (2, Stage::Recovery), (3, Stage::Drain), (4, Stage::Recovery)] {
        let mut probe = graph.probe();
        probe.contents.get_mut(&(life, stage)).unwrap().retain(|entry| entry.0 != position);
        let judgement = judged(&collected(), &script, &probe, &graph.memory());
        assert_breaks(&judgement, &[RuleId::ContentChanged]);
        assert!(judgement.violations[0].message.starts_with("field 0 of object 2: byte 0"), "{judgement:#?}");
    }
    graph.objects.get_mut(&3).unwrap().segments[0].object = 77;
    breaks(&script, &graph, &[RuleId::ContentChanged]);
}

#[test]
fn contents_are_found_by_place_where_another_life_lists_the_objects_in_another_order() {
    let (script, graph) = three_objects();
    let mut probe = graph.probe();
    probe.objects[2].as_mut().unwrap().swap(1, 2);
    let entries = probe.contents.get_mut(&(2, Stage::Recovery)).unwrap();
    (entries[1].1, entries[2].1) = (entries[2].1, entries[1].1);
    assert_passes(&judged(&collected(), &script, &probe, &graph.memory()));
    probe.objects[2].as_mut().unwrap().swap(1, 2);
    assert_breaks(&judged(&collected(), &script, &probe, &graph.memory()), &[RuleId::ContentChanged]);
}

// FL010

#[test]
fn what_was_dropped_may_stay_where_a_clean_close_needed_no_collection() {
    let (script, mut graph) = three_objects();
    let script = script.linked(2, 0, 2).dropped(2);
    graph.set(field(4, 0), Some(4));
    graph.slots.remove(&2);
    breaks(&script, &graph, &[RuleId::Leak]);
    passes(&script, &graph.collected());
    let closing = script.begin(OperationKind::Close, 0, 0);
    let closed = closing.clone().returned(Status::Ok);
    let opening = closed.clone().begin(OperationKind::Open, 0, 0);
    let opened = opening.clone().returned(Status::Ok);
    let mut more = graph.clone();
    more.leaked.push((4096, 64));
    for script in [&closing, &closed, &opening, &opened] {
        passes(script, &graph);
        passes(script, &graph.collected());
        breaks(script, &more, &[RuleId::Leak]);
    }
    // The first operation since: where it has taken effect, the heap is not as the close left it.
    let pending = opened.begin_step(link(1, 1, 0));
    passes(&pending, &graph);
    let mut linked = graph.clone();
    linked.set(field(3, 1), Some(2));
    passes(&pending, &linked.collected());
    breaks(&pending, &linked, &[RuleId::Leak]);
    let returned = pending.returned(Status::Ok);
    breaks(&returned, &linked, &[RuleId::Leak]);
    // Garbage of an earlier session is garbage still, and the next close leaves it again.
    passes(&returned.done(OperationKind::Close, 0, 0), &linked);
}

#[test]
fn without_a_collector_what_was_dropped_stays() {
    let (script, mut graph) = three_objects();
    let pending = script.begin_step(Step { kind: OperationKind::Drop, ..link(2, 0, 0) });
    graph.slots.remove(&2);
    for leaks in [Leaks::None, Leaks::Pending] {
        let contract = Contract { leaks, ..contract() };
        assert_passes(&judged(&contract, &pending, &graph.probe(), &graph.memory()));
        let returned = pending.clone().returned(Status::Ok);
        assert_passes(&judged(&contract, &returned, &graph.probe(), &graph.memory()));
        let mut more = graph.clone();
        more.leaked.push((4096, 64));
        assert_breaks(&judged(&contract, &returned, &more.probe(), &more.memory()), &[RuleId::Leak]);
    }
}

#[test]
fn a_freed_object_is_no_garbage_but_what_only_it_held_is() {
    let (script, mut graph) = three_objects();
    let script = script.dropped(1).freed(0).done(OperationKind::Close, 0, 0);
    graph.slots = [(2, 4)].into();
    breaks(&script, &graph, &[RuleId::Leak]);
    graph.objects.remove(&2);
    passes(&script, &graph);
}

// FL013 and what cannot be judged

#[test]
fn a_second_recovery_that_changes_a_field_is_not_idempotent() {
    let (script, graph) = three_objects();
    let mut other = graph.clone();
    other.set(field(2, 0), Some(4));
    for lives in [vec![2], vec![3, 4]] {
        let mut probe = graph.probe();
        lives.into_iter().for_each(|life: usize| probe.objects[life] = Some(other.entries()));
        let judgement = judged(&collected(), &script, &probe, &graph.memory());
        assert_breaks(&judgement, &[RuleId::NotIdempotent]);
        assert!(judgement.violations[0].message.contains("field 0 of the object in heap at 0x40 was"), "{judgement:?}");
    }
}

#[test]
fn objects_in_fields_must_survive_a_second_collection() {
    let (script, mut graph) = three_objects();
    let script = script.dropped(1);
    graph.slots.remove(&1);
    let mut probe = graph.probe();
    probe.walk[2].as_mut().unwrap().iter_mut().find(|block| block.offset == 192).unwrap().state =
        oracle::report::BlockState::Free;
    assert_breaks(&judged(&collected(), &script, &probe, &graph.memory()), &[RuleId::NotIdempotent]);
}

#[test]
fn no_allocation_may_overlap_what_only_fields_reach() {
    let (script, mut graph) = three_objects();
    let script = script.dropped(1);
    graph.slots.remove(&1);
    let mut probe = graph.probe();
    probe.drain.as_mut().unwrap().push(allocated(192, 64));
    assert_breaks(&judged(&collected(), &script, &probe, &graph.memory()), &[RuleId::Overlap]);
}

#[test]
fn reading_a_field_must_not_fail() {
    let (script, graph) = three_objects();
    for (life, rule) in [(0, RuleId::RecoveryFailed), (2, RuleId::RecoveryFailed), (4, RuleId::NotUsable)] {
        let mut probe = graph.probe();
        probe.objects_status[life] = Status::Error;
        let judgement = judged(&collected(), &script, &probe, &graph.memory());
        assert_breaks(&judgement, &[rule]);
        assert!(judgement.violations[0].message.starts_with("reading the fields after"), "{judgement:?}");
    }
}

#[test]
fn a_report_that_lacks_objects_is_unknown_never_pass() {
    let (script, graph) = three_objects();
    let unknown = |bend: fn(&mut Probe), reason: &str| {
        let mut probe = Probe { lives: 1, ..graph.probe() };
        bend(&mut probe);
        let judgement = judged(&collected(), &script, &probe, &graph.memory());
        assert_eq!((judgement.verdict(), rules(&judgement)), (Verdict::Unknown, vec![]), "{judgement:#?}");
        assert!(judgement.unknown[0].contains(reason), "{judgement:#?}");
    };
    unknown(|probe| probe.objects[0] = None, "does not say what the objects' fields hold");
    unknown(
        |probe| {
            probe.objects_status[0] = Status::OutOfMemory;
            probe.objects[0].as_mut().unwrap().truncate(2);
        },
        "more than the 2 objects",
    );
    unknown(|probe| probe.objects[0].as_mut().unwrap().truncate(2), "lists no object of");
}

// Each corruption of random crashes

/// What a corruption left, and which rules that breaks.
struct Bent {
    probe: Probe,
    memory: Memory,
    breaks: Vec<RuleId>,
}

fn bent(graph: &Graph, breaks: &[RuleId]) -> Option<Bent> {
    Some(Bent { probe: graph.probe(), memory: graph.memory(), breaks: breaks.to_vec() })
}

type Corruption = fn(&GraphCrash, &mut Random) -> Option<Bent>;

/// Each with a name, and whether some contract permits it.
const CORRUPTIONS: &[(&str, bool, Corruption)] = &[
    ("a reference is null", false, reference_lost),
    ("a null holder names an object", false, reference_risen),
    ("a null holder names a new object", false, object_risen),
    ("a reference names another object", false, reference_to_another),
    ("a reference names a copy of its object", false, reference_to_copy),
    ("a reference names an object that nobody made", false, reference_to_stranger),
    ("a reference names a free place", false, reference_dangles),
    ("an object has another's content", false, content_changed),
    ("a heap block is too small for its object", false, too_small),
    ("an object is off alignment", false, misaligned),
    ("a heap block leaks", true, leaks),
    ("a stale word retains a heap block", true, retained),
    ("garbage was not collected", true, garbage),
    ("a later recovery changes a field", false, field_changes),
    ("a later stage changes an object", false, content_changes_later),
];

#[test]
fn each_corruption_of_a_graph_breaks_its_rule_and_no_other() {
    let mut seen: BTreeMap<(&str, bool), u32> = BTreeMap::new();
    for seed in 1..=250 {
        let (crash, mut random) = (GraphCrash::random(seed * 0x9e37_79b9), Random(seed * 0x517c_c1b7));
        let legal = crash.judged(&crash.graph.probe(), &crash.graph.memory());
        assert!(legal.violations.is_empty() && legal.unknown.is_empty(), "seed {seed}: {legal:#?}\n{}", crash.words());
        assert!(legal.judged.contains(RuleId::NotUsable), "seed {seed}: {legal:#?}");
        for (name, _, corrupt) in CORRUPTIONS {
            let Some(bent) = corrupt(&crash, &mut random) else { continue };
            let judgement = crash.judged(&bent.probe, &bent.memory);
            assert_eq!(rules(&judgement), bent.breaks, "seed {seed}, {name}: {judgement:#?}\n{}", crash.words());
            *seen.entry((name, bent.breaks.is_empty())).or_default() += 1;
        }
    }
    for (name, is_permitted_by_some, _) in CORRUPTIONS {
        let count = |is_permitted| seen.get(&(*name, is_permitted)).copied().unwrap_or(0);
        assert!(count(false) >= 10, "{name}: broke its rule {} times", count(false));
        assert_eq!(count(true) >= 10, *is_permitted_by_some, "{name}: was permitted {} times", count(true));
    }
}

/// Recovery collects what nothing reaches then; without a collector it stays, and is what was lost.
fn recovered(crash: &GraphCrash, graph: Graph) -> Graph {
    if crash.contract.leaks == Leaks::Collected { graph.collected() } else { graph }
}

fn reference_lost(crash: &GraphCrash, random: &mut Random) -> Option<Bent> {
    let mut graph = crash.graph.clone();
    graph.set(random.pick(&crash.set())?, None);
    bent(&recovered(crash, graph), &[RuleId::OperationLost])
}

fn reference_risen(crash: &GraphCrash, random: &mut Random) -> Option<Bent> {
    let mut graph = crash.graph.clone();
    graph.set(random.pick(&crash.null())?, Some(random.pick(&crash.graph.reached())?));
    bent(&graph, &[RuleId::FreedObjectBack])
}

fn object_risen(crash: &GraphCrash, random: &mut Random) -> Option<Bent> {
    let (mut graph, segments) = (crash.graph.clone(), vec![Segment { end: 64, object: 0xbeef }]);
    graph.objects.insert(999, Node { offset: graph.place(64)?, capacity: 64, segments, fields: [None; 2] });
    graph.set(random.pick(&crash.null())?, Some(999));
    bent(&graph, &[RuleId::FreedObjectBack])
}

/// Not of its sole holder: the graph would lack what that held.
fn shared(crash: &GraphCrash, random: &mut Random) -> Option<(Holder, ObjectId)> {
    let holders: Vec<Holder> = crash.set();
    let is_certain = |holder: &Holder| holders.contains(holder);
    let others = |holder: Holder| {
        let object = crash.graph.held(holder)?;
        let all = crash.graph.holders_of(object);
        let mut without = crash.graph.clone();
        without.set(holder, None);
        let is_shared = all.iter().filter(|other| is_certain(other)).count() > 1 && still_reached(crash, &without);
        is_shared.then_some((holder, object))
    };
    random.pick(&holders.iter().filter_map(|holder| others(*holder)).collect::<Vec<_>>())
}

/// The rest of the graph must not hang on the reference.
fn still_reached(crash: &GraphCrash, graph: &Graph) -> bool {
    crash.graph.reached().iter().all(|object| graph.reached().contains(object))
}

fn reference_to_another(crash: &GraphCrash, random: &mut Random) -> Option<Bent> {
    let (holder, object) = shared(crash, random)?;
    let others: Vec<ObjectId> = crash.graph.reached().into_iter().filter(|other| *other != object).collect();
    let (other, mut graph) = (random.pick(&others)?, crash.graph.clone());
    graph.set(holder, Some(other));
    let is_older = crash.previous.get(&holder) == Some(&other);
    let rule = if is_older { RuleId::OperationLost } else { RuleId::Overlap };
    still_reached(crash, &graph).then(|| bent(&graph, &[rule]))?
}

fn reference_to_copy(crash: &GraphCrash, random: &mut Random) -> Option<Bent> {
    let (holder, object) = shared(crash, random)?;
    let (mut graph, node) = (crash.graph.clone(), crash.graph.objects[&object].clone());
    graph.objects.insert(999, Node { offset: graph.place(node.capacity)?, ..node });
    graph.set(holder, Some(999));
    still_reached(crash, &graph).then(|| bent(&graph, &[RuleId::Overlap]))?
}

fn reference_to_stranger(crash: &GraphCrash, random: &mut Random) -> Option<Bent> {
    let (holder, object) = shared(crash, random)?;
    let (mut graph, mut node) = (crash.graph.clone(), crash.graph.objects[&object].clone());
    node.segments = vec![Segment { end: node.bytes(), object: 0xbeef }];
    if node.bytes() < 8 {
        return None;
    }
    graph.objects.insert(999, Node { offset: graph.place(node.capacity)?, ..node });
    graph.set(holder, Some(999));
    still_reached(crash, &graph).then(|| bent(&graph, &[RuleId::OperationLost]))?
}

fn reference_dangles(crash: &GraphCrash, random: &mut Random) -> Option<Bent> {
    let (holder, object) = shared(crash, random)?;
    let (graph, place) = (&crash.graph, crash.graph.place(64)?);
    let mut without = graph.clone();
    without.set(holder, None);
    let mut probe = without.probe();
    let here = graph.objects[&object].offset;
    match holder {
        Holder::Slot(slot) => probe = random_slot(probe, slot, place),
        Holder::Field { object: of, field } => {
            let of = graph.objects[&of].offset;
            for entry in probe.objects.iter_mut().flatten().flatten().filter(|entry| entry.at.offset == of) {
                entry.fields[usize::from(field)] = Some(oracle::report::Location { file: 0, offset: place });
            }
        }
    }
    assert_ne!(here, place);
    let breaks = vec![RuleId::OperationLost, RuleId::DanglingSlot];
    still_reached(crash, &without).then(|| Bent { probe, memory: graph.memory(), breaks })
}

fn random_slot(probe: Probe, slot: u32, offset: u64) -> Probe {
    common::random::with_slot(probe, slot, offset)
}

/// Objects whose content no pending operation changes.
fn settled(crash: &GraphCrash) -> Vec<ObjectId> {
    let pending = crash.pending.filter(|_| crash.end != End::Nothing).and_then(|holder| crash.graph.held(holder));
    crash.graph.reached().into_iter().filter(|object| Some(*object) != pending).collect()
}

fn content_changed(crash: &GraphCrash, random: &mut Random) -> Option<Bent> {
    let mut graph = crash.graph.clone();
    let node = graph.objects.get_mut(&random.pick(&settled(crash))?)?;
    node.segments[0].object += 1;
    let is_seen = node.segments[0].end >= 8;
    is_seen.then(|| bent(&graph, &[RuleId::ContentChanged]))?
}

fn too_small(crash: &GraphCrash, random: &mut Random) -> Option<Bent> {
    let (object, mut graph) = (random.pick(&settled(crash))?, crash.graph.clone());
    let node = graph.objects.get_mut(&object)?;
    node.capacity -= 64;
    // After a reallocation that grew it says that the reallocation is lost.
    let is_moved = crash.graph.objects[&object].segments.len() > 1 || crash.script.next < 2;
    let is_first = node.segments[0].object == object;
    (node.capacity > 0 && is_first && !is_moved && !was_reallocated(crash, object))
        .then(|| bent(&graph, &[RuleId::BadExtent]))?
}

fn was_reallocated(crash: &GraphCrash, object: ObjectId) -> bool {
    let holder = crash.graph.holders_of(object)[0];
    let candidates = crash.script.history.candidates(holder, crash.contract.fill);
    candidates.objects().any(|object| object.previous_bytes.is_some())
}

fn misaligned(crash: &GraphCrash, random: &mut Random) -> Option<Bent> {
    let (object, graph) = (random.pick(&settled(crash))?, &crash.graph);
    let node = &graph.objects[&object];
    let (from, mut probe, mut memory) = (node.offset, graph.probe(), graph.memory());
    if node.bytes() + 8 > node.capacity {
        return None;
    }
    memory.write(from + 8, &node.segments);
    probe = probe.each_slots(|slots| slots.iter_mut().filter(|slot| slot.2 == from).for_each(|slot| slot.2 += 8));
    for entry in probe.objects.iter_mut().flatten().flatten() {
        let places = entry.fields.iter_mut().flatten().chain([&mut entry.at]);
        places.filter(|place| place.offset == from).for_each(|place| place.offset += 8);
    }
    Some(Bent { probe, memory, breaks: vec![RuleId::BadExtent] })
}

/// Whether a reallocation has happened, and so whether the heap is as it was closed, is not always seen.
fn is_unclear(crash: &GraphCrash) -> bool {
    let mut pending = crash.script.history.current().pending().iter();
    crash.end == End::Reopened(true) && pending.any(|pending| pending.operation.kind == OperationKind::Reallocate)
}

fn leaks(crash: &GraphCrash, _: &mut Random) -> Option<Bent> {
    let mut graph = crash.graph.clone();
    graph.leaked.push((graph.place(64)?, 64));
    let fits = |outcome: &&Graph| {
        outcome.collected().slots == crash.graph.slots && outcome.collected().entries() == crash.graph.entries()
    };
    let all = crash.outcomes.iter().filter(fits).map(Graph::garbage).max()?;
    let spare = all - crash.graph.garbage();
    let pending = crash.script.history.current().pending();
    let is_pending = !pending.is_empty();
    if is_unclear(crash) {
        return None;
    }
    let is_closed = crash.is_as_closed();
    let is_permitted = match crash.contract.leaks {
        Leaks::None => spare > 0,
        Leaks::Pending => spare > 0 || is_pending,
        Leaks::Collected => is_closed && spare > 0,
    };
    bent(&graph, if is_permitted { &[] } else { &[RuleId::Leak] })
}

fn retained(crash: &GraphCrash, _: &mut Random) -> Option<Bent> {
    let mut graph = crash.graph.clone();
    let offset = graph.place(64)?;
    let is_permitted = crash.contract.leaks == Leaks::Collected;
    let mut found = leaks(crash, &mut Random(1))?;
    found.probe.retained = std::array::from_fn(|_| Some(vec![allocated(offset, 64)]));
    graph.leaked.push((offset, 64));
    found.breaks.retain(|_| !is_permitted);
    Some(found)
}

fn garbage(crash: &GraphCrash, _: &mut Random) -> Option<Bent> {
    let all = crash.outcomes.iter().filter(|_| !is_unclear(crash)).find(|outcome| {
        outcome.garbage() > 0
            && outcome.slots == crash.graph.slots
            && outcome.collected().objects == crash.graph.collected().objects
    })?;
    let is_closed = crash.is_as_closed();
    let is_permitted = crash.contract.leaks != Leaks::Collected || is_closed;
    bent(all, if is_permitted { &[] } else { &[RuleId::Leak] })
}

fn field_changes(crash: &GraphCrash, random: &mut Random) -> Option<Bent> {
    let (holder, _) = shared(crash, random)?;
    let mut graph = crash.graph.clone();
    graph.set(holder, None);
    let mut found = bent(&crash.graph, &[RuleId::NotIdempotent])?;
    found.probe.objects[2] = Some(graph.entries());
    let is_field = holder.slot().is_none();
    // What another order of the objects does to the contents is another test's.
    (is_field && graph.reached() == crash.graph.reached()).then_some(found)
}

fn content_changes_later(crash: &GraphCrash, random: &mut Random) -> Option<Bent> {
    let object = random.pick(&settled(crash))?;
    let position = crash.graph.reached().iter().position(|other| *other == object)? as u32;
    let mut found = bent(&crash.graph, &[RuleId::ContentChanged])?;
    let stage = random.pick(&[(1, Stage::Recovery), (2, Stage::Recovery), (3, Stage::Drain), (4, Stage::Recovery)])?;
    found.probe.contents.get_mut(&stage)?.retain(|entry| entry.0 != position);
    (crash.graph.objects[&object].segments[0].end >= 8).then_some(found)
}
