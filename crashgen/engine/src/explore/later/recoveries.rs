// SPDX-License-Identifier: Apache-2.0
//! What the recoveries of a later generation load, remembered for all recoveries in which power fails.

use crate::base::budget::Stop;
use crate::explore::complete::Complete;
use crate::explore::later::explored_starts::ExploredStarts;
use crate::explore::later::run_identity::RunIdentity;
use crate::explore::means::Means;
use crate::explore::unchanged::Unchanged;
use crate::heap::case::HeapCase;
use crate::recovery::leaf_content::ContentMemory;
use crashgen::complete::{Bounds, Dependencies, Window};
use crashgen::model::Lines;
use crashgen::trace::{Event, UnitKey};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeSet;
use std::collections::hash_map::Entry;

/// Crash positions that tries of later recoveries are used for at least before they begin again, so that those with more to remember
/// than there is room for are gaps in the exploration and not most of its time.
const RENEWED_AFTER: u64 = 64;

/// The tries, and the runs that were explored with them.
pub struct LaterRecoveries {
    /// Whatever may vary between the images: stored to in the trace meanwhile, or touched by some recovery.
    pub varying: BTreeSet<UnitKey>,
    /// One trie for each state of the file system: its answers are no nodes.
    tries: FxHashMap<u128, Complete>,
    /// Crash positions that they were used for.
    used: u64,
    /// Of the runs that were explored over the same hot units.
    pub starts: ExploredStarts,
    /// What tries that are forgotten by now loaded.
    loaded_before: FxHashSet<UnitKey>,
}

impl LaterRecoveries {
    /// Nothing is remembered.
    pub fn new(varying: BTreeSet<UnitKey>) -> Self {
        Self {
            varying,
            tries: FxHashMap::default(),
            used: 0,
            starts: ExploredStarts::default(),
            loaded_before: FxHashSet::default(),
        }
    }

    /// Whether to begin tries again, before there is no room for what is needed next.
    pub fn is_nearly_full(&self, bounds: Bounds) -> bool {
        let bytes: usize = self.tries.values().map(Complete::kept_bytes).sum();
        let leaves = self.tries.values().map(Complete::leaf_count).max().unwrap_or(0);
        self.used >= RENEWED_AFTER && (bytes >= bounds.bytes / 2 || leaves >= bounds.leaves / 2)
    }

    /// Tries begin again.
    pub fn forget_tries(&mut self) {
        self.loaded_before.extend(self.tries.values().flat_map(|complete| complete.search().loaded()));
        self.tries.clear();
        self.used = 0;
    }

    /// Other units vary, too: what is remembered of loads is void.
    pub fn start_again(&mut self) {
        self.forget_tries();
        self.starts.clear();
    }

    /// What they loaded so far.
    pub fn loaded(&self) -> impl Iterator<Item = UnitKey> {
        let of_tries = self.tries.values().flat_map(|complete| complete.search().loaded());
        of_tries.chain(self.loaded_before.iter().copied())
    }

    /// Whether the event stores to what they loaded.
    pub fn is_touched(&self, event: &Event) -> bool {
        self.tries.values().any(|complete| complete.search().is_touched(event))
            || UnitKey::of_store(event).any(|unit| self.loaded_before.contains(&unit))
    }

    /// A run was explored over what these lines may hold. `dependencies`: what that depended on from recovery's return on.
    pub fn add_run(
        &mut self,
        (identity, start): (u128, &Lines),
        returned: Returned,
        dependencies: Dependencies,
        most_bytes: usize,
    ) {
        if self.starts.bytes() >= most_bytes {
            self.starts.clear();
        }
        if returned.known.is_none() {
            self.starts.add(returned.identity, &returned.lines, &dependencies);
        }
        let mut whole = returned.dependencies;
        let of_start = |(line, units)| (line, units & !returned.lines.overwritten(line));
        whole.join(returned.known.unwrap_or(dependencies).lines().map(of_start));
        self.starts.add(identity, start, &whole);
    }

    /// The trie for these answers of the file system; made when there is none.
    fn trie(&mut self, names: u128, means: &mut Means) -> Result<&mut Complete, Stop> {
        self.used += 1;
        match self.tries.entry(names) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(place) => {
                let mut complete = Complete::new(means.config, &means.repeats.probe);
                let window = Window { varying: self.varying.iter().copied().collect(), last_position: u32::MAX };
                complete.enter(window, means)?;
                Ok(place.insert(complete))
            }
        }
    }
}

/// Where recovery returned in a run.
pub struct Returned {
    /// What decides, with these lines, what crashes from here on find.
    identity: u128,
    lines: Lines,
    /// What the exploration depended on until here.
    dependencies: Dependencies,
    /// What it depended on from here on, when that was explored before.
    pub known: Option<Dependencies>,
}

/// The passes of one run through the tries, one for each state of the file system and one more from recovery's return on.
pub struct Passes {
    /// Of the trie that is in use.
    names: Option<u128>,
    /// While none is.
    contents: ContentMemory,
    /// In the passes that are over.
    pub dependencies: Dependencies,
}

impl Passes {
    /// Before the first one, with what was remembered of contents until there.
    pub fn new(contents: ContentMemory) -> Self {
        Self { names: None, contents, dependencies: Dependencies::default() }
    }

    /// The pass is over.
    pub fn end(&mut self, later: &mut LaterRecoveries) {
        let Some(complete) = self.names.take().and_then(|names| later.tries.get_mut(&names)) else { return };
        let (contents, dependencies) = complete.end_pass();
        self.contents = contents;
        self.dependencies.join(dependencies.lines());
    }

    /// The next crash position is passed with the trie for these answers of the file system. Whether that begins another pass.
    ///
    /// # Errors
    /// When there is nobody to run recoveries.
    pub fn go_on(&mut self, later: &mut LaterRecoveries, names: u128, means: &mut Means) -> Result<bool, Stop> {
        later.trie(names, means)?;
        if self.names == Some(names) {
            return Ok(false);
        }
        self.end(later);
        self.names = Some(names);
        let contents = std::mem::take(&mut self.contents);
        self.trie(later).begin_pass(contents);
        Ok(true)
    }

    /// The trie that is in use.
    pub fn trie<'t>(&self, later: &'t mut LaterRecoveries) -> &'t mut Complete {
        let names = self.names.expect("a pass has begun");
        later.tries.get_mut(&names).expect("it was made before")
    }

    /// Recovery returns here.
    pub fn recovery_returned(
        &mut self,
        later: &mut LaterRecoveries,
        (identity, unchanged): (RunIdentity, Option<&Unchanged>),
        case: &HeapCase,
    ) -> Returned {
        self.end(later);
        let (identity, lines) = (identity.rest(&case.model, case.names_hash(), unchanged), case.model.lines());
        let known = later.starts.dependencies(identity, &lines);
        Returned { identity, lines, dependencies: std::mem::take(&mut self.dependencies), known }
    }
}
