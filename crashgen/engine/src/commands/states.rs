// SPDX-License-Identifier: Apache-2.0
//! `states`: every image of every crash position of a small trace, for comparison with a reference of the model. With `--lines`: what
//! each line may hold, for traces with more states than can be listed; lines are independent, so that an image is one of those of a
//! position if each of its lines is.

use crate::base::output::print;
use crashgen::LINE_BYTES;
use crashgen::image::CrashImage;
use crashgen::model::{LineId, LineKey, Model, Px86, View};
use crashgen::strategy::{Asked, Exhaustive, Scope, Strategy};
use crashgen::trace::Trace;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::ops::ControlFlow;

/// Positions with more states are counted only.
const STATE_LIMIT: u128 = 1 << 16;
/// Lines with more choices are named only.
const CHOICE_LIMIT: usize = 1 << 12;

/// Prints one JSON line for each crash position: exhaustive count, states born there, bounds of the model hit so far, distinct
/// images.
pub fn print_all(trace: &Trace) {
    let mut model = Model::new(&Px86, Vec::new());
    let mut image = CrashImage::new("");
    for (number, event) in trace.events.iter().enumerate() {
        model.step(number as u32, event);
        let view = model.view();
        image.follow(&mut model, view.are_all_new);
        let count = view.state_count();
        print(&json!({
            "position": number + 1,
            "count": count.map(|count| count.to_string()),
            "born": view.born_count().map(|count| count.to_string()),
            "bounds": model.bounds_hit(),
            "images": count.filter(|count| *count <= STATE_LIMIT).map(|_| images(&model, &mut image, &view)),
        }));
    }
}

/// Prints one JSON line for each crash position from the given one on: exhaustive count, and the lines that may hold something else
/// than at the position before, each with all that it may hold; null: more than can be listed. The first of them names all lines.
/// Sizes of files are left out.
pub fn print_lines(trace: &Trace, first: u32) {
    let mut model = Model::new(&Px86, Vec::new());
    let mut known = BTreeMap::new();
    let mut changed = BTreeSet::new();
    for (number, event) in trace.events.iter().enumerate() {
        model.step(number as u32, event);
        changed.extend(model.take_changed());
        let position = number as u32 + 1;
        if position < first {
            continue;
        }
        let lines: Vec<_> =
            std::mem::take(&mut changed).into_iter().filter_map(|id| new_contents(&model, id, &mut known)).collect();
        let count = model.view().state_count().map(|count| count.to_string());
        print(&json!({"position": position, "count": count, "lines": lines}));
    }
}

/// Path, number and contents of a line where they are others than those that are known; null in the place of its path: its file is gone.
fn new_contents(model: &Model, id: LineId, known: &mut BTreeMap<LineKey, Option<BTreeSet<String>>>) -> Option<Value> {
    let line = model.line(id);
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let all = line.contents(CHOICE_LIMIT);
    let contents: Option<BTreeSet<String>> = all.map(|all| all.iter().map(|(_, content)| hex(content)).collect());
    if known.get(&line.key) == Some(&contents) {
        return None;
    }
    let path = model.files().get(&line.key.file).and_then(|state| state.path.as_deref());
    let said = json!([path, line.key.number, contents]);
    known.insert(line.key, contents);
    Some(said)
}

/// Visiting must agree with the formula: each state that is born, and each once.
fn check_born(view: &View) {
    if !view.has_new_store {
        return;
    }
    let mut states = BTreeSet::new();
    let mut visits = 0;
    let _ = Exhaustive.states(&Asked { scope: Scope::Born, ..Asked::all(view) }, &mut |state| {
        visits += 1;
        states.insert(state.to_vec());
        ControlFlow::Continue(())
    });
    assert_eq!(visits, states.len(), "a state was visited twice");
    assert_eq!(Some(visits as u128), view.born_count(), "visited and counted");
}

fn images(model: &Model, image: &mut CrashImage, view: &View) -> Value {
    check_born(view);
    let mut texts = BTreeSet::new();
    let mut hashes = BTreeSet::new();
    let mut visits = 0u128;
    let _ = Exhaustive.states(&Asked::all(view), &mut |state| {
        visits += 1;
        image.go_to(model, view, state);
        texts.insert(text(model, image));
        hashes.insert(image.hash());
        ControlFlow::Continue(())
    });
    assert_eq!(Some(visits), view.state_count(), "visited and counted");
    assert_eq!(hashes.len(), texts.len(), "image hashes and images tell different things apart");
    texts.into_iter().collect::<Vec<_>>().into()
}

/// `path:size:line=hex,...;` for each file, lines of zeros left out.
fn text(model: &Model, image: &CrashImage) -> String {
    let mut files: Vec<_> = image.files().iter().collect();
    files.sort_by_key(|(_, file)| file.path.clone());
    let mut text = String::new();
    for (id, file) in files {
        let _ = write!(text, "{}:{}:", file.path, file.bytes);
        for number in model.line_numbers(*id) {
            let Some(length) = file.bytes.checked_sub(number * LINE_BYTES).filter(|length| *length > 0) else {
                continue;
            };
            let mut bytes = vec![0; length.min(LINE_BYTES) as usize];
            image.read(&file.path, number * LINE_BYTES, &mut bytes);
            if bytes.iter().any(|byte| *byte != 0) {
                let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                let _ = write!(text, "{number}={hex},");
            }
        }
        text.push(';');
    }
    text
}
