// SPDX-License-Identifier: Apache-2.0
//! The pattern is the one that fill writes: compared with the C header.

use std::path::Path;
use std::process::Command;

use oracle::Segment;
use oracle::pattern::{expected_bytes, pattern_byte, pattern_word};

const CASES: [(u32, u64); 8] =
    [(1, 0), (1, 1), (2, 0), (60, 255), (0xff_ffff, 12), (0x0123_4567, 1 << 20), (u32::MAX, u64::MAX), (3, 1 << 40)];

/// What the C header gives, in order of the cases.
const WORDS: [u64; 8] = [
    0xf1ed_0000_0145_c4aa,
    0xf1ed_0000_01dc_1fd2,
    0xf1ed_0000_0232_08c9,
    0xf1ed_0000_3c89_3e1c,
    0xf1ed_ffff_ff91_7588,
    0xf1ed_2345_67e7_aa13,
    0xf1ed_ffff_ffda_bbe3,
    0xf1ed_0000_0332_08c9,
];

#[test]
fn words_are_those_of_the_c_header() {
    for ((object, index), word) in CASES.into_iter().zip(WORDS) {
        assert_eq!(pattern_word(object, index), word, "object {object}, word {index}");
    }
}

/// Compiles the header itself, where there is a compiler: the constants above cannot go stale unnoticed.
#[test]
fn the_c_header_still_gives_these_words() {
    let headers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../runner");
    let folder = std::env::temp_dir().join(format!("oracle-pattern-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (source, program) = (folder.join("pattern.c"), folder.join("pattern"));
    let calls: String = CASES
        .iter()
        .map(|(object, index)| {
            format!("printf(\"%llx\\n\", (unsigned long long)fl_pattern_word({object}u, {index}ull));")
        })
        .collect();
    let text = format!("#include <stdio.h>\n#include \"protocol.h\"\nint main(void) {{ {calls} return 0; }}\n");
    std::fs::write(&source, text).unwrap();
    let compiler = Command::new("gcc").arg("-I").arg(&headers).arg(&source).arg("-o").arg(&program).status();
    let printed = match compiler {
        Err(_) => None, // no gcc: the constants are all there is
        Ok(status) => {
            assert!(status.success(), "protocol.h does not compile");
            Some(Command::new(&program).output().unwrap().stdout)
        }
    };
    std::fs::remove_dir_all(&folder).unwrap();
    if let Some(printed) = printed {
        let expected: String = WORDS.iter().map(|word| format!("{word:x}\n")).collect();
        assert_eq!(String::from_utf8(printed).unwrap(), expected);
    }
}

#[test]
fn expected_bytes_are_the_segments_bytes_at_any_range() {
    let segments = [Segment { end: 13, object: 5 }, Segment { end: 40, object: 9 }];
    let whole: Vec<u8> = (0..50)
        .map(|at| match at {
            0..13 => pattern_byte(5, at),
            13..40 => pattern_byte(9, at),
            _ => 0,
        })
        .collect();
    for start in 0..50 {
        for end in start..50 {
            let found = expected_bytes(&segments, start as u64..end as u64);
            assert_eq!(found, whole[start..end], "{start}..{end}");
        }
    }
}

#[test]
fn words_are_no_addresses() {
    for index in 0..1000 {
        let top = pattern_word(7, index) >> 47;
        assert!(top != 0 && top != 0x1ffff, "canonical: a collector may take it for a pointer");
    }
}
