// SPDX-License-Identifier: Apache-2.0
//! Rules that litmus tests cannot say: file operations, counts, identities. R1-R8 are in `crashgen/litmus`.

use super::*;
use crate::trace::{
    Event, EventKind, FenceKind, FileEffect, FileId, FlushKind, LINE_BYTES, OperationKind, SiteId, StoreKind, ThreadId,
};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};

const FILE: FileId = FileId(0);
const T0: ThreadId = ThreadId { process: 1, thread: 1 };

fn model() -> Model {
    let mut model = Model::new(&Px86, Vec::new());
    run(&mut model, vec![create(), truncate(4096)]);
    model
}

/// Event numbers grow, whatever the test.
static NEXT_EVENT: AtomicU32 = AtomicU32::new(1);

fn run(model: &mut Model, effects: Vec<EventKind>) {
    for kind in effects {
        let number = NEXT_EVENT.fetch_add(1, Ordering::Relaxed);
        model.step(number, &Event { thread: T0, site: SiteId(0), kind });
    }
}

fn done(effect: FileEffect) -> EventKind {
    EventKind::FileEnd { effect: effect.into(), is_done: true }
}

fn create() -> EventKind {
    done(FileEffect::Create { file: FILE, path: "heap".into() })
}

fn truncate(bytes: u64) -> EventKind {
    done(FileEffect::Truncate { file: FILE, bytes })
}

fn store(offset: u64, bytes: &[u8]) -> EventKind {
    EventKind::Store { kind: StoreKind::Plain, file: FILE, offset, bytes: bytes.into() }
}

fn nt_store(offset: u64, bytes: &[u8]) -> EventKind {
    EventKind::Store { kind: StoreKind::NonTemporal, file: FILE, offset, bytes: bytes.into() }
}

fn sfence() -> EventKind {
    EventKind::Fence { kind: FenceKind::Sfence }
}

fn count(model: &Model) -> u128 {
    model.view().state_count().expect("small")
}

#[test]
fn what_returned_is_persisted_where_that_is_assumed() {
    let returned = || EventKind::OperationReturn { kind: OperationKind::Free, index: 0, status: 0 };
    let models: [(&dyn PersistencyModel, u128); 2] = [(&Px86, 8), (&Px86Returned, 1)];
    for (persistency, after) in models {
        let mut model = Model::new(persistency, Vec::new());
        run(&mut model, vec![create(), truncate(4096), store(0, &[1; 8]), store(64, &[2; 8]), nt_store(128, &[3; 8])]);
        assert_eq!(count(&model), 8);
        run(&mut model, vec![returned()]);
        assert_eq!(count(&model), after);
    }
}

#[test]
fn a_wide_store_counts_its_proper_subsets() {
    let mut model = model();
    run(&mut model, vec![store(0, &[1; 32])]);
    assert_eq!(count(&model), 16);
}

#[test]
fn a_misaligned_store_is_two_units() {
    let mut model = model();
    run(&mut model, vec![store(4, &[1; 8])]);
    assert_eq!(count(&model), 4);
}

#[test]
fn a_store_across_lines_is_one_store_on_each() {
    let mut model = model();
    run(&mut model, vec![store(60, &[1; 8])]);
    assert_eq!((model.view().lines.len(), count(&model)), (2, 4));
}

#[test]
fn floating_units_double_the_states() {
    let mut model = model();
    run(&mut model, vec![nt_store(0, &[1; 16]), store(0, &[2; 8])]);
    assert_eq!(count(&model), 8);
}

#[test]
fn the_units_of_a_store_that_a_state_holds_are_told() {
    let mut model = model();
    let event = NEXT_EVENT.fetch_add(1, Ordering::Relaxed);
    model.step(event, &Event { thread: T0, site: SiteId(0), kind: store(0, &[1; 24]) });
    let line = model.line(LineId(0));
    let there = |ordered| {
        let units = line.open_units(Choice { ordered, ..Choice::default() }, event);
        assert_eq!(units.iter().map(|(bytes, _)| bytes.clone()).collect::<Vec<_>>(), [0..8, 8..16, 16..24]);
        units.iter().enumerate().map(|(index, (_, is_there))| u32::from(*is_there) << index).sum::<u32>()
    };
    assert_eq!((0..8).map(there).collect::<Vec<_>>(), [0, 0b001, 0b010, 0b011, 0b100, 0b101, 0b110, 0b111]);
    assert_eq!(line.open_units(Choice::default(), event + 1), []);
    run(&mut model, vec![nt_store(32, &[1; 16])]);
    let floating = model.line(LineId(0)).open_units(Choice { floating: 0b10, ..Choice::default() }, event);
    assert!(floating.iter().all(|(_, is_there)| !is_there), "another store's unit");
}

#[test]
fn a_later_non_temporal_store_wins_over_an_earlier_plain_one() {
    let mut model = model();
    run(&mut model, vec![store(0, &[1; 8]), nt_store(0, &[2; 8]), sfence()]);
    let view = model.view();
    let line = model.line(view.lines[0].id);
    assert_eq!(line.content(Choice::default()).0[0], 2);
    assert_eq!(line.content(line.newest()).0[0], 2, "the plain store is older in memory order");
}

#[test]
fn truncate_takes_the_lines_away() {
    let mut model = model();
    run(&mut model, vec![store(0, &[1; 8]), store(128, &[1; 8]), truncate(64), truncate(4096)]);
    assert_eq!(count(&model), 2, "only the store below the cut is left");
}

#[test]
fn punch_zeroes_a_part_of_a_line() {
    let mut model = model();
    let punch = done(FileEffect::Punch { file: FILE, offset: 0, bytes: 4 });
    run(&mut model, vec![store(0, &[7; 8]), punch]);
    let line = model.line(model.view().lines[0].id);
    assert_eq!(line.content(line.newest()).0[..8], [0, 0, 0, 0, 7, 7, 7, 7]);
}

#[test]
fn fsync_persists_plain_stores_and_kernel_writes() {
    let mut model = model();
    let write = done(FileEffect::Write { file: FILE, offset: 64, bytes: [5u8; 8].as_slice().into() });
    run(&mut model, vec![store(0, &[1; 8]), write]);
    assert_eq!(count(&model), 4);
    let sync = FileEffect::Sync { file: FILE, offset: 0, bytes: u64::MAX };
    run(&mut model, vec![EventKind::FileBegin { effect: sync.clone().into() }, done(sync)]);
    assert_eq!(count(&model), 1);
}

#[test]
fn a_non_temporal_store_waits_for_its_fence_and_no_sync_will_do() {
    let sync = FileEffect::Sync { file: FILE, offset: 0, bytes: u64::MAX };
    let synced = vec![EventKind::FileBegin { effect: sync.clone().into() }, done(sync)];
    let count_after = |then: Vec<EventKind>| {
        let mut model = model();
        run(&mut model, [vec![nt_store(0, &[1; 8])], then].concat());
        count(&model)
    };
    assert_eq!((count_after(vec![sfence()]), count_after(synced)), (1, 2));
}

#[test]
fn a_sync_of_a_range_persists_its_lines_and_no_others() {
    let (mut model, file) = (model(), FILE);
    let stores = (62..66).map(|line| store(line * LINE_BYTES, &[1; 8])).collect();
    let sync = FileEffect::Sync { file, offset: 63 * LINE_BYTES, bytes: 2 * LINE_BYTES };
    let begin = EventKind::FileBegin { effect: sync.clone().into() };
    run(&mut model, [vec![create()], stores, vec![begin, done(sync)]].concat());
    let open = model.view().lines.iter().map(|open| model.line(open.id).key.number).collect::<Vec<_>>();
    assert_eq!((count(&model), &open[..]), (4, &[62, 65][..]));
}

#[test]
fn born_states_are_those_with_the_newest_store() {
    let mut model = model();
    run(&mut model, vec![store(0, &[1; 8]), store(64, &[1; 8])]);
    let view = model.view();
    assert!((view.born_log10().expect("born") - 2f64.log10()).abs() < 1e-9);
    let everything = view.prefix_state();
    assert!(view.is_born(&everything) && !view.is_born(&view.floor_state()));
}

#[test]
fn a_store_across_lines_bears_states_on_each() {
    let mut model = model();
    run(&mut model, vec![store(60, &[1; 8])]);
    let view = model.view();
    assert_eq!((view.state_count(), view.born_count()), (Some(4), Some(3)));
}

#[test]
fn eadr_keeps_visible_stores_and_may_lose_non_temporal_ones() {
    let mut model = Model::new(&Eadr, Vec::new());
    run(&mut model, vec![create(), truncate(4096), store(0, &[1; 8]), nt_store(64, &[1; 8])]);
    assert_eq!(count(&model), 2);
}

#[test]
fn the_allocators_bytes_are_marked() {
    let mut model = Model::new(&Px86, vec![false, true]);
    run(&mut model, vec![create(), truncate(4096)]);
    run(
        &mut model,
        vec![store(0, &[1; 8]), EventKind::Flush { kind: FlushKind::Clwb, file: FILE, offset: 0 }, sfence()],
    );
    model.step(u32::MAX, &Event { thread: T0, site: SiteId(1), kind: store(8, &[1; 8]) });
    let line = model.line(model.view().lines[0].id);
    assert_eq!(line.content(line.newest()).1, 0x00ff);
    assert_eq!(line.content(Choice::default()).1, 0x00ff);
}

#[test]
fn what_was_stored_beyond_the_end_does_not_come_with_growth() {
    let mut model = Model::new(&Px86, Vec::new());
    run(&mut model, vec![create(), truncate(100), store(104, &[7; 8]), truncate(4096)]);
    assert_eq!(count(&model), 1);
    let id = model.find(LineKey { file: FILE, number: 1 }).expect("stored to");
    assert_eq!(model.line(id).content(Choice::default()).0, [0; 64]);
}

#[test]
fn an_empty_punch_changes_nothing() {
    let mut model = model();
    run(&mut model, vec![store(4096, &[1; 8]), done(FileEffect::Punch { file: FILE, offset: 4096, bytes: 0 })]);
    assert_eq!(count(&model), 2);
}

#[test]
fn renaming_a_folder_takes_its_files_along() {
    let mut model = Model::new(&Px86, Vec::new());
    let make = FileEffect::MakeFolder { path: "tmp".into() };
    let create = FileEffect::Create { file: FILE, path: "tmp/heap".into() };
    let rename = |from: &str, to: &str| FileEffect::Rename { from: from.into(), to: to.into() };
    run(&mut model, [make, create, rename("tmp", "pool"), rename("pool", "pool")].into_iter().map(done).collect());
    assert_eq!(model.files()[&FILE].path.as_deref(), Some("pool/heap"));
    assert_eq!(model.folders().iter().map(|path| &**path).collect::<Vec<_>>(), ["pool"]);
}

#[test]
fn stores_into_an_unlinked_file_leave_no_states() {
    let mut model = model();
    run(&mut model, vec![done(FileEffect::Unlink { path: "heap".into() }), store(0, &[1; 8])]);
    assert_eq!(count(&model), 1);
}

/// R10: nobody else ever flushes them.
#[test]
fn lines_stay_dirty_across_close_and_open() {
    let mut model = model();
    run(&mut model, vec![store(0, &[1; 8])]);
    let begin = |kind, index| EventKind::OperationBegin { kind, index, slot: 0, bytes: 0, object: 0 };
    let end = |kind, index| EventKind::OperationReturn { kind, index, status: 0 };
    use crate::trace::OperationKind::{Close, Open};
    run(&mut model, vec![begin(Close, 1), end(Close, 1), begin(Open, 2), end(Open, 2)]);
    assert_eq!(count(&model), 2);
}

/// R4: until something follows it, a clflush may sit in the store buffer.
#[test]
fn a_clflush_guarantees_nothing_by_itself() {
    let mut model = model();
    let flush = |offset| EventKind::Flush { kind: FlushKind::Clflush, file: FILE, offset };
    run(&mut model, vec![store(0, &[1; 8]), flush(0)]);
    assert_eq!(count(&model), 2);
    run(&mut model, vec![flush(64)]);
    assert_eq!(count(&model), 1);
}

/// R9: what another thread stores while the call goes on may come too late for it.
#[test]
fn fsync_persists_what_was_there_when_it_began() {
    let mut model = model();
    let sync = FileEffect::Sync { file: FILE, offset: 0, bytes: u64::MAX };
    run(&mut model, vec![store(0, &[1; 8]), EventKind::FileBegin { effect: sync.clone().into() }]);
    run(&mut model, vec![store(64, &[1; 8]), done(sync)]);
    assert_eq!(count(&model), 2);
}

/// All contents of line 0, in words.
fn words(model: &Model) -> BTreeSet<[u64; 2]> {
    let line = model.line(LineId(0));
    let word = |content: &LineContent, at: usize| u64::from_le_bytes(content[at..at + 8].try_into().expect("eight"));
    let contents = line.contents(1 << 16).expect("few");
    contents.iter().map(|(_, content)| [word(content, 0), word(content, 8)]).collect()
}

#[test]
fn what_a_crash_left_undecided_stays_so_below_the_stores_of_the_next_generation() {
    let mut before = model();
    run(&mut before, vec![store(0, &[1; 8]), store(0, &[2; 8])]);
    let all = |_: LineId, line: &Line| -> Vec<Choice> {
        line.contents(1 << 16).expect("few").into_iter().map(|(choice, _)| choice).collect()
    };
    let mut next = before.after_crash(all);
    let [zero, one, two] = [0, 1, 2].map(|byte| u64::from_le_bytes([byte; 8]));
    assert_eq!(words(&next), BTreeSet::from([[zero, zero], [one, zero], [two, zero]]));
    assert_eq!((next.line(LineId(0)).open_mask(), count(&next)), (1, 3), "the same line has the same number");
    let nine = u64::from_le_bytes([9; 8]);
    run(&mut next, vec![store(8, &[9; 8])]);
    assert_eq!((next.line(LineId(0)).open_mask(), count(&next)), (3, 6));
    run(&mut next, vec![EventKind::Flush { kind: FlushKind::Clwb, file: FILE, offset: 0 }, sfence()]);
    assert_eq!(words(&next), BTreeSet::from([[zero, nine], [one, nine], [two, nine]]));
    run(
        &mut next,
        vec![store(0, &[7; 8]), EventKind::Flush { kind: FlushKind::Clwb, file: FILE, offset: 0 }, sfence()],
    );
    assert!(next.view().lines.is_empty(), "overwritten and persisted: decided");
    assert_eq!(words(&before), BTreeSet::from([[zero, zero], [one, zero], [two, zero]]), "it is another model");
}

#[test]
fn a_crash_forgets_flushes_that_no_fence_completed() {
    let mut before = model();
    run(&mut before, vec![store(0, &[1; 8]), EventKind::Flush { kind: FlushKind::Clwb, file: FILE, offset: 0 }]);
    let mut next = before.after_crash(|_, _| vec![Choice::default()]);
    run(&mut next, vec![sfence()]);
    assert_eq!((words(&next), words(&before).len()), (BTreeSet::from([[0, 0]]), 2));
}

#[test]
fn choices_are_numbered_through_bases_cuts_and_floating_units() {
    let mut before = model();
    run(&mut before, vec![store(0, &[1; 8])]);
    let mut next = before.after_crash(|_, line| vec![Choice::default(), line.newest()]);
    run(&mut next, vec![store(0, &[2; 16]), nt_store(16, &[3; 8])]);
    let view = next.view();
    let line = &view.lines[0];
    let numbered: BTreeSet<Choice> = (0..line.choice_count()).map(|number| line.choice(number)).collect();
    let listed: BTreeSet<Choice> =
        next.line(line.id).contents(1 << 16).expect("few").into_iter().map(|(choice, _)| choice).collect();
    assert_eq!((numbered.len(), &numbered), (2 * 4 * 2, &listed));
    assert_eq!(line.newest(), next.line(line.id).newest());
}

#[test]
fn a_unit_is_overwritten_once_a_store_to_all_of_it_is_decided() {
    let flush = || EventKind::Flush { kind: FlushKind::Clwb, file: FILE, offset: 0 };
    let mut model = model();
    run(&mut model, vec![store(0, &[1; 8]), store(8, &[2; 4])]);
    let overwritten =
        |model: &Model| (0..8).filter(|unit| model.overwritten(LineId(0)) >> unit & 1 == 1).collect::<Vec<u8>>();
    assert_eq!((overwritten(&model), model.is_settled()), (vec![], false));
    run(&mut model, vec![flush(), sfence()]);
    assert_eq!((overwritten(&model), model.is_settled()), (vec![0], true), "half a unit still shows what was there");
    let lines = model.lines();
    model.set_origin();
    assert_eq!(overwritten(&model), vec![]);
    run(&mut model, vec![store(16, &[3; 8]), flush()]);
    assert!(!model.is_settled());
    run(&mut model, vec![sfence()]);
    assert_eq!(overwritten(&model), vec![2]);
    assert_eq!(lines.overwritten(LineKey { file: FILE, number: 0 }), 1, "what lines were stays as it was");
    let next = model.after_crash(|_, line| vec![line.newest()]);
    assert_eq!(overwritten(&next), vec![], "a generation begins with an origin");
}
