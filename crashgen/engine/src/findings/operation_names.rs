// SPDX-License-Identifier: Apache-2.0
//! Names for the operations of later generations. Their numbers differ from those of the workload's operations (`runner/protocol.h`), and mean
//! nothing to a person.

/// `FL_FIRST_INDEX`.
const FIRST: u32 = 0xf0_0000;
/// `FL_INDEXES_OF_A_GENERATION`.
const OF_A_GENERATION: u32 = 0x1000;

/// The generation of an operation, from 1, and its number there: 0 is the recovery, and the follow-up has the next numbers. For an operation
/// of the workload: 0, and its index.
pub fn place(index: u32) -> (u32, u32) {
    match index.checked_sub(FIRST) {
        Some(later) => (later / OF_A_GENERATION, later % OF_A_GENERATION),
        None => (0, index),
    }
}

/// The text with those operations by their names.
pub fn in_text(text: &str) -> String {
    const WORD: &str = "operation ";
    let mut parts = text.split(WORD);
    let mut named = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let digits = part.bytes().take_while(u8::is_ascii_digit).count();
        let name = part[..digits].parse().ok().and_then(|index| match place(index) {
            (0, _) => None,
            (generation, 0) => Some(format!("the {} recovery", ordinal(generation))),
            (generation, number) => Some(format!("{WORD}{number} after the {} recovery", ordinal(generation))),
        });
        match name {
            Some(name) => named.extend([&name, &part[digits..]]),
            None => named.extend([WORD, part]),
        }
    }
    named
}

fn ordinal(generation: u32) -> &'static str {
    ["zeroth", "first", "second", "third"].get(generation as usize).copied().unwrap_or("later")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_operations_have_names() {
        let index = FIRST + OF_A_GENERATION;
        assert_eq!((place(7), place(index + 2)), ((0, 7), (1, 2)));
        for (text, named) in [
            ("operation 7 (free) made it so".to_owned(), "operation 7 (free) made it so"),
            (format!("slot 2: operation {} put", index + 2), "slot 2: operation 2 after the first recovery put"),
            (format!("operation {index}"), "the first recovery"),
            (
                format!("operation {} and operation 3", index + OF_A_GENERATION + 1),
                "operation 1 after the second recovery and operation 3",
            ),
            ("no operation is pending".to_owned(), "no operation is pending"),
        ] {
            assert_eq!(in_text(&text), named);
        }
    }
}
