// SPDX-License-Identifier: Apache-2.0
//! What strategies see of a crash position: the lines that have choices, and which choices are new there.

use super::{Choice, Line, LineId};
use std::rc::Rc;

/// A line with more than one remaining choice.
#[derive(Clone, Copy, Debug)]
pub struct OpenLine {
    /// Its number in the model.
    pub id: LineId,
    /// Values of [`Choice::base`].
    pub base_count: u32,
    /// Values of [`Choice::ordered`].
    pub ordered_choices: u32,
    /// Undecided floating units.
    pub floating_units: u32,
    /// First value of [`Choice::ordered`] that contains the newest store.
    pub new_ordered: Option<u32>,
    /// Bits of [`Choice::floating`] that belong to the newest store.
    pub new_floating: u64,
    /// Decimal logarithm of [`OpenLine::choice_count`]: a trace has many positions, and most lines of one are those of the last.
    count_log10: f64,
}

impl OpenLine {
    /// `newest`: the store that is new at the position, if it touched the line.
    pub(super) fn of(id: LineId, line: &Line, newest: Option<u32>) -> Self {
        let mut open = Self {
            id,
            base_count: line.base_count(),
            ordered_choices: line.ordered_choices(),
            floating_units: line.floating_units(),
            new_ordered: newest.and_then(|event| line.first_choice_with(event)),
            new_floating: newest.map_or(0, |event| line.floating_mask_of(event)),
            count_log10: 0.0,
        };
        open.count_log10 = (open.choice_count() as f64).log10();
        open
    }

    /// The next position: what was new is not.
    pub(super) fn forget_new(&mut self) {
        (self.new_ordered, self.new_floating) = (None, 0);
    }

    fn has_new(&self) -> bool {
        self.new_ordered.is_some() || self.new_floating != 0
    }

    /// Number of remaining choices.
    pub fn choice_count(&self) -> u128 {
        u128::from(self.base_count) * (u128::from(self.ordered_choices) << self.floating_units)
    }

    /// The choice with this number, 0 (the floor) to `choice_count() - 1` (everything).
    pub fn choice(&self, number: u128) -> Choice {
        let floating = (number & ((1u128 << self.floating_units) - 1)) as u64;
        let above = number >> self.floating_units;
        let ordered_choices = u128::from(self.ordered_choices);
        Choice { base: (above / ordered_choices) as u32, ordered: (above % ordered_choices) as u32, floating }
    }

    /// Everything the line was given.
    pub fn newest(&self) -> Choice {
        self.choice(self.choice_count() - 1)
    }

    /// Whether this choice contains some of the newest store.
    pub fn is_new(&self, choice: Choice) -> bool {
        self.new_ordered.is_some_and(|first| choice.ordered >= first) || choice.floating & self.new_floating != 0
    }

    /// Number of choices that contain nothing of the newest store.
    pub(crate) fn old_choices(&self) -> u128 {
        let ordered = self.new_ordered.unwrap_or(self.ordered_choices);
        u128::from(self.base_count) * (u128::from(ordered) << (self.floating_units - self.new_floating.count_ones()))
    }
}

/// A crash position as strategies see it.
#[derive(Clone, Debug)]
pub struct View {
    /// Lines with more than one choice, by number.
    pub lines: Rc<Vec<OpenLine>>,
    /// All states are new: the last event changed the files, or the model leaves one state a position.
    pub are_all_new: bool,
    /// The last event was a store or changed the files.
    pub has_new_store: bool,
}

impl View {
    /// Number of reachable states, none beyond 2^127.
    pub fn state_count(&self) -> Option<u128> {
        self.lines.iter().try_fold(1u128, |product, line| {
            product.checked_mul(line.choice_count()).filter(|product| *product < 1 << 127)
        })
    }

    /// Decimal logarithm of the number of reachable states.
    pub fn states_log10(&self) -> f64 {
        self.lines.iter().map(|line| line.count_log10).sum()
    }

    /// Decimal logarithm of the number of states born here; none if there are none.
    pub fn born_log10(&self) -> Option<f64> {
        if self.are_all_new {
            return Some(self.states_log10());
        }
        // All states minus those with an old choice in every line the store touched.
        let touched = self.lines.iter().filter(|line| line.has_new());
        let old_share: f64 = touched.map(|line| line.old_choices() as f64 / line.choice_count() as f64).product();
        (self.has_new_store && old_share < 1.0).then(|| self.states_log10() + (1.0 - old_share).log10())
    }

    /// Number of states born here, where that is below 2^127.
    pub fn born_count(&self) -> Option<u128> {
        match (self.are_all_new, self.has_new_store) {
            (true, _) => self.state_count(),
            (false, false) => Some(0),
            (false, true) => Some(self.state_count()? - self.lines.iter().map(OpenLine::old_choices).product::<u128>()),
        }
    }

    /// Whether the state contains some of the newest store (or the files just changed).
    pub fn is_born(&self, state: &[Choice]) -> bool {
        self.are_all_new || self.lines.iter().zip(state).any(|(line, choice)| line.is_new(*choice))
    }

    /// Everything persisted: the program-order prefix.
    pub fn prefix_state(&self) -> Vec<Choice> {
        self.lines.iter().map(OpenLine::newest).collect()
    }

    /// Everything of this generation persisted, after what earlier crashes left in that state.
    pub fn prefix_after(&self, state: &[Choice]) -> Vec<Choice> {
        let lines = self.lines.iter().zip(state);
        lines.map(|(line, choice)| Choice { base: choice.base, ..line.newest() }).collect()
    }

    /// Only what is guaranteed.
    pub fn floor_state(&self) -> Vec<Choice> {
        vec![Choice::default(); self.lines.len()]
    }
}
