// SPDX-License-Identifier: Apache-2.0
//! The repository's litmus tests, through the command line that people use.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn engine(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_faultline-engine")).args(arguments).output().expect("the engine starts")
}

fn tests() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../litmus");
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).expect("the folder is there").map(|file| file.expect("readable").path()).collect();
    files.sort();
    files
}

#[test]
fn every_litmus_test_allows_exactly_what_the_model_reaches() {
    let files = tests();
    assert!(files.len() >= 25);
    let arguments: Vec<&str> =
        std::iter::once("litmus").chain(files.iter().map(|file| file.to_str().expect("UTF-8"))).collect();
    let output = engine(&arguments);
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned()), (Some(0), String::new()));
}

#[test]
fn each_litmus_test_fails_when_a_state_is_taken_away() {
    for file in tests() {
        let text = std::fs::read_to_string(&file).expect("readable");
        let (head, allowed) = text.split_once("allowed:").expect("every test has it");
        let fewer: Vec<&str> = allowed.split(';').skip(1).collect();
        let changed = std::env::temp_dir().join(format!(
            "{}-{}",
            std::process::id(),
            file.file_name().expect("a name").display()
        ));
        std::fs::write(&changed, format!("{head}allowed: {}", fewer.join(";"))).expect("written");
        let output = engine(&["litmus", changed.to_str().expect("UTF-8")]);
        std::fs::remove_file(&changed).expect("removed");
        assert_eq!(output.status.code(), Some(1), "{}", file.display());
        assert!(String::from_utf8_lossy(&output.stdout).contains("reachable but not allowed"));
    }
}

#[test]
fn print_shows_the_states_sorted() {
    let file = tests().into_iter().find(|file| file.ends_with("clwb-and-sfence-order.litmus")).expect("there");
    let output = engine(&["litmus", "--print", file.to_str().expect("UTF-8")]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "x=0 y=0\nx=1 y=0\nx=1 y=1\n");
}

#[test]
fn bad_input_is_one_line_and_exit_code_2() {
    let bad = std::env::temp_dir().join(format!("{}-bad.litmus", std::process::id()));
    std::fs::write(&bad, "name: bad\nlines: x\nT0: y = 1\n").expect("written");
    let file = bad.to_str().expect("UTF-8");
    for arguments in [
        ["litmus", file],
        ["litmus", "/nonexistent"],
        ["token", "fl1.AAAA"],
        ["token", "hello"],
        ["trace-info", file],
        ["seal", file],
        ["explore", file],
    ] {
        let output = engine(&arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{arguments:?}: {said}");
        assert!(said.starts_with("error: "), "{said}");
    }
    std::fs::remove_file(bad).expect("removed");
}
