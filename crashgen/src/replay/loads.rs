// SPDX-License-Identifier: Apache-2.0
//! What a recorded run loaded of the crash image, read from the runner (`runner/protocol.h`).

use crate::complete::Doubt;
use crate::trace::{FileId, UnitKey};
use rustc_hash::FxHashMap;

pub const VERSION: u32 = 9;
const HEADER_BYTES: usize = 32;
const LOAD_BYTES: usize = 24;
const OVERFLOW: u32 = 1;
const NOT_HOOKED: u32 = 2;
const SHARED: u32 = 4;
const UNSEEN: u32 = 8;
/// Flags that hold for the target, whatever the image.
const UNFIT: u32 = NOT_HOOKED | SHARED | UNSEEN;
const DIFFERS: u32 = 16;
const MAPPINGS: u32 = 32;
const DAMAGED: u32 = 64;
const BY_TARGET: u8 = 1;

/// What a recorded run read of the crash image (`runner/protocol.h`).
#[derive(Clone, Debug, Default)]
pub struct Loads {
    /// Varying units in the order in which the target first depended on what the crash left there.
    pub by_target: Vec<UnitKey>,
    /// For each of them, the loading instruction's offset in the adapter's file; 0 where it is not known or the runner loaded the unit.
    pub sites: Vec<u32>,
    /// Varying units that the runner's scan of contents read and nothing before it.
    pub by_contents: Vec<UnitKey>,
    /// Why the list is not complete, if it is not.
    pub doubt: Option<Doubt>,
    /// The doubt is that the run in the isolated engine ended differently.
    pub is_different: bool,
    /// The doubt holds for every run: loads of this target cannot be followed, or it was built without hooks.
    pub is_unfit: bool,
}

/// None: it is of another version, or damaged. `files`: by the server's numbers.
pub fn parse(answer: &[u8], files: &FxHashMap<u32, FileId>) -> Option<Loads> {
    let (header, rest) = answer.split_at_checked(HEADER_BYTES)?;
    let word = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("four bytes"));
    let (flags, count) = (word(4), word(8) as usize);
    let (list, text) = rest.split_at_checked(count.checked_mul(LOAD_BYTES)?)?;
    if word(0) != VERSION || text.len() != word(12) as usize {
        return None;
    }
    let text = String::from_utf8_lossy(text);
    let (is_different, is_unfit) = (flags & DIFFERS != 0, flags & UNFIT != 0);
    let mut found = Loads { doubt: doubt(flags, &text), is_different, is_unfit, ..Loads::default() };
    for load in list.chunks_exact(LOAD_BYTES) {
        let number = u64::from_le_bytes(load[8..16].try_into().expect("eight bytes"));
        let file = files.get(&u32::from_le_bytes(load[4..8].try_into().expect("four bytes")))?;
        let unit = UnitKey { file: *file, number };
        if load[0] == BY_TARGET {
            found.by_target.push(unit);
            found.sites.push(u32::from_le_bytes(load[16..20].try_into().expect("four bytes")));
        } else {
            found.by_contents.push(unit);
        }
    }
    Some(found)
}

/// Why a run's loads are not all known.
fn doubt(flags: u32, text: &str) -> Option<Doubt> {
    let unknown = |reason: &str| Doubt::Unknown(reason.to_owned());
    let reasons = [
        (NOT_HOOKED, unknown("the adapter was built without hooks")),
        (DIFFERS, unknown(&format!("the in-process engine cannot be trusted here: {text}"))),
        (UNSEEN, unknown(&format!("recovery loads PM past the hooks: {text}"))),
        (SHARED, unknown("recovery started a thread or a process, whose loads have no order")),
        (DAMAGED, unknown("recovery overwrote the list of what it loads, in memory that is not its own")),
        (OVERFLOW, Doubt::Bound("a recovery that loads more units than the list of loads holds, 1,048,576")),
        (MAPPINGS, Doubt::Bound("a recovery that has more than 64 mappings of its heap at a time")),
    ];
    reasons.into_iter().find(|(flag, _)| flags & flag != 0).map(|(_, reason)| reason)
}
