// SPDX-License-Identifier: Apache-2.0
//! What the recoveries of a later generation load, remembered for all that was told.

use crate::base::budget::{Budget, Stop};
use crate::base::config::Config;
use crate::explore::complete::Complete;
use crate::explore::later::explored_starts::Begins;
use crate::explore::later::run_identity::Did;
use crate::explore::unchanged::Unchanged;
use crate::heap::case::Case;
use crate::recovery::recoverer::Recoverer;
use crate::recovery::set_content::Contents;
use crashgen::complete::{Bounds, Dependencies, Repeats, UnitKey, Window};
use crashgen::model::Lines;
use crashgen::trace::Event;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeSet;
use std::collections::hash_map::Entry;
use std::rc::Rc;

/// Crash positions that tries of later recoveries are used for at least before they begin again, so that those with more to remember
/// than there is room for are gaps in the exploration and not most of its time.
const RENEWED_AFTER: u64 = 64;

pub struct LaterRecoveries {
    /// Whatever may vary between the images: stored to in the trace meanwhile, or touched by some told run.
    pub hot: BTreeSet<UnitKey>,
    /// One trie for each state of the file system: its answers are no nodes.
    pub tries: FxHashMap<u128, Complete>,
    /// Crash positions that they were used for.
    pub used: u64,
    /// Of the told runs that were explored over the same hot units.
    pub begins: Begins,
    /// What tries that are forgotten by now loaded.
    loaded_before: FxHashSet<UnitKey>,
}

impl LaterRecoveries {
    pub fn new(hot: BTreeSet<UnitKey>) -> Self {
        Self {
            hot,
            tries: FxHashMap::default(),
            used: 0,
            begins: Begins::default(),
            loaded_before: FxHashSet::default(),
        }
    }

    /// Whether to begin tries again, before there is no room for what is needed next.
    pub fn is_nearly_full(&self, bounds: Bounds) -> bool {
        let bytes: usize = self.tries.values().map(Complete::kept_bytes).sum();
        let leaves = self.tries.values().map(Complete::leaf_count).max().unwrap_or(0);
        self.used >= RENEWED_AFTER && (bytes >= bounds.bytes / 2 || leaves >= bounds.leaves / 2)
    }

    pub fn forget_tries(&mut self) {
        self.loaded_before.extend(self.tries.values().flat_map(|complete| complete.search().loaded()));
        self.tries.clear();
        self.used = 0;
    }

    /// Other units vary, too: what is remembered of loads is void.
    pub fn start_again(&mut self) {
        self.forget_tries();
        self.begins.clear();
    }

    pub fn loaded(&self) -> impl Iterator<Item = UnitKey> {
        let of_tries = self.tries.values().flat_map(|complete| complete.search().loaded());
        of_tries.chain(self.loaded_before.iter().copied())
    }

    pub fn is_touched(&self, event: &Event) -> bool {
        self.tries.values().any(|complete| complete.search().is_touched(event))
            || UnitKey::of_store(event).any(|unit| self.loaded_before.contains(&unit))
    }

    /// A told run was explored over what these lines may hold, which was looked at after recovery's return as `looked` says.
    pub fn add_run(
        &mut self,
        (did, begin): (u128, &Lines),
        returned: Returned,
        looked: Dependencies,
        most_bytes: usize,
    ) {
        if self.begins.bytes() >= most_bytes {
            self.begins.clear();
        }
        if returned.known.is_none() {
            self.begins.add(returned.did, &returned.lines, &looked);
        }
        let mut whole = returned.looked;
        let of_begin = |(line, units)| (line, units & !returned.lines.overwritten(line));
        whole.join(returned.known.unwrap_or(looked).lines().map(of_begin));
        self.begins.add(did, begin, &whole);
    }

    /// The trie for these answers of the file system; made when there is none.
    pub fn trie(
        &mut self,
        names: u128,
        config: &Config,
        repeats: &Rc<Repeats>,
        recoverer: &mut Recoverer,
        budget: Budget,
    ) -> Result<&mut Complete, Stop> {
        match self.tries.entry(names) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(place) => {
                let mut complete = Complete::new(config, repeats);
                let window = Window { varying: self.hot.iter().copied().collect(), last_position: u32::MAX };
                let probe = recoverer.whole();
                complete.enter(window, recoverer, probe, budget)?;
                Ok(place.insert(complete))
            }
        }
    }
}

/// Where recovery returned in a told run.
pub struct Returned {
    /// What decides, with these lines, what crashes from here on find.
    did: u128,
    lines: Lines,
    /// What was looked at until here.
    looked: Dependencies,
    /// What was looked at from here on, when that was explored before.
    pub known: Option<Dependencies>,
}

/// The passes of one told run through the tries, one for each state of the file system and one more from recovery's return on.
pub struct Passes {
    /// Of the trie that is in use.
    pub names: Option<u128>,
    /// While none is.
    pub contents: Contents,
    /// In the passes that are over.
    pub looked: Dependencies,
}

impl Passes {
    pub fn end(&mut self, later: &mut LaterRecoveries) {
        let Some(complete) = self.names.take().and_then(|names| later.tries.get_mut(&names)) else { return };
        let (contents, looked) = complete.end_pass();
        self.contents = contents;
        self.looked.join(looked.lines());
    }

    pub fn go_on(&mut self, later: &mut LaterRecoveries, names: u128) {
        self.end(later);
        self.names = Some(names);
        later.tries.get_mut(&names).expect("it is made before").begin_pass(std::mem::take(&mut self.contents));
    }

    pub fn recovery_returned(
        &mut self,
        later: &mut LaterRecoveries,
        (did, unchanged): (Did, Option<&Unchanged>),
        case: &Case,
    ) -> Returned {
        self.end(later);
        let (did, lines) = (did.rest(&case.model, case.names_hash(), unchanged), case.model.lines());
        let known = later.begins.looked(did, &lines);
        Returned { did, lines, looked: std::mem::take(&mut self.looked), known }
    }
}
