// SPDX-License-Identifier: Apache-2.0
//! `pairwise`: a covering array over the remaining choices of the lines. For targets whose loads cannot be seen: most crash bugs need
//! few lines to be as they must not be together, whatever the others are.
//!
//! Of strength t, any t lines have each combination of their choices in some state that is run. That is the guarantee, and it
//! is claimed for lines of at most [`CHOICES`] choices; of a line with more, that many are drawn, its floor and everything
//! among them. Where the combinations of all lines are more than [`TUPLES`], the array is over the lines of the newest store
//! and those that come before them, as many as the limit leaves room for; the choices of the others are drawn for each state.
//!
//! In scope [`Scope::Born`] only combinations with a new choice are covered: the others were when they came to be, and what
//! is expected of the heap has not changed since. Where a limit left some of them out, the next position that is within it is in scope
//! [`Scope::All`] ([`super::Covered`]).
//!
//! The array is made row by row, greedily (Cohen, Dalal, Fredman, Patton: The AETG System, IEEE TSE 1997): a row begins with the
//! first combination that is missing, and each further line takes the choice that makes most missing combinations with those
//! before it.

use super::{Asked, Coverage, Reach, Scope, Strategy, Visit, sample};
use crate::model::{Choice, OpenLine, View};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::Rng;
use std::ops::ControlFlow;

/// Choices of a line that are combined with those of others; of more, that many are drawn. What recovery can tell apart of one line
/// is rarely more: eight units, torn or not.
pub const CHOICES: u128 = 16;

/// Combinations of a position that are kept track of: forty lines of nine choices, two by two. The array is made in milliseconds then;
/// an object of many lines that is being filled has thousands of positions.
pub const TUPLES: u128 = 1 << 16;

/// The largest strength.
pub const STRENGTH: usize = 3;

/// Covering arrays. Seed and position seed what is drawn.
pub struct Pairwise {
    /// Lines that are combined: 2 or [`STRENGTH`].
    pub strength: usize,
}

/// A line of the array.
struct Column {
    /// Its place in the view.
    place: usize,
    values: Vec<Choice>,
    is_new: Vec<bool>,
}

impl Strategy for Pairwise {
    fn name(&self) -> &'static str {
        if self.strength == STRENGTH { "pairwise-3" } else { "pairwise" }
    }

    fn runs(&self) -> &'static str {
        if self.strength == STRENGTH {
            "all combinations of any three lines"
        } else {
            "all combinations of any two lines"
        }
    }

    fn reach(&self) -> Reach {
        Reach::Combinations
    }

    fn is_whole(&self, view: &View) -> bool {
        let sizes: Vec<f64> = view.lines.iter().map(|line| line.choice_count() as f64).collect();
        sizes.iter().all(|size| *size <= CHOICES as f64)
            && combinations(&sizes, self.strength.min(sizes.len())) <= TUPLES as f64
    }

    fn states(&self, asked: &Asked, visit: &mut Visit) -> ControlFlow<()> {
        let Asked { view, scope, .. } = *asked;
        let mut random = sample::random(asked);
        let columns = self.columns(view, &mut random);
        let strength = self.strength.min(columns.len());
        if strength == 0 {
            return if scope == Scope::All || view.are_all_new { visit(&[]) } else { ControlFlow::Continue(()) };
        }
        let mut array = Array::new(&columns, strength, scope == Scope::All || view.are_all_new);
        while let Some(row) = array.next_row(&columns, &mut random) {
            let mut state: Vec<Choice> = view.lines.iter().map(|line| draw(line, &mut random)).collect();
            for (column, value) in columns.iter().zip(&row) {
                state[column.place] = column.values[*value];
            }
            visit(&state)?;
        }
        ControlFlow::Continue(())
    }

    fn coverage(&self, asked: &Asked) -> Option<Coverage> {
        let Asked { view, scope, .. } = *asked;
        let is_all = scope == Scope::All || view.are_all_new;
        let strength = self.strength.min(view.lines.len());
        let in_scope = |of_all: &[f64], of_old: &[f64]| {
            combinations(of_all, strength) - if is_all { 0.0 } else { combinations(of_old, strength) }
        };
        let counts = |lines: &[OpenLine]| -> (Vec<f64>, Vec<f64>) {
            lines.iter().map(|line| (line.choice_count() as f64, line.old_choices() as f64)).unzip()
        };
        let (all, old) = counts(&view.lines);
        let columns = self.columns(view, &mut Pcg64Mcg::new(1));
        let drawn_old = |column: &Column| column.is_new.iter().filter(|is_new| !**is_new).count() as f64;
        let (taken, taken_old): (Vec<f64>, Vec<f64>) =
            columns.iter().map(|column| (column.values.len() as f64, drawn_old(column))).unzip();
        let is_whole = self.is_whole(view);
        let (tuples, covered) = (in_scope(&all, &old), in_scope(&taken, &taken_old));
        Some(Coverage { strength: self.strength, tuples, covered, is_whole })
    }
}

impl Pairwise {
    /// The lines that are combined: those of the newest store first, then the later ones, while there is room.
    fn columns(&self, view: &View, random: &mut Pcg64Mcg) -> Vec<Column> {
        let mut places: Vec<usize> = (0..view.lines.len()).collect();
        places.sort_by_key(|place| {
            let line = &view.lines[*place];
            (line.old_choices() == line.choice_count(), std::cmp::Reverse(line.id))
        });
        let mut columns = Vec::new();
        let mut sizes = Vec::new();
        for place in places {
            let line = &view.lines[place];
            sizes.push(line.choice_count().min(CHOICES) as f64);
            if combinations(&sizes, self.strength.min(sizes.len())) > TUPLES as f64 {
                break;
            }
            let values = values_of(line, random);
            let is_new = values.iter().map(|choice| line.is_new(*choice)).collect();
            columns.push(Column { place, values, is_new });
        }
        columns
    }
}

/// All choices of a line, or so many that are drawn.
fn values_of(line: &OpenLine, random: &mut Pcg64Mcg) -> Vec<Choice> {
    let count = line.choice_count();
    if count <= CHOICES {
        return (0..count).map(|number| line.choice(number)).collect();
    }
    let mut values = vec![line.choice(0), line.newest()];
    while values.len() < CHOICES as usize {
        let drawn = draw(line, random);
        if !values.contains(&drawn) {
            values.push(drawn);
        }
    }
    values
}

fn draw(line: &OpenLine, random: &mut Pcg64Mcg) -> Choice {
    line.choice(sample::below(line.choice_count(), random))
}

/// The sum, over all ways to take `strength` of the lines, of the product of their sizes.
fn combinations(sizes: &[f64], strength: usize) -> f64 {
    let mut sums = vec![0.0; strength + 1];
    sums[0] = 1.0;
    for size in sizes {
        for taken in (1..=strength).rev() {
            sums[taken] += sums[taken - 1] * size;
        }
    }
    sums[strength]
}

/// Which combinations are missing.
struct Array {
    strength: usize,
    sizes: Vec<usize>,
    /// Of each set of lines, by rank: its first combination. One more: the number of combinations.
    starts: Vec<usize>,
    is_missing: Vec<bool>,
    /// No combination before this one is missing.
    next: usize,
}

impl Array {
    fn new(columns: &[Column], strength: usize, is_all: bool) -> Self {
        let sizes: Vec<usize> = columns.iter().map(|column| column.values.len()).collect();
        let mut array = Self { strength, sizes, starts: vec![0], is_missing: Vec::new(), next: 0 };
        let mut sets = Vec::new();
        for_each_set(columns.len(), strength, &mut |set| sets.push(set.to_vec()));
        for set in &sets {
            for number in 0..set.iter().map(|column| array.sizes[*column]).product() {
                let values = array.values(set, number);
                let is_new = set.iter().zip(&values).any(|(column, value)| columns[*column].is_new[*value]);
                array.is_missing.push(is_all || is_new);
            }
            array.starts.push(array.is_missing.len());
        }
        array
    }

    /// The values of combination `number` of a set of lines.
    fn values(&self, set: &[usize], mut number: usize) -> Vec<usize> {
        let mut values = Vec::with_capacity(set.len());
        for column in set {
            values.push(number % self.sizes[*column]);
            number /= self.sizes[*column];
        }
        values
    }

    /// Of a set of lines, in order, with their values in `row`.
    fn place(&self, set: &[usize], row: &[usize]) -> usize {
        let mut number = 0;
        for column in set.iter().rev() {
            number = number * self.sizes[*column] + row[*column];
        }
        self.starts[rank(set)] + number
    }

    /// The next state of the array: a value for each line. None when nothing is missing.
    fn next_row(&mut self, columns: &[Column], random: &mut Pcg64Mcg) -> Option<Vec<usize>> {
        self.next += self.is_missing[self.next..].iter().position(|is_missing| *is_missing)?;
        let at = self.starts.partition_point(|start| *start <= self.next) - 1;
        let first = set_of_rank(at, self.strength);
        let mut row = vec![0; columns.len()];
        for (column, value) in first.iter().zip(self.values(&first, self.next - self.starts[at])) {
            row[*column] = value;
        }
        let mut fixed = first;
        for column in 0..columns.len() {
            if fixed.contains(&column) {
                continue;
            }
            row[column] = self.best_value(column, &fixed, &mut row.clone(), random);
            fixed.push(column);
            fixed.sort_unstable();
        }
        let mut covered = Vec::new();
        for_each_set(columns.len(), self.strength, &mut |set| covered.push(self.place(set, &row)));
        covered.into_iter().for_each(|place| self.is_missing[place] = false);
        Some(row)
    }

    /// The value that makes most missing combinations with the lines that have one; of equal ones, one is drawn.
    fn best_value(&self, column: usize, fixed: &[usize], row: &mut [usize], random: &mut Pcg64Mcg) -> usize {
        let from = (random.next_u64() % self.sizes[column] as u64) as usize;
        let (mut best, mut most) = (from, None);
        for step in 0..self.sizes[column] {
            let value = (from + step) % self.sizes[column];
            row[column] = value;
            let mut gain = 0;
            for_each_set(fixed.len(), self.strength - 1, &mut |others| {
                let mut set = [column; STRENGTH];
                others.iter().zip(&mut set).for_each(|(other, place)| *place = fixed[*other]);
                let set = &mut set[..self.strength];
                set.sort_unstable();
                gain += usize::from(self.is_missing[self.place(set, row)]);
            });
            if most.is_none_or(|most| gain > most) {
                (best, most) = (value, Some(gain));
            }
        }
        best
    }
}

/// Calls `visit` for each set of `size` of the numbers below `count`, in order of [`rank`].
fn for_each_set(count: usize, size: usize, visit: &mut dyn FnMut(&[usize])) {
    if size > count {
        return;
    }
    let mut numbers: [usize; STRENGTH] = std::array::from_fn(|at| at);
    let set = &mut numbers[..size];
    loop {
        visit(set);
        // The first number that can grow does; those before it start again.
        let Some(at) = (0..size).find(|at| set[*at] + 1 < set.get(at + 1).copied().unwrap_or(count)) else { return };
        set[at] += 1;
        (0..at).for_each(|before| set[before] = before);
    }
}

/// The place of a set among those of its size in colexicographic order.
fn rank(set: &[usize]) -> usize {
    set.iter().enumerate().map(|(at, number)| choose(*number, at + 1)).sum()
}

fn set_of_rank(mut rank: usize, size: usize) -> Vec<usize> {
    let mut set = vec![0; size];
    for at in (0..size).rev() {
        let mut number = at;
        while choose(number + 1, at + 1) <= rank {
            number += 1;
        }
        rank -= choose(number, at + 1);
        set[at] = number;
    }
    set
}

fn choose(count: usize, size: usize) -> usize {
    (0..size).fold(1, |product, step| product * (count.saturating_sub(step)) / (step + 1))
}
