// SPDX-License-Identifier: Apache-2.0
//! What a recorded run loaded of the crash image, read from the runner (`runner/protocol.h`).

use super::protocol::{
    LOAD_BYTES, LOAD_TARGET, LOADS_DAMAGED, LOADS_DIFFERS, LOADS_HEADER_BYTES, LOADS_MAPPINGS, LOADS_NOT_HOOKED,
    LOADS_OVERFLOW, LOADS_SHARED, LOADS_UNSEEN, PROTOCOL_VERSION,
};
use crate::complete::Doubt;
use crate::trace::{FileId, UnitKey};
use rustc_hash::FxHashMap;

/// Flags that hold for the target, whatever the image.
const UNFIT: u32 = LOADS_NOT_HOOKED | LOADS_SHARED | LOADS_UNSEEN | LOADS_DIFFERS;

/// An instruction of the target, as the runner names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CodeSite {
    /// Number of the module ([`ReplayServer::module`](super::ReplayServer::module)); 0: the adapter's.
    pub module: u32,
    /// Offset in its file.
    pub offset: u32,
}

impl CodeSite {
    /// None: unknown.
    fn of(module: u32, offset: u32) -> Option<Self> {
        (offset != 0).then_some(Self { module, offset })
    }
}

fn number_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// What a recorded run read of the crash image (`runner/protocol.h`).
#[derive(Clone, Debug, Default)]
pub struct Loads {
    /// Varying units in the order in which the target first depended on what the crash left there.
    pub by_target: Vec<UnitKey>,
    /// For each of them, the loading instruction; none where it is not known or the runner loaded the unit.
    pub sites: Vec<Option<CodeSite>>,
    /// Varying units that the runner's scan of contents read and nothing before it.
    pub by_contents: Vec<UnitKey>,
    /// Why the list is not complete, if it is not.
    pub doubt: Option<Doubt>,
    /// The doubt holds for every run: loads of this target cannot be followed, or it was built without hooks.
    pub is_unfit: bool,
}

/// None: it is of another version, or damaged. `files`: by the server's numbers; `is_traced`: the server runs under a tracer.
pub fn parse(answer: &[u8], files: &FxHashMap<u32, FileId>, is_traced: bool) -> Option<Loads> {
    let (header, rest) = answer.split_at_checked(LOADS_HEADER_BYTES)?;
    let word = |at: usize| number_at(header, at);
    let (flags, count) = (word(4), word(8) as usize);
    let (list, text) = rest.split_at_checked(count.checked_mul(LOAD_BYTES)?)?;
    if word(0) != PROTOCOL_VERSION || text.len() != word(12) as usize {
        return None;
    }
    let text = String::from_utf8_lossy(text);
    let mut found = Loads { doubt: doubt(flags, &text, is_traced), is_unfit: flags & UNFIT != 0, ..Loads::default() };
    for load in list.chunks_exact(LOAD_BYTES) {
        let number = u64::from_le_bytes(load[8..16].try_into().expect("eight bytes"));
        let file = files.get(&number_at(load, 4))?;
        let unit = UnitKey { file: *file, number };
        if load[0] == LOAD_TARGET {
            found.by_target.push(unit);
            found.sites.push(CodeSite::of(number_at(load, 20), number_at(load, 16)));
        } else {
            found.by_contents.push(unit);
        }
    }
    Some(found)
}

/// Why a run's loads are not all known.
fn doubt(flags: u32, text: &str, is_traced: bool) -> Option<Doubt> {
    let unseen = if is_traced { "the tracer cannot follow recovery" } else { "recovery loads PM past the hooks" };
    let unknown = |reason: &str| Doubt::Unknown(reason.to_owned());
    let reasons = [
        (LOADS_NOT_HOOKED, unknown("the adapter was built without hooks")),
        (LOADS_DIFFERS, unknown(&format!("the in-process engine cannot be trusted here: {text}"))),
        (LOADS_UNSEEN, unknown(&format!("{unseen}: {text}"))),
        (LOADS_SHARED, unknown("recovery started a thread or a process, whose loads have no order")),
        (LOADS_DAMAGED, unknown("recovery overwrote the list of what it loads, in memory that is not its own")),
        (LOADS_OVERFLOW, Doubt::Bound("a recovery that loads more units than the list of loads holds, 1,048,576")),
        (LOADS_MAPPINGS, Doubt::Bound("a recovery that has more than 64 mappings of its heap at a time")),
    ];
    reasons.into_iter().find(|(flag, _)| flags & flag != 0).map(|(_, reason)| reason)
}
