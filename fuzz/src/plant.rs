// SPDX-License-Identifier: Apache-2.0
//! Planted faults: what a fuzzer must find, to show that it finds anything. `FUZZ_PLANT` names the one that is on; a fault sits
//! behind a reader, on input that no seed holds, and is as deep as a real one would be.

use std::sync::LazyLock;

static PLANTED: LazyLock<String> = LazyLock::new(|| std::env::var("FUZZ_PLANT").unwrap_or_default());

/// Does what the planted fault does, if it is on and `is_there`.
pub fn here(is_there: impl Fn() -> bool) {
    if PLANTED.is_empty() || !is_there() {
        return;
    }
    match PLANTED.as_str() {
        "panic" => panic!("the planted panic"),
        "hang" => loop {
            std::thread::sleep(std::time::Duration::from_millis(100));
        },
        "memory" => {
            let mut hoard = Vec::new();
            loop {
                hoard.push(vec![1u8; 1 << 24]);
                std::hint::black_box(&hoard);
            }
        }
        other => panic!("FUZZ_PLANT={other}: expected panic, hang or memory"),
    }
}
