// SPDX-License-Identifier: Apache-2.0
//! A crash state as a token names it: the lines that differ from everything persisted, or from the floor, whichever are fewer.

use crate::base::error::{EngineError, bad_input};
use crate::heap::case::HeapCase;
use crashgen::model::{Choice, LineKey, Model, OpenLine, View};
use crashgen::token::LineChoice;
use crashgen::trace::FileId;

/// The choices that a token names.
///
/// # Errors
/// When a line does not have them.
pub fn state_of(
    case: &HeapCase,
    view: &View,
    from_newest: bool,
    lines: &[LineChoice],
) -> Result<Vec<Choice>, EngineError> {
    let mut state = if from_newest { view.prefix_state() } else { view.floor_state() };
    for line in lines {
        let key = LineKey { file: FileId(line.file), number: line.number };
        let id = case.model.find(key);
        let at = view.lines.iter().position(|open| Some(open.id) == id);
        let at = at.ok_or_else(|| {
            bad_input(format!(
                "the token chooses for line {} of file {}, which has no choice there",
                line.number, line.file
            ))
        })?;
        let open = &view.lines[at];
        if line.ordered >= open.ordered_choices || line.floating >> open.floating_units != 0 {
            return Err(bad_input("the token names a choice that its line does not have"));
        }
        state[at] = line.choice();
    }
    Ok(state)
}

/// The choices of a state as a token names them: whether from everything persisted, and the lines that differ. What an earlier crash
/// left of a line is not among them: it is named with that crash.
pub fn shortest_form(model: &Model, view: &View, state: &[Choice]) -> (bool, Vec<LineChoice>) {
    let differing = |from: fn(&OpenLine) -> Choice| -> Vec<LineChoice> {
        let lines = view.lines.iter().zip(state);
        let differing =
            lines.filter(|(line, choice)| Choice { base: 0, ..**choice } != Choice { base: 0, ..from(line) });
        differing
            .map(|(line, choice)| {
                let key = model.line(line.id).key;
                LineChoice { file: key.file.0, number: key.number, ordered: choice.ordered, floating: choice.floating }
            })
            .collect()
    };
    let (from_newest, from_floor) = (differing(OpenLine::newest), differing(|_| Choice::default()));
    if from_newest.len() <= from_floor.len() { (true, from_newest) } else { (false, from_floor) }
}
