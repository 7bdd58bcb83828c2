// SPDX-License-Identifier: Apache-2.0
//! Random histories of graph workloads against a slow reference: each outcome of what is pending is compared with what recovery left
//! by walking both from the slots, and what nothing reaches is found by trying every object. Whatever was done to the heap, the
//! oracle must see a violation exactly where the reference accepts no outcome.

mod common;

use common::graph::{End, Graph, GraphCrash, Node};
use common::random::Random;
use common::*;
use oracle::contract::Leaks;
use oracle::history::{Holder, ObjectId};
use oracle::pattern::expected_bytes;
use oracle::report::build::allocated;

const SEEDS: u64 = 400;

/// Whether what was found is the expected graph: follows both at once and pairs expected objects with found places.
fn is_same_graph(expected: &Graph, found: &Graph) -> bool {
    let mut pairs: Vec<(ObjectId, ObjectId)> = Vec::new();
    let mut waiting: Vec<(Option<ObjectId>, Option<ObjectId>)> =
        (0..SLOTS + PROBE_SLOTS).map(|slot| (expected.held(slot.into()), found.held(slot.into()))).collect();
    while let Some(pair) = waiting.pop() {
        let (wanted, there) = match pair {
            (None, None) => continue,
            (Some(wanted), Some(there)) => (wanted, there),
            _ => return false,
        };
        if pairs.contains(&(wanted, there)) {
            continue;
        }
        if pairs.iter().any(|(other, place)| *other == wanted || *place == there) {
            return false;
        }
        pairs.push((wanted, there));
        let (old, new) = (&expected.objects[&wanted], &found.objects[&there]);
        let content = |node: &Node| expected_bytes(&node.segments, 0..old.bytes());
        if content(old) != content(new) || new.capacity < old.bytes() {
            return false;
        }
        waiting.extend(old.fields.into_iter().zip(new.fields));
    }
    true
}

/// Whether some path of references leads from a slot to the object.
fn is_reached(graph: &Graph, object: ObjectId, on_the_way: &mut Vec<ObjectId>) -> bool {
    if graph.slots.values().any(|held| *held == object) {
        return true;
    }
    if on_the_way.contains(&object) {
        return false;
    }
    on_the_way.push(object);
    graph
        .objects
        .iter()
        .any(|(other, node)| node.fields.contains(&Some(object)) && is_reached(graph, *other, on_the_way))
}

fn unreached(graph: &Graph) -> Vec<&Node> {
    let objects = graph.objects.iter().filter(|(object, _)| !is_reached(graph, **object, &mut Vec::new()));
    objects.map(|(_, node)| node).collect()
}

/// Whether this may be left there; `retained`: offsets of heap blocks that stale words keep.
fn is_legal(crash: &GraphCrash, found: &Graph, retained: &[u64]) -> bool {
    let left = unreached(found).into_iter().filter(|node| !retained.contains(&node.offset)).count();
    let permitted = |outcome: &Graph| match (crash.contract.leaks, crash.end) {
        (Leaks::Collected, End::Closing | End::Closed | End::Opening | End::Opened) => unreached(outcome).len(),
        // As the close left it, where what is pending since has not happened, or changes nothing.
        (Leaks::Collected, End::Reopened(_)) if is_same_graph(&crash.outcomes[0], found) => {
            unreached(&crash.outcomes[0]).len()
        }
        (Leaks::Collected, _) => 0,
        (Leaks::Pending, End::Closing | End::Opening | End::Pending(_) | End::Reopened(_)) => {
            unreached(outcome).len() + 1
        }
        _ => unreached(outcome).len(),
    };
    crash.outcomes.iter().any(|outcome| is_same_graph(outcome, found) && left <= permitted(outcome))
}

/// Bends what was found; some ways change nothing, or nothing that counts.
fn bend(crash: &GraphCrash, found: &mut Graph, random: &mut Random) -> Option<()> {
    let objects: Vec<ObjectId> = found.reached();
    let object = random.pick(&objects)?;
    let fields: Vec<Holder> = objects.iter().flat_map(|object| Holder::fields_of(*object)).collect();
    let holder = if random.is_one_in(3) { Holder::Slot(random.below(6) as u32) } else { random.pick(&fields)? };
    match random.below(7) {
        0 => found.set(holder, None),
        1 => found.set(holder, Some(object)),
        2 => found.objects.get_mut(&object)?.segments[0].object += 1,
        // As it was, or will be, when what is pending has not happened, or has.
        3 => found.set(
            holder,
            random
                .pick(&crash.outcomes.iter().collect::<Vec<_>>())?
                .held(holder)
                .filter(|held| found.objects.contains_key(held)),
        ),
        4 | 5 => {
            let copy = Node { offset: found.place(found.objects[&object].capacity)?, ..found.objects[&object].clone() };
            let id = 1000 + found.objects.len() as ObjectId;
            found.objects.insert(id, copy);
            if random.is_one_in(2) {
                found.set(holder, Some(id));
            }
        }
        _ => {
            let node = found.objects.get_mut(&object)?;
            node.capacity = node.capacity.saturating_sub(64).max(64);
        }
    }
    Some(())
}

#[test]
fn the_oracle_and_the_reference_agree_on_every_heap() {
    let mut counts = [[0; 2]; 2];
    for seed in 1..=SEEDS {
        let crash = GraphCrash::random(seed * 0x9e37_79b9);
        let mut random = Random(seed * 0x517c_c1b7);
        for bends in [0, 1, 1, 1, 2] {
            let mut found = crash.graph.clone();
            for _ in 0..bends {
                let _ = bend(&crash, &mut found, &mut random);
            }
            if crash.contract.leaks == Leaks::Collected && random.is_one_in(2) {
                found = found.collected();
            }
            let kept: Vec<u64> =
                unreached(&found).iter().map(|node| node.offset).filter(|_| random.is_one_in(2)).collect();
            let blocks: Vec<_> = kept.iter().map(|offset| allocated(*offset, 64)).collect();
            let retained = if crash.contract.leaks == Leaks::Collected { kept } else { vec![] };
            let probe = Probe { retained: std::array::from_fn(|_| Some(blocks.clone())), lives: 1, ..found.probe() };
            let judgement = crash.judged(&probe, &found.memory());
            let is_fine = judgement.violations.is_empty();
            let expected = is_legal(&crash, &found, &retained);
            assert!(judgement.unknown.is_empty(), "seed {seed}: {judgement:#?}");
            assert_eq!(
                is_fine,
                expected,
                "seed {seed}, {bends} bends: {judgement:#?}\nfound {found:#?}\n{}",
                crash.words()
            );
            counts[usize::from(bends > 0)][usize::from(is_fine)] += 1;
        }
    }
    assert_eq!(counts[0][0], 0, "what recovery left is legal");
    assert!(counts[1].iter().all(|count| *count > 100), "bent and not bent: {counts:?}");
}
