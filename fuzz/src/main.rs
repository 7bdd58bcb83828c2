// SPDX-License-Identifier: Apache-2.0
//! libFuzzer over one target: `FUZZ_TARGET` names it. `workload` is the runner's reader, in C.
#![no_main]
#![allow(unsafe_code)] // the reader in C

use faultline_fuzz::{Target, Worth, mutated_cells, target};
use libfuzzer_sys::{Corpus, fuzz_mutator, fuzz_target, fuzzer_mutate};
use std::sync::OnceLock;

static TARGET: OnceLock<Target> = OnceLock::new();
static IS_TRACE: OnceLock<bool> = OnceLock::new();

unsafe extern "C" {
    fn fuzz_workload(data: *const u8, size: usize);
}

fn workload(data: &[u8]) -> Worth {
    // SAFETY: it reads `size` bytes of `data` and keeps nothing.
    unsafe { fuzz_workload(data.as_ptr(), data.len()) }
    Worth::Keep
}

fn set_up() {
    let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
    let found = if name == "workload" { Some(workload as Target) } else { target(&name) };
    TARGET.set(found.unwrap_or_else(|| panic!("FUZZ_TARGET={name}: no such target"))).expect("set once");
    IS_TRACE.set(name == "trace").expect("set once");
}

fuzz_target!(init: set_up(), |data: &[u8]| -> Corpus {
    match TARGET.get().expect("set up")(data) {
        Worth::Keep => Corpus::Keep,
        Worth::Drop => Corpus::Reject,
    }
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    if *IS_TRACE.get().unwrap_or(&false) && seed % 2 == 0 {
        mutated_cells(&mut data[..max_size], size, seed)
    } else {
        fuzzer_mutate(data, size, max_size)
    }
});
