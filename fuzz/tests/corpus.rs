// SPDX-License-Identifier: Apache-2.0
//! Every input of the corpus through its target, and through all others: what one reader accepts is bad input to the rest.

use faultline_fuzz::{TARGETS, target};
use std::path::{Path, PathBuf};

fn inputs(name: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("readable").path()).collect();
    paths.sort();
    paths
}

#[test]
fn every_target_has_a_corpus() {
    for (name, _) in TARGETS {
        assert!(inputs(name).len() >= 5, "{name}");
    }
}

#[test]
fn every_claim_holds_on_every_input() {
    for folder in ["trace", "token", "litmus", "log", "report", "config", "workload", "allocator", "matrix"] {
        for path in inputs(folder) {
            let bytes = std::fs::read(&path).expect("readable");
            for (_, run) in TARGETS {
                run(&bytes);
            }
        }
    }
}

#[test]
fn a_target_that_is_not_there_is_none() {
    assert!(target("nosuch").is_none());
}
